"""Work of ops, worked out again: which values exist in memory, FLOP and bytes of one op on one device.

The conventions are those that plans are priced by (docs/verification.md); the code is the checker's own.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log2, prod
from typing import Final

from autoshard.verify.plan.placed import Placed
from autoshard.verify.plan.program import Body, Graph, Node, element_bytes
from autoshard.verify.plan.rules import Factors, Rule

MATRIX_KINDS: Final = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")

_LANES: Final = 128  # of a tile of memory

_WRITES: Final = frozenset(
    {
        "dot_general", "conv_general_dilated", "gather", "sort", "top_k", "scan", "while", "cond",
        "shard_map", "dynamic_update_slice", "concatenate", "roll", "fft", "cholesky", "lu", "qr", "geqrf",
        "householder_product", "eigh", "eig", "svd", "triangular_solve", "tridiagonal_solve", "threefry2x32",
        "stack", "split", "reduce", "schur", "hessenberg", "tridiagonal", "geqp3", "ormqr", "cholesky_update",
        "symmetric_product", "lu_pivots_to_permutation",
    }
)  # fmt: skip
_WRITES_PREFIX: Final = ("reduce_", "arg", "cum", "scatter", "random_", "select_and", "ragged_", "approx_")
_TAKES_VIRTUAL: Final = ("dot_general", "conv_general_dilated", "reduce_", "arg", "ragged_")

_COPIES: Final = frozenset(
    {
        "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice", "pad", "concatenate",
        "rev", "roll", "copy", "copy_p", "iota", "dynamic_slice", "dynamic_update_slice", "gather", "split",
        "optimization_barrier", "bitcast_convert_type", "stack", "unstack", "tile",
    }
)  # fmt: skip
_FLOP_PER_ELEMENT: Final[Mapping[str, float]] = {
    kind: flop
    for flop, kinds in (
        (4.0, "rsqrt sqrt div"),
        (8.0, "exp exp2 log log1p log2 expm1 cbrt"),
        (10.0, "tanh logistic sin cos atan"),
        (12.0, "tan erf erfc"),
        (16.0, "pow atan2"),
        (20.0, "erf_inv"),
        (30.0, "lgamma digamma"),
        (40.0, "random_bits threefry2x32 rng_bit_generator"),
        (20.0, "asin acos cosh atanh"),
        (24.0, "nextafter"),
        (35.0, "sinh asinh acosh"),
        (90.0, "bessel_i0e bessel_i1e"),
        (210.0, "zeta"),
        (230.0, "igamma igammac"),
        (430.0, "polygamma regularized_incomplete_beta"),
        (450.0, "igamma_grad_a"),
    )
    for kind in kinds.split()
}
_FACTORS: Final = {
    "cholesky": 1 / 3, "eigh": 9.0, "eig": 25.0, "svd": 22.0, "schur": 25.0, "hessenberg": 10 / 3, "tridiagonal": 4 / 3,
}  # fmt: skip
"""FLOP of one matrix m x n as a multiple of m n min(m, n)."""
_SOLVES: Final = ("triangular_solve", "lu", "qr", "geqrf", "householder_product")


def is_matrix(op: Node) -> bool:
    """Whether the matrix unit does the FLOP of an op; of kernels that is stated."""
    return op.kind in MATRIX_KINDS or ("work" in op.attrs and op.attrs["work"]["unit"] == "matmul")


def computes_with(op: Node, graph: Graph) -> str:
    """The type of the first operand; of a kernel the first one with a fraction; of a product what both become."""
    types = [graph.values[v] for v in (*op.operands, *op.results)]
    if "work" in op.attrs:
        return next((t.dtype for t in types if t.is_inexact), types[0].dtype)
    if op.kind in MATRIX_KINDS:
        both = max(types[:2], key=lambda t: (t.is_inexact, element_bytes(t.dtype)))
        passes = op.attrs.get("precision") if both.dtype in ("float32", "complex64") else None
        return f"float32_{passes}" if passes else both.dtype
    return types[0].dtype


# -- which values exist ------------------------------------------------------------------------------


def materialised(graph: Graph, rules: Mapping[int, Rule]) -> set[int]:
    """Values that are written to memory, because their ops do not fuse (R1, R3) or because they are read often (R2).

    R1 to R4 are the rules of docs/memory.md.
    """
    exists = {*graph.body.args, *graph.body.results}
    for body in graph.bodies():
        exists.update(body.args, body.results)
        _mark(graph, body, rules, exists)
    return {v for v in exists if not graph.values[v].is_literal}


def writes(op: Node, rule: Rule | None) -> bool:
    """R1 and R3: whether `op` writes its result instead of being fused into its consumers."""
    if op.kind == "reduce_precision":
        return False
    if op.kind in ("scatter-add", "scatter_add") and rule is not None and not rule.reduction:
        # R3: at most one update for each row, so it is a comparison and a selection, which fuse
        of_updates = {f for d in rule.operands[2] for f in d}
        if sum(1 for d in rule.operands[0] if d and not of_updates.issuperset(d)) == 1:
            return False
    return "kernel" in op.attrs or op.kind in _WRITES or op.kind.startswith(_WRITES_PREFIX)


def _mark(graph: Graph, body: Body, rules: Mapping[int, Rule], exists: set[int]) -> None:
    values = graph.values
    readers: dict[int, set[int]] = {}
    constants: set[int] = set()  # broadcasts of literals; the bodies of loops compute them again
    for op in body.ops:
        for v in op.operands:
            readers.setdefault(v, set()).add(op.id)
        if op.kind == "optimization_barrier":
            exists.update(op.operands)
        elif writes(op, rules.get(op.id)) and op.kind != "reduce" and not op.kind.startswith(_TAKES_VIRTUAL):
            exists.update(v for v in op.operands if not op.regions or v not in constants)
        if op.kind == "broadcast_in_dim" and all(values[v].is_literal for v in op.operands):
            constants.update(op.results)
    behind: dict[int, set[int]] = {}  # what a virtual value is computed from, in memory
    for op in body.ops:
        if writes(op, rules.get(op.id)):
            exists.update(op.results)
            continue
        sources = {
            s for v in op.operands if not values[v].is_literal for s in ((v,) if v in exists else behind.get(v, ()))
        }
        for r in op.results:
            behind[r] = sources
            if r not in exists and len(readers.get(r, ())) >= 2:
                large = [values[s] for s in sources if values[s].elements >= 0.25 * values[r].elements]
                if len(large) >= 2 and sum(t.bytes for t in large) > 1.6 * values[r].bytes:
                    exists.add(r)


_RESHAPES: Final = frozenset(
    {"convert_element_type", "reshape", "transpose", "squeeze", "expand_dims", "copy", "reduce_precision"}
)


def kept(graph: Graph, rules: Mapping[int, Rule], exists: set[int]) -> set[int]:
    """Values with memory of their own. By R4 a matmul's product has none where pointwise ops turn it into one value."""
    out = set(exists)
    for body in graph.bodies():
        readers: dict[int, list[int]] = {}
        for place, op in enumerate(body.ops):
            for v in set(op.operands):
                readers.setdefault(v, []).append(place)
        for op in body.ops:
            if op.kind in ("dot_general", "conv_general_dilated") and op.results[0] not in body.results:
                passed, end = _follow(graph, body, op.results[0], readers, rules)
                if end is not None:
                    out = (out - passed) | {end}
    return out


def _follow(
    graph: Graph, body: Body, product: int, readers: Mapping[int, list[int]], rules: Mapping[int, Rule]
) -> tuple[set[int], int | None]:
    """The values before the last one that everything computed from a product passes through, and that one."""
    full = graph.values[product]
    chain = [product]
    ahead = set(readers.get(product, ()))
    unread = {product: len(ahead)}
    changed, end, before = False, None, set[int]()
    while ahead:
        place = min(ahead)
        ahead.discard(place)
        op = body.ops[place]
        rule = rules.get(op.id)
        if writes(op, rule) or op.regions or rule is None or len(op.results) != 1 or op.kind == "optimization_barrier":
            break
        changed = changed or op.kind not in _RESHAPES
        for v in {*op.operands} & {*chain}:
            unread[v] -= 1
        new = op.results[0]
        value = graph.values[new]
        alike = value.elements == full.elements
        if changed and alike and value.bytes <= full.bytes and not any(unread.values()):
            end, before = new, set(chain)
        if new in body.results or not alike:
            break
        chain.append(new)
        unread[new] = len(readers.get(new, ()))
        ahead.update(readers.get(new, ()))
    return before, end


# -- work --------------------------------------------------------------------------------------------


def local_sizes(rule: Rule, placed: Placed) -> list[int]:
    """Sizes of the factors on one device."""
    return [ceil(n / p) for n, p in zip(rule.sizes, placed.parts, strict=True)]


def block_elements(factors: Factors | Iterable[int], sizes: list[int]) -> float:
    """Elements of a device's block of a tensor."""
    return float(prod(sizes[f] for d in factors for f in (d if isinstance(d, tuple) else (d,))))


def flop(op: Node, placed: Placed, graph: Graph) -> float:
    """FLOP of one execution on one device; a multiply-add is 2."""
    rule, kind = placed.rule, op.kind
    n = local_sizes(rule, placed)
    if "work" in op.attrs:
        return float(op.attrs["work"]["flop"] or 0.0) * _kernel_share(rule, n)
    per_pair = 2.0
    if kind in (*MATRIX_KINDS, *_FACTORS, *_SOLVES) and graph.values[op.operands[0]].dtype.startswith("complex"):
        per_pair = 8.0  # four products and four sums of real numbers
    if kind in MATRIX_KINDS:
        return per_pair * _pairs(op, rule, n)
    if kind == "fft":
        kinds = [graph.values[v].dtype.startswith("complex") for v in (*op.operands, *op.results)]
        length = prod(op.attrs.get("window") or (1,))
        elements = max(block_elements(rule.operands[0], n), block_elements(rule.results[0], n))
        return elements * log2(max(2, length)) * (5.0 if all(kinds) else 2.5)
    if kind.startswith(("reduce_window", "select_and")):
        windows = block_elements(rule.results[0], n)
        if "scatter" in kind:  # one for each element of the smaller operand
            windows = min(block_elements(t, n) for t in rule.operands[:2])
        return windows * prod(op.attrs.get("window") or (1,))
    if kind == "reduce" or kind.startswith(("reduce_", "argm", "cum")):
        return sum(block_elements(t, n) for t in rule.operands)
    if kind.startswith("scatter"):
        return block_elements(rule.operands[2], n)
    if kind in ("sort", "top_k", "approx_top_k"):
        ordered = prod(rule.sizes[f] for f in {f for d in rule.operands[0] for f in d} & rule.uncut)
        return block_elements(rule.operands[0], n) * max(1, ceil(log2(max(2, ordered))))
    if kind in _FACTORS or kind in _SOLVES:
        return per_pair / 2 * _linalg_flop(op, rule, n, graph)
    if kind in _COPIES:
        return 0.0
    return sum(block_elements(t, n) for t in rule.results) * _FLOP_PER_ELEMENT.get(kind, 1.0)


def _pairs(op: Node, rule: Rule, n: list[int]) -> float:
    """Multiply-adds of a matmul or a convolution on one device."""
    if op.kind == "dot_general":
        return prod(n)
    if op.kind.startswith("ragged_dot"):
        # a row is in one group: a group is no loop of the work, be it in the right side or, of gradients, in the result
        rows, others, made = ({f for d in t for f in d} for t in (*rule.operands[:2], rule.results[0]))
        return block_elements(rows | (others & made), n)
    features = {f for d in rule.operands[1] for f in d} & {f for d in rule.results[0] for f in d}
    per_channel = block_elements(rule.operands[1], n) / max(1.0, block_elements(features, n))
    return block_elements(rule.results[0], n) * per_channel * taps_that_meet(op)


def _linalg_flop(op: Node, rule: Rule, n: list[int], graph: Graph) -> float:
    """FLOP of real factorisations and solves on one device, which has whole matrices."""
    rows, columns = (1, 1, *graph.values[op.operands[0]].shape)[-2:]
    if op.kind == "triangular_solve":
        return block_elements(rule.results[0], n) * columns
    made = (1, *graph.values[op.results[0]].shape)[-1]
    matrices = block_elements(rule.operands[0], n) / max(1, rows * columns)
    return matrices * _matrix_flop(op.kind, rows, columns, made)


def _matrix_flop(kind: str, m: int, n: int, made: int) -> float:
    """FLOP of factoring one matrix m x n; made: columns of the first result, of QR that of Q."""
    if kind in _FACTORS:
        return _FACTORS[kind] * m * n * min(m, n)
    k = min(m, n)
    eliminated = m * n * k - k**3 / 3
    orthogonal = 4 * (m * made * k + k**3 / 3) - 2 * k * k * (m + made)
    first = {"householder_product": 0.0, "lu": eliminated}.get(kind, 2 * eliminated)
    return first + (0.0 if kind in ("lu", "geqrf") else orthogonal)


def taps_that_meet(op: Node) -> float:
    """Of the taps of a convolution those that meet no zero of dilation, over all of them."""
    taps = op.attrs.get("taps")
    return taps[0] / taps[1] if taps and taps[1] else 1.0


def padded_channels(placed: Placed, tile: int) -> float:
    """FLOP of a convolution whose channels are filled up to whole tiles of the matrix unit, over those it has."""
    rule = placed.rule
    n = local_sizes(rule, placed)
    image, kernel, made = ([set(dim) for dim in tensor] for tensor in (*rule.operands, *rule.results))
    of_image, of_kernel, of_made = (set().union(*dims) for dims in (image, kernel, made))
    if any(rule.sizes[f] > 1 for f in of_image & of_kernel & of_made):
        return 1.0  # groups

    def whole(factors: set[int]) -> int:
        return prod(rule.sizes[f] for f in factors)

    def up(count: float, multiple: int) -> float:
        return ceil(count / multiple) * multiple / count if count else 1.0

    summed = [dim for dim in kernel if dim and dim <= of_image and not dim & of_made and whole(dim) > 1]
    own, places = whole(of_kernel - of_image - of_made), whole(of_made - of_image - of_kernel)
    inputs = whole(of_image - of_kernel - of_made)
    out = block_elements(of_kernel & of_made, n)
    if len(summed) > 1 or (inputs > 1 and own > places):  # the gradient of a kernel
        return up(max(out, block_elements((of_image & of_made) - of_kernel, n)), tile)
    taken = block_elements((of_image & of_kernel) - of_made, n)
    return up(min(out, taken), tile) * up(max(out, taken), min(_LANES, tile))


def _kernel_share(rule: Rule, n: list[int]) -> float:
    """What a device does of a kernel: its part of each factor."""
    return prod(mine / size for mine, size in zip(n, rule.sizes, strict=True) if size > 1)


def vector_flop_of_kernel(op: Node, placed: Placed) -> float:
    """FLOP of the transcendentals of a kernel, which its vector unit does beside the matmuls; 0 for other ops."""
    if "work" not in op.attrs:
        return 0.0
    share = _kernel_share(placed.rule, local_sizes(placed.rule, placed))
    return _FLOP_PER_ELEMENT["exp"] * float(op.attrs["work"]["transcendentals"]) * share


def turned_bytes(op: Node, placed: Placed, graph: Graph, sector: int) -> float:
    """Bytes that a transpose reads beside those of its operand, with `sector` bytes a read: where the last dimension of
    more than one element changes, and the old or the new one has fewer than 8 elements on a device.
    """
    if op.kind != "transpose":
        return 0.0
    n = local_sizes(placed.rule, placed)
    longer = [[f for dim in t for f in dim if n[f] > 1] for t in (placed.rule.operands[0], placed.rule.results[0])]
    if not longer[0] or longer[0][-1] == longer[1][-1]:
        return 0.0
    short = min(n[factors[-1]] for factors in longer)
    size = element_bytes(graph.values[op.operands[0]].dtype)
    again = min(short, sector / size) - 1 if short < 8 and size else 0
    return again * size * block_elements(placed.rule.operands[0], n)


def cache_bytes(op: Node, placed: Placed, graph: Graph, written: set[int]) -> float:
    """Bytes of turning operands of a product in memory, each read and written; three times where it was updated (it is
    turned, copied and turned back). They turn where what all three tensors share, dimensions of one element left out,
    does not lie side by side in an operand, or lies last.
    """
    rule, n, total = placed.rule, local_sizes(placed.rule, placed), 0.0
    shared = set.intersection(*({f for dim in t for f in dim} for t in (*rule.operands, *rule.results)))
    for v, factors in zip(op.operands, rule.operands, strict=True):
        longer = [f for dim in factors for f in dim if n[f] > 1]
        places = [k for k, f in enumerate(longer) if f in shared]
        if places and (places[-1] - places[0] >= len(places) or places[-1] == len(longer) - 1):
            total += (6 if v in written else 2) * block_elements(factors, n) * element_bytes(graph.values[v].dtype)
    return total


def made_bytes(op: Node, placed: Placed, graph: Graph) -> float:
    """Bytes of the results of one execution on one device."""
    n = local_sizes(placed.rule, placed)
    sizes = (element_bytes(graph.values[v].dtype) for v in op.results)
    return sum(block_elements(dims, n) * size for dims, size in zip(placed.rule.results, sizes, strict=True))


def is_update(op: Node) -> bool:
    """Whether an op writes a part of its first operand."""
    return op.kind == "dynamic_update_slice" or op.kind.startswith("scatter")


def _groups_met(rule: Rule, n: Sequence[int]) -> float:
    """The most of its groups that the rows of a ragged matmul can meet, as a share: each row meets one."""
    rows, groups = 1.0, 1.0
    in_left, in_right, in_result = ([f for dim in t for f in dim] for t in (*rule.operands[:2], rule.results[0]))
    for factor in set(in_left + in_right):
        if factor in in_left and factor in in_result and factor not in in_right:
            rows *= n[factor]
        if factor in in_right and factor not in in_left and factor not in in_result:
            groups *= n[factor]
    return min(1.0, rows / max(groups, 1.0))


def moved_bytes(op: Node, placed: Placed, graph: Graph, exists: set[int]) -> float:
    """Bytes one execution reads and writes in the memory of one device.

    Lookups and updates touch only the slice of their table: it counts twice, and the table does not count. A slice with
    known borders reads what it takes, and all of a dimension that it steps through. What is given twice is read once.
    A ragged matmul reads as many groups as it has rows, if it has more groups than these.
    """
    rule, n = placed.rule, local_sizes(placed.rule, placed)
    lookup = op.kind in ("gather", "dynamic_slice")
    spot = lookup or is_update(op)
    total = 0.0
    tensors = [*zip((*op.operands, *op.results), (*rule.operands, *rule.results), strict=True)]
    for k, (v, factors) in enumerate(tensors):
        if v in exists and not (spot and (k == 0 or v in op.results)) and (v, factors) not in tensors[:k]:
            block = block_elements(factors, n)
            for c in rule.cutouts if op.kind == "slice" and k == 0 else ():
                if c.taken >= 0:
                    block *= min(1.0, (n[c.made] if c.made >= 0 else 1) / n[c.taken])
            block *= _groups_met(rule, n) if op.kind.startswith("ragged_dot") and k == 1 else 1.0
            total += block * element_bytes(graph.values[v].dtype)
    stated = op.attrs["work"]["bytes"] if "work" in op.attrs else None
    if stated is not None:
        once = sum(graph.values[v].bytes for v in (*op.operands, *op.results))
        total *= stated / once if once else 0.0
    if spot:
        piece = rule.results[0] if lookup else rule.operands[-1 if op.kind.startswith("scatter") else 1]
        total += 2.0 * block_elements(piece, n) * element_bytes(graph.values[op.results[0]].dtype)
    return total
