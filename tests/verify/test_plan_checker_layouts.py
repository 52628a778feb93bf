"""The checker's arithmetic of layouts, judged by moving real blocks of real arrays between devices."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.verify.check_layout import Atoms, Holding, Impossible, apply_step, combine, cut, read_atoms

MESH, _ = read_atoms({"axes": {"x": 2, "y": 6}, "atoms": ["x", "y:(1)3", "y:(3)2"], "device_ids": None})
SHAPE = (12, 24)
DEVICES = list(product(*(range(n) for n in MESH.sizes)))


def block(held: Holding, device: tuple[int, ...], whole: np.ndarray) -> np.ndarray:
    for dim, run in enumerate(held.runs):
        start = sum(device[a] * stride for a, stride in run.strides)
        whole = whole.take(range(start, start + run.length), axis=dim)
    return whole


def scatter(held: Holding, whole: np.ndarray, seed: int) -> dict[tuple[int, ...], np.ndarray]:
    """What each device holds: its block; along unreduced atoms, integers that sum up to it."""
    rng = np.random.default_rng(seed)
    out = {}
    for device in DEVICES:
        group = tuple(c for a, c in enumerate(device) if a not in held.partial)
        if group not in out:
            members = [d for d in DEVICES if tuple(c for a, c in enumerate(d) if a not in held.partial) == group]
            parts = [rng.integers(-9, 9, block(held, device, whole).shape) for _ in members[1:]]
            parts.append(block(held, device, whole) - sum(parts))
            out[group] = dict(zip(members, parts, strict=True))
    return {device: part for members in out.values() for device, part in members.items()}


def run(step: dict, data: dict[tuple[int, ...], np.ndarray]) -> dict[tuple[int, ...], np.ndarray]:
    """A step as machines carry it out, by its definition."""
    atoms, dim, to_dim = step["atoms"], step["dim"], step["to_dim"]
    n = int(np.prod([MESH.sizes[a] for a in atoms]))

    def group(device: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The devices of its group in order, the first atom outermost."""
        found = []
        for coordinates in product(*(range(MESH.sizes[a]) for a in atoms)):
            member = list(device)
            for a, c in zip(atoms, coordinates, strict=True):
                member[a] = c
            found.append(tuple(member))
        return found

    out = {}
    for device, mine in data.items():
        members = group(device)
        rank = members.index(device)
        parts = [data[m] for m in members]
        match step["kind"]:
            case "slice":
                out[device] = np.split(mine, n, axis=dim)[rank]
            case "mask":
                out[device] = mine if rank == 0 else np.zeros_like(mine)
            case "all_gather":
                out[device] = np.concatenate(parts, axis=dim)
            case "all_reduce":
                out[device] = sum(parts)
            case "reduce_scatter":
                out[device] = np.split(sum(parts), n, axis=dim)[rank]
            case "all_to_all":
                out[device] = np.concatenate([np.split(p, n, axis=to_dim)[rank] for p in parts], axis=dim)
    return out


KINDS = ("slice", "mask", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")


@st.composite
def layouts(draw) -> Holding:
    dims: list[list[int]] = [[], []]
    partial = set()
    for atom in draw(st.permutations(range(len(MESH.sizes)))):
        where = draw(st.integers(0, 3))
        if where < 2:
            dims[where].append(atom)
        elif where == 2:
            partial.add(atom)
    return Holding(tuple(cut(n, d, MESH) for n, d in zip(SHAPE, dims, strict=True)), frozenset(partial))


@st.composite
def steps(draw) -> dict:
    atoms = draw(st.lists(st.sampled_from(range(len(MESH.sizes))), min_size=1, max_size=3, unique=True))
    dim = draw(st.integers(0, 1))
    return {"kind": draw(st.sampled_from(KINDS)), "atoms": atoms, "dim": dim, "to_dim": 1 - dim}


@settings(max_examples=600)
@given(layouts(), steps(), st.integers(0, 99))
def test_a_step_moves_blocks_as_the_arithmetic_says(held, step, seed):
    try:
        after = apply_step(step, held, MESH, summable=True)
    except Impossible:
        return
    whole = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    if step["kind"] == "permute":  # any exchange that brings each device its block: the same elements, once per group
        assert sorted(r.length for r in after.runs) == sorted(r.length for r in held.runs)
        assert after.cutting == held.cutting
        return
    moved = run(step, scatter(held, whole, seed))
    for device in DEVICES:
        members = [d for d in DEVICES if all(d[a] == device[a] for a in range(len(device)) if a not in after.partial)]
        total = sum(moved[m] for m in members)
        assert np.array_equal(total, block(after, device, whole))


@given(layouts(), steps())
def test_the_planner_allows_only_steps_that_the_arithmetic_allows(held, step):
    """And where both allow a step they agree on what comes out of it."""
    from autoshard.sharding.layout import Layout
    from autoshard.sharding.steps import Step, StepKind

    has_target = step["kind"] == "all_to_all"
    has_dim = step["kind"] not in ("mask", "all_reduce")
    theirs = Step(
        StepKind(step["kind"]),
        tuple(step["atoms"]),
        step["dim"] if has_dim else -1,
        step["to_dim"] if has_target else -1,
    )
    layout = Layout(tuple(run.atoms for run in held.runs), tuple(sorted(held.partial)))
    try:
        expected = theirs.apply(layout)
    except ValueError:
        expected = None
    try:
        after = apply_step(step, held, MESH, summable=True)
    except Impossible as error:
        uneven = "does not divide" in str(error)
        after = None
    if after is None:
        assert expected is None or uneven
        return
    assert expected == Layout(tuple(run.atoms for run in after.runs), tuple(sorted(after.partial)))


def test_an_inner_factor_may_be_cut_only_where_the_outer_one_is_cut_up():
    # 4 x 6: elements of one device lie together only if each device has a single index of the outer factor
    assert combine([(2, [0]), (12, [1])], MESH, "d") == cut(24, [0, 1], MESH)
    with pytest.raises(Impossible, match="not cut up"):
        combine([(4, [0]), (6, [1])], MESH, "d")


def test_parts_of_an_axis_are_joined_in_texts():
    assert MESH.text([1, 2, 0]) == '"y", "x"'
    assert MESH.text([2, 1]) == '"y":(3)2, "y":(1)3'
    assert isinstance(MESH, Atoms)
    assert MESH.of("y") == (1, 2)
    assert MESH.of("y", 3, 2) == (2,)
