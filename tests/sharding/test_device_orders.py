"""Shardings on other meshes over the same devices, judged by what every device holds (S0.60, S2.59)."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.device_orders import moved_atoms, same_grid, translate
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

GRIDS = ((8,), (2, 4), (4, 2), (2, 2, 2), (6,), (2, 3), (3, 2), (12,), (3, 4), (2, 6), (2, 3, 2))


def blocks(sharding: TensorSharding, mesh: Mesh, moves: tuple[int, ...] = ()) -> dict[int, tuple[int, ...]]:
    """device -> number of its block along each dimension; `moves` by positions of the mesh."""
    ids = mesh.device_ids or tuple(range(mesh.size))
    out = {}
    for position in range(mesh.size):
        digits, left = {}, position
        for name, size in zip(reversed(mesh.axis_names), reversed(mesh.axis_sizes), strict=True):
            digits[name] = left % size
            left //= size
        found = []
        for dim in sharding.dims:
            number = 0
            for ref in dim.axes:
                full, size = mesh.axis_size(ref.name), mesh.ref_size(ref)
                below = full // ((ref.pre_size or 1) * size)
                number = number * size + digits[ref.name] // below % size
            found.append(number)
        out[ids[moves[position] if moves else position]] = tuple(found)
    return out


@st.composite
def meshes(draw: st.DrawFn) -> tuple[Mesh, Mesh]:
    first = draw(st.sampled_from(GRIDS))
    second = draw(st.sampled_from([g for g in GRIDS if prod(g) == prod(first)]))
    found = []
    for name, grid in (("ab", first), ("xyz", second)):
        ids = draw(st.sampled_from(["iota", "reversed", "any", "transposed"]))
        order = list(range(prod(grid)))
        if ids == "reversed":
            order.reverse()
        if ids == "any":
            order = draw(st.permutations(order))
        if ids == "transposed":
            order = [k for start in range(grid[-1]) for k in range(start, prod(grid), grid[-1])]
        names = tuple(f"{name[0]}{k}" for k in range(len(grid)))
        found.append(Mesh(names, grid, "mesh", None if ids == "iota" else tuple(order)))
    return found[0], found[1]


@given(meshes(), st.data())
@settings(max_examples=300, deadline=None)
def test_every_device_holds_the_block_that_the_other_mesh_gives_it(
    pair: tuple[Mesh, Mesh], data: st.DataObject
) -> None:
    other, mesh = pair
    names = data.draw(st.permutations(other.axis_names))
    cut = data.draw(st.integers(0, len(names)))
    split = data.draw(st.integers(0, cut))
    dims = tuple(DimensionSharding(tuple(AxisRef(n) for n in part)) for part in (names[:split], names[split:cut]))
    sharding = TensorSharding(None, dims)
    try:
        found = translate(sharding, other, mesh)
    except ShardingError:
        # neither order is a reading of the other, and the grids have no common refinement
        assert any(a % b and b % a for a in _bounds(other) for b in _bounds(mesh))
        return
    assert blocks(found.sharding, mesh, found.moves) == blocks(sharding, other)
    assert not found.moves or found.moves != tuple(range(mesh.size))


def _bounds(mesh: Mesh) -> list[int]:
    return [prod(mesh.axis_sizes[k:]) for k in range(len(mesh.axis_sizes) + 1)]


def test_open_dimensions_stay_open_where_no_block_moves() -> None:
    sharding = TensorSharding.from_text('[{"a"}, {?}]')
    mesh = Mesh.from_dict({"x": 2, "y": 4})
    assert str(translate(sharding, Mesh.from_dict({"a": 8}), mesh).sharding) == '[{"x", "y"}, {?}]'
    turned = Mesh(("a",), (8,), "mesh", tuple(range(7, -1, -1)))
    assert str(translate(sharding, turned, mesh).sharding) == '[{"x", "y"}, {}]'


def test_a_partial_sum_is_over_the_same_devices() -> None:
    sharding = TensorSharding.from_text('[{}] unreduced={"a"}')
    mesh = Mesh.from_dict({"x": 2, "y": 4})
    found = translate(sharding, Mesh.from_dict({"b": 4, "a": 2}), mesh)
    assert (str(found.sharding), found.moves) == ('[{}] unreduced={"y":(2)2}', ())


def test_copies_that_need_not_move_stay() -> None:
    """Turned round, the rows of a 2x4 grid are other devices; the columns are the same ones, mirrored."""
    turned = Mesh(("x", "y"), (2, 4), "mesh", tuple(range(7, -1, -1)))
    mesh = Mesh.from_dict({"x": 2, "y": 4})
    found = translate(TensorSharding.from_text('[{"y"}]'), turned, mesh)
    assert found.moves == (3, 2, 1, 0, 7, 6, 5, 4)
    assert moved_atoms(found.moves, AtomMesh.split(mesh)) == (1,)
    assert translate(TensorSharding.from_text("[{}]"), turned, mesh).moves == ()


def test_grids_without_a_common_refinement_are_refused() -> None:
    with pytest.raises(ShardingError, match=r"cuts the devices otherwise than any parts of the plan's mesh"):
        translate(
            TensorSharding.from_text('[{"a"}]'), Mesh.from_dict({"a": 3, "b": 2}), Mesh.from_dict({"x": 2, "y": 3})
        )
    with pytest.raises(ShardingError, match="has 4 devices, the plan's mesh"):
        translate(TensorSharding.from_text('[{"a"}]'), Mesh.from_dict({"a": 4}), Mesh.from_dict({"x": 8}))


@pytest.mark.parametrize("ids", [None, (3, 1, 2, 0)])
def test_meshes_are_read_back_from_their_text(ids: tuple[int, ...] | None) -> None:
    mesh = Mesh(("data", "model"), (2, 2), "mesh", ids)
    assert Mesh.from_text(str(mesh)) == mesh
    assert same_grid(mesh, Mesh(("data", "model"), (2, 2), "other", ids or (0, 1, 2, 3)))


@pytest.mark.parametrize(
    "text",
    ["data=2", '<["x"=-2, "y"=4]>', '<["x"=2 "y"=4]>', '<["x"=2, y=4]>', f'<["x"={"9" * 5000}]>', '<["x"=2]>\n'],
)
def test_what_is_no_mesh_is_not_read_in_part(text: str) -> None:
    with pytest.raises(ShardingError, match="is no mesh"):
        Mesh.from_text(text)
