"""`pallas_call`: how its grid cuts its arrays, what it computes, and the same kernel on blocks of its arrays.

A kernel runs once for each place of its grid, on blocks that index maps choose. Where the index of a block along a
dimension is the number of the program along a grid dimension (*tie*), a device that holds some of the blocks runs the
kernel on a grid that is so much shorter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from jax.extend import core as jax_core

from autoshard.errors import UnsupportedError
from autoshard.rules.kernels import FROM_ESTIMATE

Tie = tuple[int, int, int]
"""A grid dimension, the elements of a block along a dimension, and how many programs in a row have the same block."""

_TRANSCENDENTAL = frozenset({"exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sin", "cos", "pow", "erf"})
_MOVES = frozenset(
    {"get", "swap", "addupdate", "broadcast_in_dim", "reshape", "squeeze", "transpose", "iota", "program_id", "slice",
     "convert_element_type", "num_programs", "concatenate", "masked_load", "masked_swap", "copy"}
)  # fmt: skip


def kernel_name(params: Mapping[str, Any]) -> tuple[str, str]:
    """The name of a kernel (that of its function where it was given none), and the file of the function."""
    place = _function(params["jaxpr"])
    return str(params.get("name") or place[0]), place[1]


def grid_facts(params: Mapping[str, Any]) -> dict[str, Any]:
    """How the grid cuts the arrays, as plain data.

    ``grid``: sizes, None where a size comes with the data. ``vmapped``: dimensions that `jax.vmap` put in. ``ties``:
    for each operand and result, for each dimension, a `Tie` or None. ``bound``: grid dimensions on which blocks depend
    in other ways. ``parallel``: those that the kernel itself calls parallel. ``numbered``: those whose program number
    the body reads, counted without ``vmapped``; absent where it reads none.
    """
    mapping = params["grid_mapping"]
    grid = [n if isinstance(n, int) else None for n in mapping.grid]
    bound: set[int] = set()
    ties: list[Sequence[Tie | None]] = [() for _ in range(mapping.num_dynamic_grid_bounds)]
    index_avals = list(mapping.index_map_avals)[len(grid) :]
    ties += [(None,) * len(getattr(aval, "shape", ())) for aval in index_avals[: mapping.num_index_operands]]
    for block in mapping.block_mappings:
        found, others = _ties(block, grid)
        ties.append(found)
        bound |= others
    semantics = getattr(params.get("compiler_params"), "dimension_semantics", None) or ()
    parallel = [k for k, word in enumerate(semantics) if "parallel" in str(getattr(word, "value", word)).lower()]
    read = {int(eqn.params["axis"]) for eqn in _equations(params["jaxpr"]) if str(eqn.primitive.name) == "program_id"}
    return {
        "grid": grid, "vmapped": sorted(mapping.vmapped_dims), "ties": ties, "bound": sorted(bound),
        "parallel": parallel, **({"numbered": sorted(read)} if read else {}),
    }  # fmt: skip


def on_blocks(params: Mapping[str, Any], operands: Sequence[Any], results: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """The parameters of the same kernel on blocks: its grid is as much shorter as the blocks are.

    operands: local arrays. results: local shapes. Raises `UnsupportedError` where the blocks do not fit the grid.
    """
    mapping = params["grid_mapping"]
    skip = mapping.num_dynamic_grid_bounds + mapping.num_index_operands
    shapes = [tuple(x.shape) for x in operands][skip:] + [tuple(s) for s in results]
    facts, grid, blocks, settled = grid_facts(params), list(mapping.grid), [], {}
    for block, tied, shape in zip(mapping.block_mappings, facts["ties"][skip:], shapes, strict=True):
        for d, (n, whole, tie) in enumerate(zip(shape, block.array_aval.shape, tied, strict=True)):
            if n == whole:
                continue
            if tie is None or n % tie[1]:
                raise UnsupportedError(
                    f"the kernel {kernel_name(params)[0]} cannot run on {n} of {whole} elements along dimension {d}: "
                    + ("no grid dimension goes along it" if tie is None else f"its blocks have {tie[1]}")
                )
            index, size, rows = tie
            if settled.setdefault(index, n // size * rows) != n // size * rows:
                raise UnsupportedError(f"the blocks of {kernel_name(params)[0]} along grid dimension {index} differ")
        blocks.append(block.replace(array_aval=block.array_aval.update(shape=shape)))
    for index, count in settled.items():
        grid[index] = count
    share = prod(n / m for n, m in zip(grid, mapping.grid, strict=True) if isinstance(n, int) and isinstance(m, int))
    avals = tuple(a.update(shape=tuple(s)) for a, s in zip(params["out_avals"], results, strict=True))
    return {
        **params,
        "grid_mapping": mapping.replace(grid=tuple(grid), block_mappings=tuple(blocks)),
        "out_avals": avals,
        "cost_estimate": _share_of(params.get("cost_estimate"), share),
    }


def _share_of(estimate: Any, share: float) -> Any:
    if estimate is None:
        return None
    names = ("flops", "transcendentals", "bytes_accessed")
    return replace(estimate, **{name: int(getattr(estimate, name) * share) for name in names})


# -- work ----------------------------------------------------------------------------------------------------------


def work_facts(params: Mapping[str, Any]) -> dict[str, Any]:
    """FLOP, transcendentals and bytes of one call of the whole kernel, and where the figures are from.

    They are those of its ``cost_estimate``; a kernel without one is counted: its body, at every place of the grid.
    """
    unit = "matmul" if any(eqn.primitive.name == "dot_general" for eqn in _equations(params["jaxpr"])) else "vector"
    estimate = params.get("cost_estimate")
    if estimate is not None:
        return {
            "flop": float(estimate.flops), "transcendentals": float(estimate.transcendentals),
            "bytes": float(estimate.bytes_accessed), "unit": unit, "from": FROM_ESTIMATE,
        }  # fmt: skip
    matmul, vector, special = _count(params["jaxpr"])
    places = prod(n for n in params["grid_mapping"].grid if isinstance(n, int))
    return {
        "flop": float(places * (matmul if unit == "matmul" else vector)), "transcendentals": float(places * special),
        "bytes": None, "unit": unit, "from": "its body, at every place of its grid",
    }  # fmt: skip


def counted_work(jaxpr: Any) -> dict[str, Any]:
    """The work of a function that is a kernel, counted from its jaxpr and the kernels in it."""
    matmul, vector, special = _count(jaxpr)
    return {
        "flop": matmul or vector, "transcendentals": special, "bytes": None,
        "unit": "matmul" if matmul else "vector", "from": "its body",
    }  # fmt: skip


def _count(jaxpr: Any) -> tuple[float, float, float]:
    """FLOP of matmuls, of other arithmetic, and transcendentals. Of branches the most; a while loop runs once."""
    total = [0.0, 0.0, 0.0]
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        kind, inner = str(eqn.primitive.name), [_count(j) for j in _bodies(eqn)]
        if kind == "pallas_call":
            work = work_facts(eqn.params)
            of = 0 if work["unit"] == "matmul" else 1
            counts = [0.0, 0.0, work["transcendentals"]]
            counts[of] = work["flop"]
        elif kind == "cond":
            counts = [max(branch[k] for branch in inner) for k in range(3)]
        elif inner:
            times = eqn.params["length"] if kind == "scan" else 1
            counts = [times * sum(body[k] for body in inner) for k in range(3)]
        else:
            size = sum(prod(getattr(v.aval, "shape", ())) for v in eqn.outvars)
            counts = [0.0, 0.0, 0.0]
            if kind == "dot_general":
                contracted = eqn.params["dimension_numbers"][0][0]
                counts[0] = 2.0 * size * prod(eqn.invars[0].aval.shape[d] for d in contracted)
            elif kind in _TRANSCENDENTAL:
                counts[2] = float(size)
            elif kind not in _MOVES:
                counts[1] = float(size)
        total = [a + b for a, b in zip(total, counts, strict=True)]
    return total[0], total[1], total[2]


def _bodies(eqn: Any) -> list[Any]:
    items = (x for v in eqn.params.values() for x in (v if isinstance(v, tuple | list) else (v,)))
    return [item for item in items if hasattr(getattr(item, "jaxpr", item), "eqns")]


def _equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for body in _bodies(eqn):
            yield from _equations(body)


# -- index maps ----------------------------------------------------------------------------------------------------


def _ties(block: Any, grid: Sequence[int | None]) -> tuple[list[Tie | None], set[int]]:
    """The tie of each dimension of an array, and the grid dimensions on which its blocks depend in other ways."""
    jaxpr = block.index_map_jaxpr.jaxpr
    number = {var: k for k, var in enumerate(jaxpr.invars[: len(grid)])}
    divided: dict[Any, tuple[int, int]] = {}
    depends: dict[Any, set[int]] = {var: {k} for var, k in number.items()}
    for eqn in jaxpr.eqns:
        sources = [v for v in eqn.invars if not isinstance(v, jax_core.Literal)]
        for out in eqn.outvars:
            depends[out] = set().union(*(depends.get(v, set()) for v in sources))
        if str(eqn.primitive.name) == "div" and eqn.invars[0] in sources and eqn.invars[0] in number:
            if isinstance(eqn.invars[1], jax_core.Literal) and int(eqn.invars[1].val) > 0:
                divided[eqn.outvars[0]] = (number[eqn.invars[0]], int(eqn.invars[1].val))
    ties: list[Tie | None] = []
    others: set[int] = set()
    for n, out, shape in zip(block.array_aval.shape, jaxpr.outvars, block.block_shape, strict=True):
        tie, size = None, _elements(shape)
        if size is not None and not isinstance(out, jax_core.Literal):
            index, rows = divided.get(out, (number.get(out), 1))
            if index is not None and grid[index] is not None and n % size == 0 and n // size * rows == grid[index]:
                tie = (index, size, rows)
        if tie is None and not isinstance(out, jax_core.Literal):
            others |= depends.get(out, set())
        ties.append(tie)
    return ties, others


def _elements(size: Any) -> int | None:
    """Elements of a block along a dimension; None where blocks do not lie side by side."""
    if size is None or type(size).__name__ in ("Squeezed", "Mapped"):
        return 1
    if isinstance(size, int):
        return size
    return int(size.block_size) if type(size).__name__ == "Blocked" else None


def _function(jaxpr: Any) -> tuple[str, str]:
    """The name of the function that a jaxpr was traced from, and its file without folders."""
    info = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", "") or "")
    name, _, place = info.partition(" at ")
    return name or "kernel", place.rpartition(":")[0].rpartition("/")[2]
