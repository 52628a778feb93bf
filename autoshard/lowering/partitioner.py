"""What XLA's partitioner computes wrongly, in any `jit` with shardings, and how a program is kept from it (XLA of JAX
0.10):

- a convolution whose positions are cut where the mesh has several axes: sums are taken over devices that hold the same
  block, and come out as many times too large; and one in groups that the devices do not divide;
- a `pad` that adds on one side and takes off on the other, or adds between elements, of a whole array to a cut one;
- two windows over one array with different ends (a running sum and a running maximum, average and largest of a pool):
  the array is padded once, with the first one's number;
- a reduction, or windows, over a cut dimension that begin with another number than the neutral one, which enters once
  for every device, or with a function of their own, which the partitioner does not know and may refuse; it refuses
  those of bits, too, and windows over two arrays that are cut differently (tangents of pools).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jax import lax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jax.sharding import Mesh as JaxMesh

from autoshard.program.program import Op, Program

_WINDOWS = ("reduce_window", "cum", "select_and_")
_FOLDED_WINDOWS = ("reduce_window", "select_and_gather_add")
"""Windows of a function of the program's own, and those of tangents of pools, which are windows over two arrays."""


def windows_that_share(program: Program) -> frozenset[int]:
    """Ids of the ops over windows of an array over which another kind of op has windows, too."""
    over: dict[int, list[Op]] = {}
    for op, _ in program.walk():
        if op.kind.startswith(_WINDOWS):
            for value in op.operands:
                over.setdefault(value, []).append(op)
    return frozenset(op.id for ops in over.values() if len({o.kind for o in ops}) > 1 for op in ops)


def safe_operands(
    op: Op, params: dict[str, Any], operands: Sequence[Any], mesh: JaxMesh | AbstractMesh, shares: bool
) -> Sequence[Any]:
    """The operands of an op, so that XLA's partitioner does it right. shares: it is one of `windows_that_share`."""
    if op.kind == "conv_general_dilated":
        specs = params["dimension_numbers"][:2]
        return [_whole(x, _kept_whole(spec, params, mesh), mesh) for x, spec in zip(operands, specs, strict=True)]
    if folded := _folded(op, params, operands):
        operands = [_whole(x, folded if x.ndim else (), mesh) for x in operands]
    odd = op.kind == "pad" and any(low * high < 0 or inner for low, high, inner in params["padding_config"])
    return [lax.optimization_barrier(operands[0]), *operands[1:]] if odd or shares else operands


def safe_results(op: Op, params: dict[str, Any], results: Sequence[Any], mesh: JaxMesh | AbstractMesh) -> Iterator[Any]:
    """The results of an op, as `safe_operands`."""
    whole: Sequence[int] = ()
    if op.kind == "conv_general_dilated":
        whole = _kept_whole(params["dimension_numbers"][2], params, mesh)
    elif op.kind in _FOLDED_WINDOWS:
        whole = _folded(op, params, results)
    for x in results:
        yield _whole(x, whole, mesh)


def _folded(op: Op, params: dict[str, Any], arrays: Sequence[Any]) -> Sequence[int]:
    """Dimensions along which a function of the program's own, or a beginning of its own, takes elements together, and
    those of reductions of bits. arrays: operands or results.

    JAX has other primitives for sums, largest elements and the like that begin with the neutral number.
    """
    if op.kind == "reduce":
        return tuple(params["dimensions"])
    if op.kind == "reduce_xor" or (op.kind in ("reduce_and", "reduce_or") and arrays[0].dtype != bool):
        return tuple(params["axes"])
    if op.kind not in _FOLDED_WINDOWS:
        return ()
    windows, padding = params["window_dimensions"], params["padding"]
    inner = params.get("base_dilation", (1,) * len(windows))
    return [d for d, n in enumerate(windows) if n > 1 or tuple(padding[d]) != (0, 0) or inner[d] > 1]


def _kept_whole(spec: Sequence[int], params: dict[str, Any], mesh: JaxMesh | AbstractMesh) -> Sequence[int]:
    """Dimensions of an array of a convolution, whose first two are batch and features, that are kept whole."""
    groups = max(params["feature_group_count"], params["batch_group_count"])
    if groups > 1 and groups % mesh.size:
        return spec
    return spec[2:] if sum(size > 1 for size in mesh.shape.values()) > 1 else ()


def _whole(x: Any, dims: Sequence[int], mesh: JaxMesh | AbstractMesh) -> Any:
    """The array with these dimensions whole on every device, and the others as XLA likes."""
    if not dims:
        return x
    spec = PartitionSpec(*(None if d in dims else PartitionSpec.UNCONSTRAINED for d in range(x.ndim)))
    return lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
