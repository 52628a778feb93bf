"""Reshards: every path leads where it should, costs what its steps cost, and no sequence of steps is cheaper."""

import numpy as np
import pytest
from every_choice import Reshards, every_layout
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import atoms, machine, steps_of

from autoshard.costs.exposure import Exposure
from autoshard.costs.pricing import StepPrices
from autoshard.costs.reshard import ReshardTable, ReshardTables
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout

MATRIX = TensorType((1024, 512), "float32")
_tables: dict[object, ReshardTable] = {}


def table(
    axes: dict[str, int], type_: TensorType = MATRIX, partial: tuple[int, ...] = (), profile: str = "tpu_v5e"
) -> ReshardTable:
    key = (tuple(axes.items()), type_, partial, profile)
    if key not in _tables:
        mesh = atoms(axes)
        prices = StepPrices(machine(axes, profile), mesh)
        _tables[key] = ReshardTables(mesh, prices, Exposure(prices.machine)).table(
            type_, every_layout(type_.shape, mesh, partial)
        )
    return _tables[key]


def cost(found: ReshardTable, source: Layout, target: Layout) -> float:
    return float(found.seconds[found.index[source], found.index[target]])


def recipe(axes: dict[str, int], source: Layout, target: Layout, type_: TensorType = MATRIX) -> list[str]:
    partial = tuple(sorted({*source.unreduced, *target.unreduced}))
    return steps_of(table(axes, type_, partial).path(source, target))


# -- laws ----------------------------------------------------------------------------------------------------------

MESHES = ({"x": 4}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2})


@st.composite
def two_layouts(draw: st.DrawFn) -> tuple[ReshardTable, AtomMesh, Layout, Layout, Layout]:
    axes = draw(st.sampled_from(MESHES))
    partial = draw(st.sampled_from([(), (0,), tuple(range(len(axes)))]))
    found = table(axes, partial=partial)
    layouts = st.sampled_from(found.layouts)
    return found, atoms(axes), draw(layouts), draw(layouts), draw(layouts)


@given(two_layouts())
@settings(max_examples=200)
def test_a_path_replays_to_its_target_and_costs_the_sum_of_its_steps(
    drawn: tuple[ReshardTable, AtomMesh, Layout, Layout, Layout],
) -> None:
    found, mesh, source, target, _ = drawn
    path = found.path(source, target)
    path.check()
    assert (path.source, path.target) == (source, target)
    prices = StepPrices(machine(dict(zip(mesh.mesh.axis_names, mesh.mesh.axis_sizes, strict=True))), mesh)
    total, layout = 0.0, source
    for step in path.steps:
        after = step.apply(layout)
        sizes = [float(np.prod(lay.local_shape(MATRIX.shape, mesh))) * 4 for lay in (layout, after)]
        total += prices.step_s(step.kind, step.atoms, *sizes)
        layout = after
    assert cost(found, source, target) == pytest.approx(total, rel=1e-12)


@given(two_layouts())
@settings(max_examples=200)
def test_a_detour_is_never_cheaper(drawn: tuple[ReshardTable, AtomMesh, Layout, Layout, Layout]) -> None:
    found, _, source, between, target = drawn
    assert cost(found, source, target) <= cost(found, source, between) + cost(found, between, target) + 1e-15


@given(two_layouts())
def test_staying_is_free_and_leaving_is_not(drawn: tuple[ReshardTable, AtomMesh, Layout, Layout, Layout]) -> None:
    found, _, source, target, _ = drawn
    assert cost(found, source, source) == 0.0
    assert steps_of(found.path(source, source)) == []
    assert source == target or cost(found, source, target) > 0.0


@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_every_layout_can_be_reached_from_every_other(axes: dict[str, int]) -> None:
    assert np.isfinite(table(axes, partial=tuple(range(len(axes)))).seconds).all()


@pytest.mark.parametrize("profile", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("axes", [{"x": 2}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}], ids=str)
def test_no_sequence_of_steps_is_cheaper(axes: dict[str, int], profile: str) -> None:
    """Dijkstra over all layouts with a step list of its own finds the same costs."""
    mesh = atoms(axes)
    partial = tuple(range(len(axes))) if len(axes) < 3 else (0,)
    found = table(axes, partial=partial, profile=profile)
    judge = Reshards(MATRIX, partial, mesh, StepPrices(machine(axes, profile), mesh))
    assert set(judge.layouts) == set(found.layouts)
    for source in judge.layouts:
        for target in judge.layouts:
            assert cost(found, source, target) == pytest.approx(judge.seconds[source][target], rel=1e-9)


def test_layouts_that_pad_a_dimension_are_reached_as_well() -> None:
    axes = {"x": 4}
    type_ = TensorType((7, 8), "float32")
    padded, whole, other = Layout(((0,), ())), Layout(((), ())), Layout(((), (0,)))
    mesh = atoms(axes)
    found = ReshardTables(mesh, StepPrices(machine(axes), mesh), Exposure(machine(axes))).table(type_, [padded])
    for source in (padded, whole, other):
        for target in (padded, whole, other):
            assert np.isfinite(cost(found, source, target))


# -- recipes -------------------------------------------------------------------------------------------------------

WHOLE, ROWS, COLUMNS = Layout(((), ())), Layout(((0,), ())), Layout(((), (0,)))
SUM = Layout(((), ()), (0,))


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        (WHOLE, ROWS, ["slice"]),
        (ROWS, WHOLE, ["all_gather"]),
        (ROWS, COLUMNS, ["all_to_all"]),
        (SUM, WHOLE, ["all_reduce"]),
        (SUM, ROWS, ["reduce_scatter"]),
        (WHOLE, SUM, ["mask"]),
    ],
    ids=["cut", "gather", "move an axis", "sum up", "sum up and cut", "make a partial sum"],
)
def test_what_one_step_does_takes_one_step(source: Layout, target: Layout, steps: list[str]) -> None:
    assert recipe({"x": 8}, source, target) == steps


def test_two_axes_are_gathered_by_one_collective() -> None:
    path = table({"x": 2, "y": 4}).path(Layout(((0, 1), ())), WHOLE)
    assert [(s.kind.value, s.atoms) for s in path.steps] == [("all_gather", (0, 1))]


def test_two_axes_are_reduced_by_one_collective() -> None:
    assert recipe({"x": 2, "y": 4}, Layout(((), ()), (0, 1)), WHOLE) == ["all_reduce"]
    assert recipe({"x": 2, "y": 4}, Layout(((), ()), (0, 1)), Layout(((0, 1), ()))) == ["reduce_scatter"]


@pytest.mark.parametrize("dims", [((0, 1), ()), ((1, 0), ()), ((), (2, 0, 1)), ((0, 2), ())], ids=str)
def test_several_axes_cut_a_whole_value_by_one_copy(dims: tuple[tuple[int, ...], ...]) -> None:
    path = table({"x": 2, "y": 2, "z": 2}).path(WHOLE, Layout(dims))
    assert [(s.kind.value, s.atoms) for s in path.steps] == [("slice", dims[0] or dims[1])]
    assert recipe({"x": 2, "y": 2, "z": 2}, WHOLE, Layout(((0,), (1,)))) == ["slice", "slice"]


def test_several_axes_make_a_partial_sum_by_one_copy() -> None:
    assert recipe({"x": 2, "y": 4}, WHOLE, Layout(((), ()), (0, 1))) == ["mask"]


def test_removing_the_major_axis_of_a_dimension_costs_more_than_removing_the_minor_one() -> None:
    """Trap 7: a plain all-gather takes axes from the minor end only."""
    found = table({"x": 4, "y": 4})
    both = Layout(((0, 1), ()))
    minor, major = cost(found, both, Layout(((0,), ()))), cost(found, both, Layout(((1,), ())))
    assert recipe({"x": 4, "y": 4}, both, Layout(((0,), ()))) == ["all_gather"]
    assert len(recipe({"x": 4, "y": 4}, both, Layout(((1,), ())))) > 1
    assert major > minor


def test_swapping_two_axes_of_a_dimension_is_one_permute() -> None:
    assert recipe({"x": 2, "y": 4}, Layout(((0, 1), ())), Layout(((1, 0), ()))) == ["permute"]


def test_gathering_halves_of_a_large_array_costs_its_bytes_over_the_link() -> None:
    # ring of 16 on tpu_v5e: V (n-1)/n / 9e10 and a latency beside it
    axes = {"x": 16}
    type_ = TensorType((16 * 4096, 4096), "bfloat16")
    found = cost(table(axes, type_), ROWS, WHOLE)
    bandwidth = type_.bytes * 15 / 16 / 9e10
    assert bandwidth < found < 1.05 * bandwidth


def test_sub_axes_part_ways_only_where_asked() -> None:
    mesh = AtomMesh.split(atoms({"x": 16}).mesh, {"x": (8, 2)})
    tables = ReshardTables(mesh, StepPrices(machine({"x": 16}), mesh), Exposure(machine({"x": 16})))
    apart = Layout(((0,), (1,)))
    without, with_it = tables.table(MATRIX, [WHOLE]), tables.table(MATRIX, [WHOLE, apart])
    assert apart not in without.index
    assert Layout(((0, 1), ())) in without.index
    assert np.isfinite(cost(with_it, apart, WHOLE)) and np.isfinite(cost(with_it, WHOLE, apart))


@pytest.mark.parametrize("profile", ["tpu_v5e", "h100"])
def test_sub_axes_apart_move_as_axes_do(profile: str) -> None:
    """No sequence of steps is cheaper, whichever layouts are in use."""
    mesh = AtomMesh.split(atoms({"x": 8, "y": 2}).mesh, {"x": (2, 4)})
    prices = StepPrices(machine({"x": 8, "y": 2}, profile), mesh)
    found = ReshardTables(mesh, prices, Exposure(prices.machine), apart=((0,), (1,))).table(MATRIX, [WHOLE])
    judge = Reshards(MATRIX, (), mesh, prices)
    assert set(found.layouts) == set(judge.layouts)
    for source in judge.layouts:
        for target in judge.layouts:
            assert cost(found, source, target) == pytest.approx(judge.seconds[source][target], rel=1e-9)


def test_an_axis_of_size_one_changes_nothing() -> None:
    assert len(table({"x": 2, "one": 1}, partial=()).layouts) >= len(table({"x": 2}).layouts)
    mesh = atoms({"x": 2, "one": 1})
    plain = ReshardTables(
        mesh, StepPrices(machine({"x": 2, "one": 1}), mesh), Exposure(machine({"x": 2, "one": 1}))
    ).table(MATRIX, [WHOLE])
    assert set(plain.layouts) == {WHOLE, ROWS, COLUMNS}
