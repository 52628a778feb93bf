"""Which values exist in memory: the fusion model.

Compilers fuse chains of pointwise and shape ops into their consumers. A *materialised* value is written
to memory once and read by each op that uses it; a *virtual* value costs neither bytes nor memory. The rules
are the smallest set that matched the TPU compiler's buffer assignment in a study of 42 train steps:

R1  matmuls, convolutions, reductions, gathers, scatters, sorts, loops, random bits and program outputs are
    materialised, and so are the operands of all of these but matmuls, convolutions and reductions;
R2  a virtual value with two or more consumers that would re-read two or more materialised sources, each of
    at least a quarter of its elements and together more than 1.6 times its bytes, is materialised.

R3  a scatter-add that adds at most one update to each row of its operand (the gradient of picking one entry per row,
    as in cross-entropy) becomes compare-and-select, and is pointwise therefore.

R4  a matmul or convolution whose uses are pointwise and lead to one value of as many elements and no more bytes is
    held as that value only (the matmul's fusion ends with it), unless there are only converts and shape ops on the way.
    This rule is about held memory; seconds are priced as if the product itself were written.

A broadcast of a literal is not materialised for the loops that read it: XLA sinks such constants into loop bodies.

On GPUs the values that take memory of their own are others, by the rules of `costs.libraries` in place of R4. Seconds
are priced by R1 to R3 everywhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoshard.costmodels.profile import Memory
from autoshard.costs.libraries import Calls, calls, hold
from autoshard.program.program import Block, Op, Origin, Program

# pointwise and shape ops: everything else is materialised
_ROOT_PREFIXES: Final = ("reduce_", "arg", "cum", "scatter", "random_", "select_and", "ragged_", "approx_")
_ROOTS: Final = frozenset(
    {
        "dot_general", "conv_general_dilated", "gather", "sort", "top_k", "scan", "while", "cond", "shard_map",
        "dynamic_update_slice", "concatenate", "roll", "fft", "cholesky", "lu", "qr", "geqrf", "householder_product",
        "eigh", "eig", "svd", "triangular_solve", "tridiagonal_solve", "threefry2x32", "stack", "split", "reduce",
        "cholesky_update", "geqp3", "hessenberg", "lu_pivots_to_permutation", "ormqr", "schur", "symmetric_product",
        "tridiagonal",
    }
)  # fmt: skip
_NOT_ROOTS: Final = frozenset({"reduce_precision"})
_FUSES_OPERANDS: Final = ("dot_general", "conv_general_dilated", "reduce_", "arg", "ragged_")

_R2_SHARE: Final = 0.25
_R2_BYTES: Final = 1.6


def is_root(op: Op) -> bool:
    """Whether an op writes its result to memory instead of fusing into its consumers."""
    if "kernel" in op.attrs:
        return True
    if op.kind in _NOT_ROOTS or _one_update_per_row(op):
        return False
    return op.kind in _ROOTS or op.kind.startswith(_ROOT_PREFIXES)


def pointwise(op: Op) -> bool:
    """Whether each element of the results depends on the same element of every operand; scalars may be operands too.

    So it is where the results have the factors of the operands and none must be whole: sums along a dimension, Fourier
    transforms, and what turns or rolls a dimension, read other elements. A sort is done in place all the same.
    """
    assert op.rule is not None
    rule, result = op.rule, op.rule.results[0]
    elsewhere = {f for dim in result for f in dim} & (rule.need_replication | rule.permutation)
    if rule.reduction or (elsewhere and op.kind != "sort"):
        return False
    return all(tensor == result or not any(tensor) for tensor in rule.operands)


def _one_update_per_row(op: Op) -> bool:
    """R3: every operand dimension but the looked-up one is shared with the updates, and no updates are summed."""
    if op.kind not in ("scatter-add", "scatter_add") or op.rule is None or op.rule.reduction:
        return False
    operand, updates = op.rule.operands[0], {f for d in op.rule.operands[2] for f in d}
    return len([d for d in operand if d and not set(d) <= updates]) == 1


@dataclass(frozen=True)
class Updates:
    """By product the matmuls with which an update could be fused, and the memory that says which operands stay on the
    chip.
    """

    memory: Memory
    matmuls: Mapping[int, Op]


@dataclass(frozen=True)
class Fusion:
    """Which values exist in memory.

    materialised: ids of the values that are read from memory. Literals count too, and arguments of loop bodies that are
    slices or constants of the loop: reading them costs bytes. held: ids of the values that take memory of their own;
    all materialised ones but products that are held only as the value that their pointwise uses lead to (R4). calls:
    how the program runs where matmuls are calls of libraries; None where they are not. updates: the matmuls with which
    an update is not fused where neither operand stays on the chip (`costs.apart`); None where all are. narrowed: of
    values that may be gathered as several ops take them, the share of their bytes that moves (`costs.conversions`).
    """

    materialised: frozenset[int]
    held: frozenset[int] = frozenset()
    calls: Calls | None = None
    updates: Updates | None = None
    narrowed: Mapping[int, float] = field(default_factory=dict)

    @property
    def twice(self) -> frozenset[int]:
        """Ids of the values that are held in two orders."""
        return frozenset() if self.calls is None else self.calls.twice

    def order(self, block: Block) -> tuple[Op, ...]:
        """The ops of a block as they run."""
        return block.ops if self.calls is None else self.calls.order(block)

    def __contains__(self, value: int) -> bool:
        return value in self.materialised


def analyse(program: Program, rules: str | None = None) -> Fusion:
    """Apply R1, R2 and R4 to every block; rules: `memory_rules` of the machine's profile."""
    real: set[int] = set(program.body.args)
    real.update(v for v in program.body.results)
    for block in _blocks(program.body):
        real.update(block.args)
        real.update(block.results)
        _one_block(program, block, real)
    literals = {v.id for v in program.values if v.origin is Origin.LITERAL}
    held, blocks = set(real), list(_blocks(program.body))
    if rules is None:
        for block in blocks:
            _epilogues(program, block, held)
        return Fusion(frozenset(real - literals), frozenset(held - literals))
    for block in blocks:
        hold(program, block, frozenset(op.id for op in block.ops if is_root(op) or op.regions), held)
    return Fusion(frozenset(real - literals), frozenset(held - literals), calls(blocks))


_SHAPE_ONLY: Final = frozenset(
    {"convert_element_type", "reshape", "transpose", "squeeze", "expand_dims", "copy", "reduce_precision"}
)


def _epilogues(program: Program, block: Block, held: set[int]) -> None:
    """R4 in one block."""
    readers: dict[int, list[int]] = {}
    for index, op in enumerate(block.ops):
        for value in dict.fromkeys(op.operands):
            readers.setdefault(value, []).append(index)
    results = set(block.results)
    for op in block.ops:
        if op.kind in ("dot_general", "conv_general_dilated") and op.results[0] not in results:
            inner, meet = _meets(program, block, op.results[0], readers, results)
            if meet is not None:
                held.difference_update(inner)
                held.add(meet)


def _meets(
    program: Program, block: Block, product: int, readers: dict[int, list[int]], results: set[int]
) -> tuple[list[int], int | None]:
    """The value that all pointwise uses of `product` lead to, or None, and the values between."""
    own = program.type_of(product)
    inside, waiting, inner, last = {product}, {product: len(readers.get(product, ()))}, [product], None
    queue, computes, before = sorted(readers.get(product, ())), False, []
    while queue:
        op = block.ops[queue.pop(0)]
        if is_root(op) or op.regions or op.rule is None or len(op.results) != 1 or op.kind == "optimization_barrier":
            break
        computes |= op.kind not in _SHAPE_ONLY
        for value in set(op.operands) & inside:
            waiting[value] -= 1
            if not waiting[value]:
                del waiting[value]
        (result,) = op.results
        inside.add(result)
        type_ = program.type_of(result)
        if not waiting and computes and type_.elements == own.elements and type_.bytes <= own.bytes:
            last, before = result, list(inner)
        if result in results or type_.elements != own.elements:
            break
        inner.append(result)
        waiting[result] = len(readers.get(result, ()))
        queue = sorted({*queue, *readers.get(result, ())})
    return before, last


def _blocks(block: Block) -> Iterable[Block]:
    yield block
    for op in block.ops:
        if op.kind != "shard_map":
            for region in op.regions:
                yield from _blocks(region)


def _of_literals(program: Program, op: Op) -> bool:
    return op.kind == "broadcast_in_dim" and all(program.values[v].origin is Origin.LITERAL for v in op.operands)


def _one_block(program: Program, block: Block, real: set[int]) -> None:
    consumers: dict[int, int] = {}
    sinkable: set[int] = set()
    for op in block.ops:
        for value in set(op.operands):
            consumers[value] = consumers.get(value, 0) + 1
        if is_root(op) and op.kind != "reduce" and not op.kind.startswith(_FUSES_OPERANDS):
            real.update(v for v in op.operands if not (op.regions and v in sinkable))
        if not op.regions and _of_literals(program, op):
            sinkable.update(op.results)
        if op.kind == "optimization_barrier":
            real.update(op.operands)
    sources: dict[int, frozenset[int]] = {}
    for op in block.ops:
        if is_root(op):
            real.update(op.results)
            continue
        read: set[int] = set()
        for value in op.operands:
            if program.values[value].origin is not Origin.LITERAL:
                read |= {value} if value in real else sources.get(value, frozenset())
        for result in op.results:
            sources[result] = frozenset(read)
            if result in real or consumers.get(result, 0) < 2:
                continue
            own = program.type_of(result)
            large = [s for s in read if program.type_of(s).elements >= _R2_SHARE * own.elements]
            if len(large) >= 2 and sum(program.type_of(s).bytes for s in large) > _R2_BYTES * own.bytes:
                real.add(result)
