"""Every step on eight (or six) devices against a numpy model that knows which elements a device holds."""

from itertools import permutations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from naive_schedule import MESHES as ALL_MESHES

from autoshard.errors import UnsupportedError
from autoshard.interop.jax import auto_mesh
from autoshard.lowering.blocks import is_regular, operand_shape
from autoshard.lowering.steps import Grid, run_step
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.rows import ranges, staged
from autoshard.sharding.steps import Step, StepKind

MESHES = {name: mesh for name, mesh in ALL_MESHES.items() if name != "3x2"}


def coordinates(mesh: AtomMesh, device: int) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(device, mesh.sizes))


def block_of(mesh: AtomMesh, atoms: tuple[int, ...], device: int) -> int:
    where = coordinates(mesh, device)
    sizes = [mesh.sizes[a] for a in atoms]
    return int(np.ravel_multi_index([where[a] for a in atoms], sizes)) if atoms else 0


def spread(whole: np.ndarray, layout: Layout, mesh: AtomMesh, rng: np.random.Generator) -> np.ndarray:
    """What the devices hold, stacked: garbage in the padding, random parts that sum up over `unreduced`."""
    local = layout.local_shape(whole.shape, mesh)
    parts: dict[tuple[int, ...], np.ndarray] = {}
    free = [a for a in range(len(mesh.sizes)) if a not in layout.unreduced]
    out = []
    for device in range(mesh.mesh.size):
        where = coordinates(mesh, device)
        rest = tuple(where[a] for a in free if any(a in d for d in layout.dims))
        group = tuple(where[a] for a in layout.unreduced)
        if (rest, *group) not in parts:
            groups = list(np.ndindex(*[mesh.sizes[a] for a in layout.unreduced]))
            random = [rng.integers(-50, 50, whole.shape) for _ in groups]
            random[0] = whole - sum(random[1:], np.zeros_like(whole))
            parts |= {(rest, *g): r for g, r in zip(groups, random, strict=True)}
        value = parts[(rest, *group)]
        block = np.full(local, 1_000_003, whole.dtype)
        cuts = []
        for n, atoms in zip(whole.shape, layout.dims, strict=True):
            start, count = ranges(n, [mesh.sizes[a] for a in atoms])[block_of(mesh, atoms, device)]
            cuts.append((slice(start, start + count), slice(0, count)))
        block[tuple(c[1] for c in cuts)] = value[tuple(c[0] for c in cuts)]
        out.append(block)
    return np.stack(out)


def whole_of(stacked: np.ndarray, shape: tuple[int, ...], layout: Layout, mesh: AtomMesh) -> list[np.ndarray]:
    """The whole tensor as each replica group of devices sees it; they must agree."""
    cut = [a for d in layout.dims for a in d]
    replicas: dict[tuple[int, ...], np.ndarray] = {}
    for device in range(mesh.mesh.size):
        where = coordinates(mesh, device)
        key = tuple(w for a, w in enumerate(where) if a not in cut and a not in layout.unreduced)
        value = replicas.setdefault(key, np.zeros(shape, stacked.dtype))
        glob, loc = [], []
        for n, atoms in zip(shape, layout.dims, strict=True):
            start, count = ranges(n, [mesh.sizes[a] for a in atoms])[block_of(mesh, atoms, device)]
            glob.append(slice(start, start + count))
            loc.append(slice(0, count))
        value[tuple(glob)] += stacked[device][tuple(loc)]
    return list(replicas.values())


def run_on_devices(
    stacked: np.ndarray, step: Step, layout: Layout, shape: tuple[int, ...], mesh: AtomMesh
) -> np.ndarray:
    devices = np.array(jax.devices()[: mesh.mesh.size]).reshape(mesh.sizes)
    every = P(mesh.names)
    return np.asarray(
        jax.jit(
            jax.shard_map(
                lambda x: run_step(x[0], step, layout, shape, Grid(mesh))[None],
                mesh=auto_mesh(devices, mesh.names),
                in_specs=every,
                out_specs=every,
                check_vma=False,
            )
        )(stacked)
    )


@st.composite
def layouts_and_steps(draw: st.DrawFn, *, uneven: bool = True) -> tuple[AtomMesh, tuple[int, ...], Layout, Step]:
    mesh = MESHES[draw(st.sampled_from(sorted(MESHES)))]
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 13) if uneven else st.just(24), min_size=rank, max_size=rank)))
    order = draw(st.permutations(range(len(mesh.sizes))))
    places = draw(
        st.lists(st.integers(-2, rank - 1), min_size=len(order), max_size=len(order))
    )  # -1 free, -2 unreduced
    dims = tuple(tuple(a for a, p in zip(order, places, strict=True) if p == d) for d in range(rank))
    layout = Layout(dims, tuple(sorted(a for a, p in zip(order, places, strict=True) if p == -2)))
    free = tuple(a for a, p in zip(order, places, strict=True) if p == -1)
    steps = []
    for dim in range(rank):
        for n in range(1, len(dims[dim]) + 1):
            moved = dims[dim][-n:]
            steps.append(Step(StepKind.ALL_GATHER, moved, dim))
            steps += [Step(StepKind.ALL_TO_ALL, moved, dim, to) for to in range(rank) if to != dim]
        if free:
            steps.append(Step(StepKind.SLICE, free, dim))
        if layout.unreduced:
            steps.append(Step(StepKind.REDUCE_SCATTER, layout.unreduced[::-1], dim))
        if len(dims[dim]) > 1:
            steps.append(Step(StepKind.PERMUTE, dims[dim][1:] + dims[dim][:1], dim))
    if free:
        steps.append(Step(StepKind.MASK, free))
    if layout.unreduced:
        steps.append(Step(StepKind.ALL_REDUCE, layout.unreduced[:2]))
    return mesh, shape, layout, draw(st.sampled_from(steps))


@settings(max_examples=70, deadline=None)
@given(layouts_and_steps(), st.integers(0, 2**32 - 1))
def test_step_gives_every_device_its_block_of_the_new_layout(case, seed):
    mesh, shape, layout, step = case
    rng = np.random.default_rng(seed)
    whole = rng.integers(-50, 50, shape)
    before = spread(whole, layout, mesh, rng).astype(np.int32)
    after_layout = step.apply(layout)
    if step.kind is StepKind.PERMUTE and not all(
        is_regular(shape[step.dim], [mesh.sizes[a] for a in order]) for order in (layout.dims[step.dim], step.atoms)
    ):
        with pytest.raises(UnsupportedError, match="blocks are uneven"):
            run_on_devices(before, step, layout, shape, mesh)
        return
    after = run_on_devices(before, step, layout, shape, mesh)
    assert after.shape[1:] == after_layout.local_shape(shape, mesh)
    for replica in whole_of(after, shape, after_layout, mesh):
        np.testing.assert_array_equal(replica, whole)


@pytest.mark.parametrize("old", [(0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_every_order_of_three_axes_is_permuted_into_every_other(old):
    # lax.ppermute numbers devices in mesh order whatever the order of the names: only 3-cycles tell
    mesh, whole, layout = MESHES["2x2x2"], np.arange(16), Layout((old,))
    before = spread(whole, layout, mesh, np.random.default_rng(0)).astype(np.int32)
    for new in permutations(range(3)):
        if new != old:
            step = Step(StepKind.PERMUTE, new, 0)
            after = run_on_devices(before, step, layout, (16,), mesh)
            for replica in whole_of(after, (16,), step.apply(layout), mesh):
                np.testing.assert_array_equal(replica, whole)


@pytest.mark.parametrize("dtype", [jax.numpy.int2, jax.numpy.uint2, jax.numpy.int4])
def test_numbers_of_a_few_bits_move_as_they_are(dtype):
    # all-gathers and permutes of 2-bit numbers, left to XLA on CPUs, return other ones and write past the end
    mesh, layout = MESHES["2x2x2"], Layout(((0, 1), ()))
    whole = np.arange(28).reshape(28, 1) % 4 - (0 if dtype == jax.numpy.uint2 else 2)
    before = spread(whole, layout, mesh, np.random.default_rng(0)).astype(dtype)
    steps = Step(StepKind.ALL_GATHER, (1,), 0), Step(StepKind.PERMUTE, (1, 0), 0), Step(StepKind.ALL_TO_ALL, (1,), 0, 1)
    for step in steps:
        after = run_on_devices(before, step, layout, (28, 1), mesh)
        for replica in whole_of(after, (28, 1), step.apply(layout), mesh):
            np.testing.assert_array_equal(replica.astype(np.int8), whole)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(2, 5), min_size=0, max_size=3))
def test_blocks_cover_a_dimension_once_and_fit_the_staged_length(n, sizes):
    blocks = ranges(n, sizes)
    assert sum(count for _, count in blocks) == n
    assert all(count <= staged(n, sizes)[-1] for _, count in blocks)
    held = [i for start, count in blocks for i in range(start, start + count)]
    assert held == list(range(n))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(2, 5), min_size=1, max_size=3))
def test_regular_blocks_are_those_of_a_cut_at_once(n, sizes):
    length = staged(n, sizes)[-1]
    at_once = [(i, max(0, min(length, n - i * length))) for i in range(int(np.prod(sizes)))]
    same = all(count == other for (_, count), (_, other) in zip(ranges(n, sizes), at_once, strict=True))
    assert same or not is_regular(n, sizes)


def test_reduce_scatter_of_seven_rows_over_eight_devices_sends_eight_rows():
    mesh = MESHES["8"]
    step = Step(StepKind.REDUCE_SCATTER, (0,), 0)
    assert operand_shape(step, Layout(((), ()), (0,)), (7, 3), mesh) == (8, 3)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(layouts_and_steps(), st.integers(0, 2**32 - 1))
def test_step_gives_every_device_its_block_of_the_new_layout_many_times(case, seed):
    test_step_gives_every_device_its_block_of_the_new_layout.hypothesis.inner_test(case, seed)
