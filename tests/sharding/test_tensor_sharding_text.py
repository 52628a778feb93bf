"""The text form of shardings: what is read, what is printed, what is refused (S0.11, S0.12, S0.14, S0.23, S0.43)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding, bound_mesh

MESH = Mesh.from_dict({"x": 2, "y": 8, "z": 2})


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("[]", "[]"),
        ("[{}]", "[{}]"),
        ("[{?}]", "[{?}]"),
        ("[{x},{y, ?}]", '[{"x"}, {"y", ?}]'),
        ('[{"x"}p1, {"z", ?}p2] replicated={"y"}', '[{"x"}p1, {"z", ?}p2] replicated={"y"}'),
        ('<@mesh, [{"x"}p1, {"z", ?}p2], replicated={"y"}>', '<@mesh, [{"x"}p1, {"z", ?}p2], replicated={"y"}>'),
        ('#sdy.sharding<@mesh, [{"x"}]>', '<@mesh, [{"x"}]>'),
        ('[{"y":(2)2}]', '[{"y":(2)2}]'),
        ("[{}] unreduced={z}", '[{}] unreduced={"z"}'),
        ("[{}] unreduced{z}", '[{}] unreduced={"z"}'),  # as the Shardy of JAX 0.12 reads it, too
        ("[{}] unreduced=sum{z}", '[{}] unreduced={"z"}'),
        ('[{}], replicated={"x"}, unreduced={"z"}', '[{}] replicated={"x"} unreduced={"z"}'),
        ("[{?}p0]", "[{?}p0]"),
    ],
)
def test_both_notations_are_read_and_one_is_printed(written: str, canonical: str) -> None:
    assert str(TensorSharding.from_text(written)) == canonical


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ('[{}] replicated={"z","x"}', '[{}] replicated={"x", "z"}'),  # S0.11
        ('[{}] replicated={"y":(4)2,"x","y":(1)2}', '[{}] replicated={"x", "y":(1)2, "y":(4)2}'),  # S0.23
    ],
)
def test_replicated_axes_come_out_in_mesh_order(written: str, printed: str) -> None:
    assert str(TensorSharding.from_text(written, MESH)) == printed


def test_the_order_of_replicated_axes_carries_no_meaning() -> None:  # S0.12
    one = TensorSharding.from_text("[{}] replicated={x, z}", MESH)
    assert one == TensorSharding.from_text("[{}] replicated={z, x}", MESH)


def test_a_missing_priority_counts_as_zero() -> None:  # S0.43
    dims = TensorSharding.from_text('[{"x"}p1, {"y"}, {"z",?}p2]').dims
    assert [d.effective_priority for d in dims] == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{x}", "expected"),
        ("{x}", "expected '\\['"),
        ("[{x}p-1]", "p-1"),
        ("[{x}q1]", "priority"),
        ("[{x}] replicated={y}p1", "replicated"),  # S0.42
        ("[{?, x}]", "expected '}'"),
        ("[{x y}]", "expected ','"),
        ("[{,}]", "axis name"),
        ("<@mesh [{x}]>", "expected ','"),
        ("<[{x}]>", "mesh name"),
        ("[{x}] replicated={y} replicated={z}", "at most once"),
        ("[{x}] owned={y}", "replicated"),
        ('[{"x":(0)2}]', "pre-size must be at least 1"),  # S0.16
        ('[{"x":(2)1}]', "greater than 1"),  # S0.17
        ("[{x}] trailing", "replicated"),
        ("[{x};]", "unexpected character"),
        (f'[{{"x":(1){"2" * 5000}}}]', "a number of 5000 digits"),
        (f"[{{x}}p{'1' * 5000}]", "a number of 5000 digits"),
    ],
)
def test_malformed_text_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        TensorSharding.from_text(text)


def test_a_sharding_bound_to_another_mesh_is_refused() -> None:  # S0.2
    with pytest.raises(ShardingError, match="@other"):
        TensorSharding.from_text("<@other, [{x}]>", MESH)


def test_an_undeclared_mesh_is_named() -> None:  # S0.39
    with pytest.raises(ShardingError, match="unknown mesh @other; the meshes are: @mesh"):
        bound_mesh(TensorSharding.from_text("<@other, [{x}]>"), {"mesh": MESH})


AXES = st.one_of(
    st.sampled_from(["a", "batch", "x_1"]).map(AxisRef),
    st.builds(AxisRef, st.sampled_from(["a", "b"]), st.integers(1, 8), st.integers(2, 8)),
)
DIMS = st.builds(DimensionSharding, st.lists(AXES, max_size=3).map(tuple), st.booleans(), st.none() | st.integers(0, 9))
SHARDINGS = st.builds(
    TensorSharding,
    st.none() | st.sampled_from(["mesh", "mesh_2"]),
    st.lists(DIMS, max_size=4).map(tuple),
    st.lists(AXES, max_size=2).map(tuple),
    st.lists(AXES, max_size=2).map(tuple),
)


@given(SHARDINGS)
def test_what_is_printed_is_read_back_the_same(sharding: TensorSharding) -> None:  # S0.14
    assert TensorSharding.from_text(str(sharding)) == sharding
