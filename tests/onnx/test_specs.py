"""Specs as data, as device-to-block maps, and as shardings over mesh axes."""

import random
from itertools import permutations, product
from pathlib import Path

import onnx
import pytest
from device_judge import blocks_of
from hand_made import ALL, COLUMNS, PAIRS, mlp, spec
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.errors import ShardingError
from autoshard.onnx import load, save
from autoshard.onnx.axes import lost, own_mesh, placement_of_sharding, sharding_of, spec_of_sharding
from autoshard.onnx.placement import Placement, canonical_cut, cut_blocks, device_blocks, placement_of, spec_of
from autoshard.onnx.specs import (
    NodeAnnotation,
    Part,
    ShardedDim,
    ShardingSpec,
    read_annotations,
    read_configurations,
    write_annotations,
    write_spec,
)
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

# S1.9, S1.10: a device entry that is a key of the map stands for the group
TABLE = [  # S1.12, with E36: devices 2 and 3 of the mixed case hold [[3, 4]]
    (spec("t", [0, 1], {0: 2}), {0: [[1, 2]], 1: [[3, 4]]}),
    (spec("t", [0, 1], {1: 2}), {0: [[1], [3]], 1: [[2], [4]]}),
    (spec("t", [0, 1, 2, 3], {0: 2, 1: 2}), {0: [[1]], 1: [[2]], 2: [[3]], 3: [[4]]}),  # S1.11
    (spec("t", [-1], {}, {-1: (0, 1)}), {0: [[1, 2], [3, 4]], 1: [[1, 2], [3, 4]]}),
    (spec("t", [-1, -2], {0: 2}, PAIRS), {0: [[1, 2]], 1: [[1, 2]], 2: [[3, 4]], 3: [[3, 4]]}),
    (spec("t", [5, 6], {0: 2}, {5: (0, 1), 6: (2, 3)}), {0: [[1, 2]], 1: [[1, 2]], 2: [[3, 4]], 3: [[3, 4]]}),
]
TENSOR = [[1, 2], [3, 4]]


def elements(intervals) -> list[int]:
    return [i for low, high in intervals for i in range(low, high)]


@pytest.mark.parametrize(("given", "holds"), TABLE, ids=[str(s) for s, _ in TABLE])
def test_what_each_device_holds(given: ShardingSpec, holds: dict) -> None:
    found = device_blocks(placement_of(given, (2, 2)), (2, 2))
    held = {d: [[TENSOR[i][j] for j in elements(c)] for i in elements(r)] for d, ((r, c),) in found.items()}
    assert held == holds


def test_axes_listed_out_of_order_are_enumerated_in_the_order_of_the_list() -> None:
    # S1.11: the first listed axis is outermost
    given = ShardingSpec("t", (0, 1, 2, 3), (), (ShardedDim(1, (Part(2),)), ShardedDim(0, (Part(2),))))
    assert placement_of(given, (2, 2)).holders == (1 << 0, 1 << 2, 1 << 1, 1 << 3)


def test_negative_axes_count_from_the_back() -> None:
    assert placement_of(spec("t", [0, 1], {-1: 2}), (2, 2)) == placement_of(spec("t", [0, 1], {1: 2}), (2, 2))


def test_several_plain_devices_without_a_cut_hold_all() -> None:
    assert placement_of(spec("t", [0, 3]), (2, 2)) == Placement((), (0b1001,))  # S1.13


@pytest.mark.parametrize(
    "parts", [[(2, 2), (3, 3)], [(2, 1), (4, 2)], [(4, 2), (3, 1)], [(2, 2), (3, 1), (4, 2)], [(5, 2), (2, 2)]]
)
def test_fused_axes_have_the_blocks_of_their_parts(parts: list) -> None:
    # S1.15, judged by the interpreter of the tests
    size = 1
    for n, _ in parts:
        size *= n
    given = ShardingSpec("t", (), (), (ShardedDim(0, tuple(Part(m, n) for n, m in parts)),))
    shards = given.shards
    message = onnx.ShardingSpecProto()
    write_spec(message, ShardingSpec("t", tuple(range(shards)), (), given.dims))
    judged = blocks_of(message, (size,))
    cut = canonical_cut(parts, size)
    assert [elements(b) for b in cut_blocks(cut, size)] == [list(judged[d][0][0]) for d in range(shards)]


@given(st.integers(1, 13), st.integers(1, 8))
def test_blocks_of_sizes_that_do_not_divide_are_rounded_up(size: int, shards: int) -> None:
    # S1.16, as S0.56
    local = -(-size // shards)
    expected = [list(range(min(i * local, size), min((i + 1) * local, size))) for i in range(shards)]
    cut = canonical_cut([(size, shards)], size)
    assert [elements(b) for b in cut_blocks(cut, size)] == (expected if shards > 1 else [list(range(size))])


# -- round trips (J4) --------------------------------------------------------------------------------------------------


@st.composite
def shardings(draw) -> tuple[Mesh, TensorSharding, tuple[int, ...]]:
    """Two to four axes of sizes 1, 2, 3, 6 (and 4), sub-axes among them, on a tensor of rank 1 to 3."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4))
    while len(sizes) > 2 and Mesh.from_dict({f"a{i}": n for i, n in enumerate(sizes)}).size > 72:
        sizes.pop()
    mesh = Mesh.from_dict({f"a{i}": n for i, n in enumerate(sizes)})
    pieces: list[str] = []
    for i, n in enumerate(sizes):
        how = draw(st.sampled_from(["whole", "major", "minor", "both", "none"]))
        factor = {4: 2, 6: draw(st.sampled_from([2, 3]))}.get(n)
        if how == "none" or n == 1:
            continue
        if how == "whole" or factor is None:
            pieces.append(f'"a{i}"')
            continue
        if how in ("major", "both"):
            pieces.append(f'"a{i}":(1){factor}')
        if how in ("minor", "both"):
            pieces.append(f'"a{i}":({factor}){n // factor}')
    pieces = draw(st.permutations(pieces))
    rank = draw(st.integers(1, 3))
    dims: list[list[str]] = [[] for _ in range(rank)]
    for piece in pieces:
        dims[draw(st.integers(0, rank - 1))].append(piece)
    text = "[" + ", ".join("{" + ", ".join(d) + "}" for d in dims) + "]"
    shape = tuple(draw(st.sampled_from([12, 72, 144, 5])) for _ in range(rank))
    return mesh, TensorSharding.from_text(text, mesh), shape


def blocks(placement: Placement, shape: tuple[int, ...]) -> dict:
    return {
        d: [tuple(tuple(elements(a)) for a in b) for b in held] for d, held in device_blocks(placement, shape).items()
    }


@settings(max_examples=100)
@given(shardings())
def test_a_sharding_over_axes_comes_back_with_the_same_blocks(case) -> None:
    # S1.41, S1.45
    mesh, sharding, shape = case
    placed = placement_of_sharding(sharding, mesh, shape)
    mine = {
        d: [tuple(tuple(range(a, b)) for a, b in block)] for d, block in sharding.device_blocks(mesh, shape).items()
    }
    assert blocks(placed, shape) == mine
    written = spec_of_sharding("t", sharding, mesh, shape)
    assert placement_of(written, shape) == placed
    back = sharding_of(placement_of(written, shape), mesh, len(shape))
    assert back.device_blocks(mesh, shape) == sharding.device_blocks(mesh, shape)
    own = own_mesh(placed, len(shape))  # S1.42
    there = own.sharding.device_blocks(own.mesh, shape)
    assert {own.devices[p]: b for p, b in there.items()} == sharding.device_blocks(mesh, shape)


@settings(max_examples=30)
@given(shardings())
def test_specs_are_written_plainly(case) -> None:
    mesh, sharding, shape = case
    written = spec_of_sharding("t", sharding, mesh, shape)
    assert [d.axis for d in written.dims] == sorted(d.axis or 0 for d in written.dims)
    assert [key for key, _ in written.groups] == [-1 - i for i in range(len(written.groups))]
    assert len(written.device) == written.shards  # S1.13
    assert spec_of(placement_of(written, shape), "t", shape) == written


def test_the_order_of_a_mesh_s_devices_does_not_count() -> None:
    plain, turned = Mesh.from_dict({"x": 4}), Mesh(("x",), (4,), "mesh", (3, 2, 1, 0))
    text = TensorSharding.from_text('[{"x"}]')
    assert spec_of_sharding("t", text, plain) == spec_of_sharding("t", text, turned)


@pytest.mark.parametrize(("sizes", "expressible"), [((2, 2), 2), ((2, 2, 2), 6)])
def test_how_many_device_orders_are_axes_of_a_mesh(sizes: tuple[int, ...], expressible: int) -> None:
    # S1.43: 2 of 24, 6 of 40320 (every order that has device 0 first and a power of two second, and a sample of others)
    mesh = Mesh.from_dict({f"a{i}": n for i, n in enumerate(sizes)})
    count = mesh.size
    rng = random.Random(0)
    orders = (
        list(permutations(range(count)))
        if count == 4
        else [tuple(rng.sample(range(count), count)) for _ in range(2000)]
    )
    if count == 8:
        bits = permutations((1, 2, 4))
        orders += [tuple(i * a + j * b + k * c for i, j, k in product((0, 1), repeat=3)) for a, b, c in bits]
    found = set()
    for order in orders:
        try:
            sharding_of(Placement((((count, count),),), tuple(1 << d for d in order)), mesh, 1)
        except ShardingError:
            continue
        found.add(order)
    assert len(found) == expressible


@pytest.mark.parametrize(("placed", "words"), [
    (placement_of(spec("t", [-1, 3], {0: 2}, {-1: (0, 1, 2)}), (4,)), "groups of unequal size"),
    (placement_of(spec("t", [-1, -2], {0: 2}, {-1: (0, 1), -2: (1, 2)}), (4,)), "holds two shards"),
    (placement_of(spec("t", [0, 0, 1, 1], {0: 4}), (4,)), "holds two shards"),
    (placement_of(spec("t", [0, 1], {0: 2}), (4,)), "some of the devices"),
    (placement_of(ShardingSpec("t", (0, 1, 2, 3), (), (ShardedDim(0, (Part(2, 4), Part(2, 2))),)), (8,)), "strided"),
])  # fmt: skip
def test_what_no_axes_can_say_is_refused(placed: Placement, words: str) -> None:
    # S1.44
    with pytest.raises(ShardingError, match=words):
        sharding_of(placed, Mesh.from_dict({"x": 2, "y": 2}), 1)


def test_a_fused_axis_whose_outer_part_is_split_completely_is_one_cut() -> None:
    given = ShardingSpec("t", (0, 1, 2, 3), (), (ShardedDim(0, (Part(2, 2), Part(2, 4))),))
    assert str(sharding_of(placement_of(given, (8,)), Mesh.from_dict({"x": 4}), 1)) == '[{"x"}]'


def test_what_a_spec_cannot_say_is_listed() -> None:
    # S1.41
    text = '[{"x", ?}p1] replicated={"y"} unreduced={"z"}'
    assert lost(TensorSharding.from_text(text)) == (
        "open dimensions",
        "priorities",
        "explicit replication",
        "pending partial sums",
    )


# -- messages ----------------------------------------------------------------------------------------------------------


@st.composite
def annotations(draw) -> NodeAnnotation:
    """Anything that fits the messages, sound or not."""
    number = st.none() | st.integers(-5, 2**40)
    part = st.builds(Part, number, st.none() | st.integers(-3, 2**40) | st.sampled_from(["n", "batch"]))
    dim = st.builds(ShardedDim, number, st.lists(part, max_size=3).map(tuple))
    device = st.lists(st.integers(-9, 99), max_size=4).map(tuple)
    group = st.tuples(number, device)
    one = st.builds(
        ShardingSpec,
        st.none() | st.sampled_from(["", "x"]),
        device,
        st.lists(group, max_size=2).map(tuple),
        st.lists(dim, max_size=2).map(tuple),
    )
    stage = st.none() | st.integers(-3, 9)
    return draw(
        st.builds(
            NodeAnnotation, st.none() | st.sampled_from(["", "mesh"]), st.lists(one, max_size=3).map(tuple), stage
        )
    )


@settings(max_examples=40)
@given(st.lists(annotations(), max_size=2).map(tuple))
def test_annotations_come_back_from_messages_field_by_field(given: tuple[NodeAnnotation, ...]) -> None:
    # S1.9: also what is missing stays missing; S1.17: the stage is one of the fields
    node = onnx.NodeProto()
    write_annotations(node, given)
    assert read_annotations(node) == given
    back = onnx.NodeProto()
    back.ParseFromString(node.SerializeToString())
    assert read_annotations(back) == given


@pytest.mark.parametrize("suffix", ["onnx", "json", "textproto"])
def test_annotations_survive_every_form_of_file(suffix: str, tmp_path: Path) -> None:
    model = mlp(more={1: [spec("u", [-1], {}, ALL), spec("r", [-1, -2], {0: 2}, COLUMNS)]})
    save(model, tmp_path / f"m.{suffix}")
    back = load(tmp_path / f"m.{suffix}").proto
    assert read_configurations(back) == read_configurations(model)
    assert [read_annotations(n) for n in back.graph.node] == [read_annotations(n) for n in model.graph.node]
