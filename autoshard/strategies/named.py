"""Named strategies as statements: which logical axis of which input lies on which mesh axes.

As in MaxText's guide a strategy is a mapping from logical axes (batch, embed, mlp, heads, vocab, ...) to mesh axes, in
rounds: batch parallelism first, then Megatron, then ZeRO (S2.5, S3.9, S3.14 to S3.17). What a later round puts on a parameter
is storage: it does not move the matmuls that an earlier round has placed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import DimensionSharding, TensorSharding

Roles = Mapping[str, Sequence[str | None]]
"""Path pattern of inputs -> the logical name of each of their dimensions."""

NAMES = ("data", "fsdp", "tensor", "fsdp+tensor")
ALIASES = {
    "dp": "data", "data_parallel": "data", "zero3": "fsdp", "megatron": "tensor", "tp": "tensor",
    "tensor+fsdp": "fsdp+tensor", "fsdp+tp": "fsdp+tensor",
}  # fmt: skip

BATCH = ("batch",)
TENSOR = ("mlp", "heads", "kv_heads", "vocab", "conv_out")
"""Logical axes that Megatron cuts: columns of the first matrix of a pair, rows of the second (S3.5)."""
FSDP = ("embed",)
"""Logical axes that FSDP cuts first; where there is none that divides, the largest dimension that does."""
NEVER = ("layers", "batch", "seq", "kernel_height", "kernel_width")


@dataclass(frozen=True)
class NamedStrategy:
    """Mesh axes that carry the batch, cut matmuls, and store parameters."""

    name: str
    batch: tuple[str, ...]
    tensor: tuple[str, ...]
    storage: tuple[str, ...]


def named_strategy(name: str, mesh: Mesh) -> NamedStrategy:
    """The strategy of that name on a mesh: `tensor` takes the last axis in a mix, and all axes alone."""
    axes = tuple(a for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True) if n > 1)
    canonical = ALIASES.get(name, name)
    match canonical:
        case "data":
            return NamedStrategy(name, axes, (), ())
        case "fsdp":
            return NamedStrategy(name, axes, (), axes)
        case "tensor":
            return NamedStrategy(name, (), axes, ())
        case "fsdp+tensor":
            if len(axes) < 2:
                raise InputError(f"baseline {name!r} needs two mesh axes larger than 1, the mesh is {mesh}")
            return NamedStrategy(name, axes[:-1], axes[-1:], axes[:-1])
    known = ", ".join((*NAMES, *sorted(ALIASES)))
    raise InputError(f"unknown baseline {name!r}; known are {known}")


def roles_of(program: Program, roles: Roles) -> dict[int, tuple[str | None, ...]]:
    """Input value -> logical names; `InputError` where a pattern's names do not fit the rank."""
    out: dict[int, tuple[str | None, ...]] = {}
    for name, value in zip(program.input_names, program.body.args, strict=False):
        for pattern, axes in roles.items():
            if fnmatchcase(name, pattern):
                rank = program.type_of(value).rank
                if len(axes) != rank:
                    raise InputError(f"logical axes {tuple(axes)} of {pattern!r} do not fit {name} of rank {rank}")
                out[value] = tuple(axes)
                break
    return out


def shardings(
    strategy: NamedStrategy, program: Program, mesh: Mesh, roles: Roles
) -> tuple[dict[int, TensorSharding], dict[int, TensorSharding]]:
    """(statements with priorities for propagation, the same closed and without priorities as pins of the inputs).

    Axes that do not divide a dimension are left off it, as Megatron leaves few kv heads whole.
    """
    spread: dict[int, TensorSharding] = {}
    pins: dict[int, TensorSharding] = {}
    known = roles_of(program, roles)
    for value, names in known.items():
        shape = program.type_of(value).shape
        dims: list[tuple[tuple[str, ...], int | None]] = [((), None)] * len(shape)
        for d, (name, size) in enumerate(zip(names, shape, strict=True)):
            if name in BATCH:
                dims[d] = (_dividing(strategy.batch, size, mesh), 0)
        tensor = next((d for d, name in enumerate(names) if name in TENSOR and strategy.tensor), None)
        if tensor is not None and "batch" not in names:
            dims[tensor] = (_dividing(strategy.tensor, shape[tensor], mesh), 1)
        if strategy.storage and "batch" not in names:
            place = _storage_dim(strategy.storage, names, shape, mesh, tensor if tensor is not None and dims[tensor][0] else None)
            if place is not None:
                dims[place] = (strategy.storage, 2)
        used = [(axes, priority) for axes, priority in dims]
        spread[value] = TensorSharding(
            None, tuple(DimensionSharding(_refs(a), False, p if a else None) for a, p in used)
        )
        pins[value] = TensorSharding(None, tuple(DimensionSharding(_refs(a), False, None) for a, _ in used))
    return spread, pins


def _refs(axes: Sequence[str]) -> tuple[AxisRef, ...]:
    return tuple(AxisRef(a) for a in axes)


def _dividing(axes: Sequence[str], size: int, mesh: Mesh) -> tuple[str, ...]:
    """The longest leading part of `axes` whose product divides `size`."""
    taken: list[str] = []
    product = 1
    for axis in axes:
        product *= mesh.axis_size(axis)
        if size % product:
            break
        taken.append(axis)
    return tuple(taken)


def _storage_dim(
    axes: Sequence[str], names: Sequence[str | None], shape: Sequence[int], mesh: Mesh, taken: int | None
) -> int | None:
    product = 1
    for axis in axes:
        product *= mesh.axis_size(axis)
    fits = [d for d, n in enumerate(shape) if n % product == 0 and n > 1 and d != taken and names[d] not in NEVER]
    preferred = [d for d in fits if names[d] in FSDP]
    if preferred:
        return preferred[0]
    return max(fits, key=lambda d: (shape[d], -d)) if fits else None


def batch_size(program: Program, roles: Roles) -> float | None:
    """Tokens (rows, where there is no sequence) of a step: the largest input whose first logical axis is the batch."""
    sizes = [
        float(prod(n for n, name in zip(program.type_of(value).shape, names, strict=True) if name in (*BATCH, "seq")))
        for value, names in roles_of(program, roles).items()
        if any(name in BATCH for name in names)
    ]
    return max(sizes, default=None)
