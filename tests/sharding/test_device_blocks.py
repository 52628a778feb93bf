"""What a sharding means: blocks of devices, local shapes, equivalence across meshes (parts A, B, E, F)."""

from itertools import permutations
from math import ceil, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.errors import ShardingError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.refine import refine, refined_mesh
from autoshard.sharding.tensor_sharding import TensorSharding

XY = Mesh.from_dict({"x": 2, "y": 2})


def blocks(text: str, mesh: Mesh, shape: tuple[int, ...]) -> dict:
    return TensorSharding.from_text(text).device_blocks(mesh, shape)


FIGURE = {  # S0.5: rows and columns of [[a, b], [c, d]] on each of four devices
    "[{}, {}]": [((0, 2), (0, 2))] * 4,
    "[{x}, {}]": [((0, 1), (0, 2))] * 2 + [((1, 2), (0, 2))] * 2,
    "[{}, {y}]": [((0, 2), (0, 1)), ((0, 2), (1, 2))] * 2,
    "[{x}, {y}]": [((0, 1), (0, 1)), ((0, 1), (1, 2)), ((1, 2), (0, 1)), ((1, 2), (1, 2))],
}


@pytest.mark.parametrize("text", FIGURE)
def test_the_blocks_of_the_figure(text: str) -> None:
    assert list(blocks(text, XY, (2, 2)).values()) == FIGURE[text]


LOCAL = [  # S0.6
    ({"x": 2, "y": 4, "z": 2}, (4, 8), "[{x}, {z,y}]", (2, 1)),
    ({"x": 2, "y": 4, "z": 2}, (4, 8), "[{x}, {?}] replicated={y}", (2, 8)),
    ({"x": 2, "y": 8, "z": 2}, (4, 8), "[{x}, {y:(2)2}]", (2, 4)),
    ({"x": 4, "y": 2}, (4, 4), "[{x}, {y}]", (1, 2)),
    ({"x": 8, "y": 2, "z": 3}, (7, 3, 8), "[{x}, {y}, {z}]", (1, 2, 3)),
    ({"x": 2, "y": 4, "z": 2, "w": 2}, (4, 8), "[{w,x}, {}]", (1, 8)),
    ({"x": 2, "y": 4, "z": 2, "w": 2}, (4, 8), "[{w}, {x,?}] replicated={y}", (2, 4)),
    ({"x": 2, "y": 4, "z": 2}, (4, 8), "[{x}p1, {z}p0]", (2, 4)),
    ({"x": 2, "y": 4, "z": 2}, (4, 8), "[{y}p0, {z}p0]", (1, 4)),
    ({"x": 8, "y": 4}, (8, 8), "[{x}, {}]", (1, 8)),
    ({"x": 2, "y": 2}, (8, 8), "[{x}, {}]", (4, 8)),
    ({"x": 2, "y": 2}, (8, 16), "[{}, {y}]", (8, 8)),
    ({"x": 2, "y": 2}, (8, 2), "[{x}, {y}]", (4, 1)),
]


@pytest.mark.parametrize(("mesh", "shape", "text", "local"), LOCAL)
def test_local_shapes(mesh: dict, shape: tuple, text: str, local: tuple) -> None:
    assert TensorSharding.from_text(text).local_shape(Mesh.from_dict(mesh), shape) == local


def test_the_order_of_axes_changes_the_layout() -> None:  # S0.3
    mesh = Mesh.from_dict({"y": 2, "z": 4})
    assert blocks("[{z,y}]", mesh, (8,)) != blocks("[{y,z}]", mesh, (8,))


def test_reverse_sub_axes_give_another_order_of_blocks() -> None:  # S0.29
    mesh = Mesh.from_dict({"x": 8})
    assert blocks('[{"x":(2)4,"x":(1)2}]', mesh, (8,)) != blocks("[{x}]", mesh, (8,))


def test_marks_do_not_change_the_blocks() -> None:  # S0.13
    plain = blocks("[{x}, {}]", XY, (4, 4))
    assert blocks("[{x}p3, {}]", XY, (4, 4)) == plain == blocks("[{x, ?}, {?}] replicated={y}", XY, (4, 4))


def test_reading_a_sharding_aloud() -> None:  # S2.1
    mesh = Mesh.from_dict({"x": 2, "y": 4, "z": 2, "w": 2})
    found = blocks("[{w,x}, {}]", mesh, (4, 8))
    assert {b[1] for b in found.values()} == {(0, 8)}
    for device, block in found.items():
        x, w = device // 16, device % 2
        assert block[0] == (2 * w + x, 2 * w + x + 1)  # first by w, then by x; y and z do not matter


@pytest.mark.parametrize(("pre", "bit"), [(1, 2), (2, 1), (4, 0)])
def test_the_index_along_a_sub_axis_is_a_digit_of_the_coordinate(pre: int, bit: int) -> None:  # S0.20
    mesh = Mesh.from_dict({"y": 8})
    assert [algebra.coordinate(AxisRef("y", pre, 2), mesh, d) for d in range(8)] == [(d >> bit) & 1 for d in range(8)]


def test_reshapes_keep_every_flat_element_on_its_device() -> None:  # S0.33, S2.3
    mesh = Mesh.from_dict({"x": 8})
    chain = [
        ((16,), "[{x}]"),
        ((4, 4), "[{x:(1)4}, {x:(4)2}]"),
        ((2, 2, 4), "[{x:(1)2}, {x:(2)2}, {x:(4)2}]"),
    ]

    def flat(shape: tuple[int, ...], text: str) -> list[set[int]]:
        out = []
        for block in blocks(text, mesh, shape).values():
            cells = [0]
            for (start, stop), size in zip(block, shape, strict=True):
                cells = [c * size + i for c in cells for i in range(start, stop)]
            out.append(set(cells))
        return out

    first = flat(*chain[0])
    assert all(flat(*link) == first for link in chain)


def test_shards_of_five_by_four_are_two_two_one_and_none() -> None:  # S0.56
    found = blocks("[{x}]", Mesh.from_dict({"x": 4}), (5,))
    assert [stop - start for ((start, stop),) in found.values()] == [2, 2, 1, 0]


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 12))
def test_padding_by_stages_is_padding_at_once(d: int, a: int, b: int) -> None:  # S0.57
    assert ceil(ceil(d / a) / b) == ceil(d / (a * b))


def test_a_mesh_of_one_axis_can_say_the_same_with_sub_axes() -> None:  # S0.34
    two, one = Mesh.from_dict({"x": 4, "y": 2}), Mesh.from_dict({"devices": 8})
    a = TensorSharding.from_text("[{x}, {y}]")
    b = TensorSharding.from_text("[{devices:(1)4}, {devices:(4)2}]")
    assert a.is_equivalent(two, b, one, (4, 4))
    assert not a.is_equivalent(two, TensorSharding.from_text("[{devices}, {}]"), one, (8, 4))


def test_equivalent_axes_of_two_meshes() -> None:  # S0.59, S0.61, S0.65
    ab, xyz = Mesh.from_dict({"a": 4, "b": 2}), Mesh.from_dict({"x": 2, "y": 2, "z": 2})
    for left, right in (("[{b}]", "[{z}]"), ("[{a}]", "[{x,y}]")):
        one, two = TensorSharding.from_text(left), TensorSharding.from_text(right)
        assert one.is_equivalent(ab, two, xyz, (8,))


def test_a_device_order_of_its_own() -> None:  # S0.62
    mesh = Mesh(("axis_0", "axis_1"), (4, 2), "mesh", (7, 6, 5, 4, 3, 2, 1, 0))
    found = blocks("[{axis_0}, {axis_1}]", mesh, (4, 2))
    assert found[7] == ((0, 1), (0, 1))
    assert found[0] == ((3, 4), (1, 2))


def test_partial_sums_over_different_axes_are_not_equivalent() -> None:
    a, b = TensorSharding.from_text("[{}] unreduced={x}"), TensorSharding.from_text("[{}] unreduced={y}")
    assert not a.is_equivalent(XY, b, XY, (4,))
    assert a.is_equivalent(XY, a, XY, (4,))


SIZES = st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3)


@given(SIZES, st.data())
def test_splitting_an_axis_changes_no_sharding_of_whole_axes(parts: list[int], data: st.DataObject) -> None:  # S0.35
    mesh = Mesh.from_dict({"x": prod(parts), "y": 2})
    atoms = AtomMesh.split(mesh, {"x": parts})
    fine = refined_mesh(atoms)
    order = data.draw(st.sampled_from(list(permutations(["x", "y"]))))
    sharding = TensorSharding.from_text(f"[{{{order[0]}}}, {{{order[1]}}}]")
    layout = sharding.to_layout(atoms)
    named = TensorSharding.from_layout(layout, AtomMesh.split(fine))
    shape = (24, 24)
    assert sharding.is_equivalent(mesh, named, fine, shape)
    assert TensorSharding.from_layout(layout, atoms) == sharding


def test_layouts_and_shardings_are_two_forms_of_one_thing() -> None:
    atoms = refine(XY, [TensorSharding.from_text("[{x}, {y}]")])
    layout = Layout(((0,), ()), (1,))
    assert str(TensorSharding.from_layout(layout, atoms)) == '[{"x"}, {}] unreduced={"y"}'
    assert TensorSharding.from_layout(layout, atoms).to_layout(atoms) == layout


def test_a_sub_axis_that_falls_on_no_atom_is_refused() -> None:
    with pytest.raises(ShardingError, match="does not fall on"):
        TensorSharding.from_text("[{x:(1)2}]").to_layout(AtomMesh.split(Mesh.from_dict({"x": 6}), {"x": (3, 2)}))


def test_refining_splits_no_more_than_needed() -> None:
    mesh = Mesh.from_dict({"x": 16, "y": 4})
    assert refine(mesh, [TensorSharding.from_text("[{x:(2)4}]")]).names == ("x:(1)2", "x:(2)4", "x:(8)2", "y")
    with pytest.raises(ShardingError, match="no factorisation"):
        refine(Mesh.from_dict({"x": 6}), [TensorSharding.from_text(t) for t in ("[{x:(1)2}]", "[{x:(1)3}]")])


SUB = st.sampled_from(
    [(n, m, k) for n in (4, 6, 8, 12) for m in range(1, n + 1) for k in range(2, n + 1) if n % (m * k) == 0]
)


@given(SUB, SUB)
def test_coexistence_means_a_common_factorisation(a: tuple, b: tuple) -> None:  # S0.15, S0.24, S0.25
    if a[0] != b[0]:
        return
    n = a[0]
    mesh = Mesh.from_dict({"x": n})
    one, two = (AxisRef("x", m, k) if k < n else AxisRef("x") for _, m, k in (a, b))

    def chains(left: int, low: int) -> list[list[int]]:
        return (
            [[low]]
            if left == 1
            else [[low, *c] for f in range(2, left + 1) if left % f == 0 for c in chains(left // f, low * f)]
        )

    spans = [algebra.span(r, mesh) for r in (one, two)]
    held = any(all(low in c and high in c for low, high in spans) for c in chains(n, 1))
    disjoint = not algebra.overlap(one, two, mesh)
    assert algebra.can_coexist(one, two, mesh) is (held and disjoint)


def test_device_ids_fill_the_mesh_row_by_row() -> None:  # S0.1
    grid = [[algebra.coordinate(AxisRef(a), XY, d) for a in ("x", "y")] for d in range(4)]
    assert grid == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_axes_that_shard_nothing_replicate() -> None:  # S0.4
    found = blocks("[{}, {y}]", XY, (2, 2))
    assert found[0] == found[2]
    assert found[1] == found[3]
