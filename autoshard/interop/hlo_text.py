"""HLO sharding text, ``{devices=[8,1,4]<=[32] last_tile_dim_replicate}``, to and from tensor shardings (S2.7).

HLO says which device holds which tile and names no axes. So reading needs a mesh to find the axes on, or makes one with
an axis for each tile dimension. Priorities, open dimensions and explicit replication have no HLO form and are lost.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from autoshard.errors import InputError, UnsupportedError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.device_orders import read_digits
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.refine import refine
from autoshard.sharding.tensor_sharding import TensorSharding

_DEVICES = re.compile(
    r"devices=\[(?P<tiles>[\d,]+)\](?:<=\[(?P<iota>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?|(?P<list>\d+(?:,\d+)*))"
)
_LAST = re.compile(r"(?:\s+(?:(?P<replicate>last_tile_dim_replicate)|last_tile_dims=\{(?P<kinds>[^}]*)\}))?")
_METADATA = re.compile(r"\s+metadata=\{.*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TileAssignment:
    """An HLO sharding as data.

    tiles: tile counts, tensor dimensions first, then one entry for each of `kinds`.
    devices: device ids in row-major order of the tiles. kinds: 'replicated' or 'unreduced' for trailing tile
    dimensions.
    """

    tiles: tuple[int, ...]
    devices: tuple[int, ...]
    kinds: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Number of dimensions of the tensor."""
        return len(self.tiles) - len(self.kinds)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise InputError(f"HLO sharding: {text!r} is no list of numbers with commas between them") from None


def parse_hlo_sharding(text: str, rank: int, devices: int) -> TileAssignment:
    """Read ``{replicated}`` or ``{devices=...}`` in both its forms for a tensor of this rank on this many devices."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise InputError(f"cannot read HLO sharding {text!r}; write {{replicated}} or {{devices=[2,1]<=[2]}}")
    body = body[1:-1].strip()
    if body == "replicated":
        return TileAssignment((1,) * rank + (devices,), tuple(range(devices)), ("replicated",))
    if body.startswith(("maximal", "manual", "unknown")):
        raise UnsupportedError(f"HLO sharding {text!r} is {body.split()[0]}: it has no form as a sharding over axes")
    match = _DEVICES.match(body)
    last = None if match is None else _LAST.match(body, match.end())
    rest = "" if last is None else body[last.end() :]
    if match is None or last is None or (rest and not _METADATA.fullmatch(rest)):
        raise InputError(f"cannot read HLO sharding {text!r}; write {{replicated}} or {{devices=[2,1]<=[2]}}")
    tiles = _numbers(match["tiles"])
    kinds: tuple[str, ...] = ()
    if last["replicate"]:
        kinds = ("replicated",)
    elif last["kinds"] is not None:
        kinds = tuple(k.strip() for k in last["kinds"].split(","))
        if not set(kinds) <= {"replicated", "unreduced"}:
            raise UnsupportedError(f"HLO sharding {text!r} has tile dimensions of kind {sorted(set(kinds))}")
    if prod(tiles) != devices:
        raise InputError(f"HLO sharding {text!r} has {prod(tiles)} tiles; expected each of {devices} devices once")
    ids = _numbers(match["list"]) if match["list"] else _iota(match["iota"], match["perm"], devices)
    assignment = TileAssignment(tiles, ids, kinds)
    if sorted(ids) != list(range(devices)):
        raise InputError(
            f"HLO sharding {text!r} has {prod(tiles)} tiles over {len(set(ids))} different devices; expected each of "
            f"{devices} devices once"
        )
    if assignment.rank != rank:
        raise InputError(f"HLO sharding {text!r} has {assignment.rank} tensor dimensions, the tensor has {rank}")
    return assignment


def _iota(dims_text: str, perm_text: str | None, devices: int) -> tuple[int, ...]:
    dims = _numbers(dims_text)
    if prod(dims) != devices:
        raise InputError(f"HLO sharding: <=[{dims_text}] names {prod(dims)} devices; there are {devices}")
    perm = _numbers(perm_text) if perm_text else tuple(range(len(dims)))
    if sorted(perm) != list(range(len(dims))):
        raise InputError(f"T({perm_text}) is not a permutation of the {len(dims)} dimensions of <=[{dims_text}]")
    strides = [prod(dims[i + 1 :]) for i in range(len(dims))]
    ids = [0]
    for axis in perm:
        ids = [base + step * strides[axis] for base in ids for step in range(dims[axis])]
    return tuple(ids)


def sharding_from_hlo(text: str, rank: int, mesh: Mesh) -> TensorSharding:
    """The closed sharding on `mesh` that puts the same tiles on the same devices.

    `ShardingError` where the tiles follow no (sub-)axes of the mesh.

    >>> str(sharding_from_hlo("{devices=[8,1,4]<=[32] last_tile_dim_replicate}", 2, Mesh.from_dict({"x": 8, "y": 4})))
    '[{"x"}, {}]'
    """
    tiles = parse_hlo_sharding(text, rank, mesh.size)
    ids = mesh.device_ids or tuple(range(mesh.size))
    position = {device: at for at, device in enumerate(ids)}
    refs = read_digits([position[d] for d in tiles.devices], tiles.tiles, mesh, text)
    dims = tuple(DimensionSharding(r) for r in refs[: tiles.rank])
    unreduced = [a for kind, r in zip(tiles.kinds, refs[tiles.rank :], strict=True) if kind == "unreduced" for a in r]
    return TensorSharding(None, dims, (), algebra.in_mesh_order(unreduced, mesh))


def mesh_from_hlo(text: str, rank: int, devices: int) -> tuple[Mesh, TensorSharding]:
    """A mesh made for this sharding, an axis for each tile dimension that is cut, and the sharding on it (S0.62)."""
    tiles = parse_hlo_sharding(text, rank, devices)
    used = [(i, n) for i, n in enumerate(tiles.tiles) if n > 1]
    ids = None if tiles.devices == tuple(range(devices)) else tiles.devices
    mesh = Mesh(tuple(f"axis_{k}" for k in range(len(used))), tuple(n for _, n in used), "mesh", ids)
    axis_of = {i: AxisRef(f"axis_{k}") for k, (i, _) in enumerate(used)}
    dims = tuple(DimensionSharding((axis_of[i],) if i in axis_of else ()) for i in range(tiles.rank))
    unreduced = tuple(
        axis_of[tiles.rank + k]
        for k, kind in enumerate(tiles.kinds)
        if kind == "unreduced" and tiles.rank + k in axis_of
    )
    return mesh, TensorSharding(None, dims, (), unreduced)


def sharding_to_hlo(sharding: TensorSharding, mesh: Mesh) -> str:
    """HLO text in the iota form, or with a device list where the mesh has its own order.

    >>> sharding_to_hlo(TensorSharding.from_text('[{"x"}, {}]'), Mesh.from_dict({"x": 8, "y": 4}))
    '{devices=[8,1,4]<=[32] last_tile_dim_replicate}'
    """
    atoms = refine(mesh, [sharding])
    layout = sharding.to_layout(atoms)
    order = [a for dim in layout.dims for a in dim] + list(layout.unreduced)
    rest = [a for a in range(len(atoms.atoms)) if a not in order]
    tiles = [atoms.size(d) for d in layout.dims]
    kinds: list[str] = []
    for label, extra in (("unreduced", list(layout.unreduced)), ("replicated", rest)):
        if atoms.size(extra) > 1:
            tiles.append(atoms.size(extra))
            kinds.append(label)
    if prod(tiles[: sharding.rank]) == 1 and "unreduced" not in kinds:
        return "{replicated}"
    tail = ""
    if kinds == ["replicated"]:
        tail = " last_tile_dim_replicate"
    elif kinds:
        tail = f" last_tile_dims={{{', '.join(kinds)}}}"
    shape = ",".join(map(str, tiles))
    dims, perm = _simplified(atoms.sizes, [*order, *rest])
    if mesh.device_ids is not None:
        positions = _iota(",".join(map(str, dims)), ",".join(map(str, perm)), mesh.size)
        return f"{{devices=[{shape}]{','.join(str(mesh.device_ids[p]) for p in positions)}{tail}}}"
    transpose = "" if perm == sorted(perm) else f"T({','.join(map(str, perm))})"
    return f"{{devices=[{shape}]<=[{','.join(map(str, dims))}]{transpose}{tail}}}"


def _simplified(sizes: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same reshape and transpose with fewer dimensions: neighbours that stay neighbours are merged, size 1 is
    dropped.
    """
    kept = [a for a in perm if sizes[a] > 1]
    rank = {a: i for i, a in enumerate(sorted(kept))}
    runs: list[list[int]] = []
    for a in kept:
        if runs and rank[a] == rank[runs[-1][-1]] + 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    by_position = sorted(runs)
    dims = [prod(sizes[a] for a in run) for run in by_position]
    order = [by_position.index(run) for run in runs]
    return (dims, order) if dims else ([1], [0])
