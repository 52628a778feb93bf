"""Every invariant of a sharding: the fault is found and named, its well-formed twin passes (parts B to E)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.invariants import divisibility_violations
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

MESH = Mesh.from_dict({"x": 2, "y": 8, "z": 2, "s": 6, "q": 4})

# (id, sharding at fault, twin without the fault, shape, what the message says)
FAULTS = [
    ("S0.36", "[{x}]", "[{x}, {}]", (4, 8), "has 1 dimensions but the tensor has rank 2"),
    ("S0.36", "[{}, {}, {}]", "[{}, {}]", (4, 8), "has 3 dimensions but the tensor has rank 2"),
    ("S0.40", "[{}]", "[] replicated={x}", (), "has 1 dimensions but the tensor has rank 0"),
    ("S0.37", "[{w}, {}]", "[{x}, {}]", (4, 8), 'names axis "w"'),
    ("S0.37", "[{}, {}] replicated={w}", "[{}, {}] replicated={x}", (4, 8), 'replicated axes names axis "w"'),
    ("S0.37", "[{}, {}] unreduced={w}", "[{}, {}] unreduced={x}", (4, 8), 'unreduced axes names axis "w"'),
    ("S0.38", "[{x}, {x}]", "[{x}, {y}]", (4, 8), 'axis "x" is used twice, in dimension 0 and dimension 1'),
    ("S0.38", "[{x, x}, {}]", "[{x, z}, {}]", (4, 8), 'axis "x" is used twice, in dimension 0'),
    ("S0.38", "[{x}, {}] replicated={x}", "[{x}, {}] replicated={y}", (4, 8), "dimension 0 and replicated axes"),
    ("S0.38", "[{x}, {}] unreduced={x}", "[{x}, {}] unreduced={y}", (4, 8), "dimension 0 and unreduced axes"),
    ("S0.18", '[{"q":(2)4}, {}]', '[{"q":(2)2}, {}]', (4, 8), "does not divide the size 4"),
    ("S0.18", '[{"q":(1)3}, {}]', '[{"q":(1)2}, {}]', (4, 8), "does not divide the size 4"),
    ("S0.18", '[{"y":(4)4}, {}]', '[{"y":(4)2}, {}]', (4, 8), "does not divide the size 8"),
    ("S0.19", '[{"q":(1)4}, {}]', "[{q}, {}]", (4, 8), "is the whole axis"),
    ("S0.24", '[{"y":(1)4}, {"y":(2)4}]', '[{"y":(1)4}, {"y":(4)2}]', (4, 8), "overlap"),
    ("S0.25", '[{"s":(1)2}, {"s":(3)2}]', '[{"s":(1)3}, {"s":(3)2}]', (4, 8), "cannot coexist"),
    ("S0.25", '[{"s":(3)2}, {}] replicated={"s":(1)2}', '[{"s":(3)2}, {}]', (4, 8), "cannot coexist"),
    ("S0.26", '[{y}, {"y":(2)2}]', '[{"y":(1)2}, {"y":(2)2}]', (8, 8), "sub-axis and the whole axis"),
    ("S0.26", '[{y}, {}] replicated={"y":(2)2}', "[{y}, {}]", (8, 8), "sub-axis and the whole axis"),
    ("S0.27", '[{"y":(1)2, "y":(2)2}, {}]', '[{"y":(1)4}, {}]', (4, 8), 'must be written as one, "y":\\(1\\)4'),
    ("S0.27", '[{"y":(1)2, "y":(2)4}, {}]', "[{y}, {}]", (8, 8), 'must be written as one, "y"$'),
    ("S0.28", '[{}] replicated={"y":(1)2, "y":(2)2}', '[{}] replicated={"y":(1)4}', (4,), "written as one"),
    ("S0.44", None, None, (4, 8), "negative priority"),
    ("S0.46", "[{}p1, {}]", "[{?}p1, {}]", (4, 8), "empty and closed"),
    ("S0.54", "[{x}]", "[{}]", (1,), "cannot be sharded"),
    ("S0.54", "[{q, x}]", "[{x, q}]", (4,), "leave nothing"),
    ("S0.54", "[{q, x, z}]", "[{x, z, q}]", (5,), "leave nothing"),
]


@pytest.mark.parametrize(("name", "wrong", "right", "shape", "message"), [f for f in FAULTS if f[1]])
def test_a_fault_is_named_and_its_twin_passes(name: str, wrong: str, right: str, shape: tuple, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        TensorSharding.from_text(wrong).validate(MESH, shape)
    TensorSharding.from_text(right).validate(MESH, shape)


def test_a_negative_priority_is_refused() -> None:  # S0.44
    wrong = TensorSharding(None, (DimensionSharding((AxisRef("x"),), False, -1),))
    assert "negative priority" in wrong.violations(MESH, (4,))[0]


def test_axes_out_of_mesh_order_are_named_with_the_right_order() -> None:  # S0.11
    found = TensorSharding.from_text("[{}] replicated={z, x}").violations(MESH, (4,))
    assert found == ('tensor: replicated axes are not in the order of mesh @mesh; write replicated={"x", "z"}',)


def test_every_fault_gets_its_own_message() -> None:  # S0.41, S0.55
    mesh = Mesh.from_dict({"x": 2, "y": 4, "z": 2})
    found = TensorSharding.from_text("[{x}, {y, z}]").violations(mesh, (1, 4), what="weights")
    assert len(found) == 2
    assert found[0].startswith("weights: dimension 0 has size 1")
    assert found[1].startswith("weights: dimension 1 has size 4")


def test_users_write_whole_axes_only() -> None:  # S0.31
    sharding = TensorSharding.from_text('[{"y":(1)2}]')
    sharding.validate(MESH, (4,))
    with pytest.raises(ShardingError, match="Refine the mesh instead"):
        sharding.validate(MESH, (4,), full_axes_only=True)


@pytest.mark.parametrize("text", ['[{"y":(2)4, "y":(1)2}]', '[{"y":(4)2, "y":(1)2}]'])
def test_sub_axes_in_reverse_order_are_legal(text: str) -> None:  # S0.29
    TensorSharding.from_text(text).validate(MESH, (8,))


def test_consecutive_sub_axes_on_two_dimensions_stay_apart() -> None:  # S0.30
    TensorSharding.from_text('[{"y":(1)2}, {"y":(2)4}]').validate(MESH, (8, 8))


def test_an_unused_sub_axis_need_not_be_mentioned() -> None:  # S0.21, S0.22
    TensorSharding.from_text('[{x}, {"y":(2)2}]').validate(MESH, (4, 8))
    TensorSharding.from_text('[{x}, {"y":(2)2}] replicated={"y":(1)2}').validate(MESH, (4, 8))


VALID = [(7, [8]), (3, [2]), (8, [3]), (4, [4]), (4, [2, 2]), (4, [2, 4]), (5, [2, 2, 2]), (5, [4, 2])]
INVALID = [(1, [2]), (4, [4, 2]), (3, [4, 2]), (5, [4, 2, 2])]


@pytest.mark.parametrize(("size", "parts", "ok"), [(*c, True) for c in VALID] + [(*c, False) for c in INVALID])
def test_padding_may_not_leave_an_axis_without_work(size: int, parts: list[int], ok: bool) -> None:  # S0.53, S0.54
    mesh = Mesh(tuple(f"a{i}" for i in range(len(parts))), tuple(parts))
    assert (divisibility_violations(size, [AxisRef(a) for a in mesh.axis_names], mesh) == ()) is ok


@given(st.integers(0, 9), st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_without_the_axes_that_are_to_be_dropped_a_dimension_is_cut_soundly(size: int, parts: list[int]) -> None:
    mesh = Mesh.from_dict({f"a{k}": n for k, n in enumerate(parts)})
    axes = [AxisRef(name) for name in mesh.axis_names]
    for told in divisibility_violations(size, axes, mesh):
        dropped = told.rpartition("; drop ")[2].split(", ")
        kept = [axis for axis in axes if str(axis) not in dropped]
        assert divisibility_violations(size, kept, mesh) == ()
        assert divisibility_violations(size, axes[: len(kept) + 1], mesh)


def test_of_a_dimension_without_elements_no_axis_has_anything_to_split() -> None:
    mesh = Mesh.from_dict({"x": 2, "y": 4})
    (told,) = divisibility_violations(0, [AxisRef("x"), AxisRef("y")], mesh)
    assert told.endswith('there is nothing for "x", "y" to split; drop "x", "y"')
