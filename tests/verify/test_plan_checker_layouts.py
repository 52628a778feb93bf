"""The checker's arithmetic of layouts, judged by moving real blocks of real arrays between devices."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.verify.plan.layout import Atoms, Holding, Impossible, apply_step, combine, cut, read_atoms

MESH, _ = read_atoms({"axes": {"x": 2, "y": 6}, "atoms": ["x", "y:(1)3", "y:(3)2"], "device_ids": None})
SHAPES = ((12, 24), (7, 10), (11, 5))
DEVICES = list(product(*(range(n) for n in MESH.sizes)))
JUNK = 10**6
"""What padding is filled with: large, so that it would show in any element it got into."""


def filled(x: np.ndarray, dim: int, length: int) -> np.ndarray:
    missing = [(0, max(0, length - n) if d == dim else 0) for d, n in enumerate(x.shape)]
    return np.pad(x, missing, constant_values=JUNK)


def block(held: Holding, device: tuple[int, ...], whole: np.ndarray) -> np.ndarray:
    """The elements of a device, without padding."""
    for dim, run in enumerate(held.runs):
        whole = whole.take(run.held(device), axis=dim)
    return whole


def padded(held: Holding, x: np.ndarray) -> np.ndarray:
    for dim, run in enumerate(held.runs):
        x = filled(x, dim, run.length)
    return x


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
            out[group] = {m: padded(held, part) for m, part in zip(members, parts, strict=True)}
    return {device: part for members in out.values() for device, part in members.items()}


def pieces(x: np.ndarray, dim: int, sizes: list[int]) -> list[np.ndarray]:
    """Cut in equal pieces, by one size after the other, each time filled up to a multiple."""
    out = [x]
    for size in sizes:
        out = [p for y in out for p in np.split(filled(y, dim, -(-y.shape[dim] // size) * size), size, axis=dim)]
    return out


def whole_again(parts: list[np.ndarray], dim: int, n: int, sizes: list[int]) -> np.ndarray:
    """What `pieces` made of n elements, put together."""
    if not sizes:
        return parts[0].take(range(n), axis=dim)
    step, inner = len(parts) // sizes[0], -(-n // sizes[0])
    outer = [whole_again(parts[k : k + step], dim, inner, sizes[1:]) for k in range(0, len(parts), step)]
    return np.concatenate(outer, axis=dim).take(range(n), axis=dim)


def run(step: dict, data: dict[tuple[int, ...], np.ndarray], left: int) -> dict[tuple[int, ...], np.ndarray]:
    """A step as machines carry it out, by its definition. left: length of a dimension once atoms left it."""
    atoms, dim, to_dim = step["atoms"], step["dim"], step["to_dim"]
    sizes = [MESH.sizes[a] for a in atoms]

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
                out[device] = pieces(mine, dim, sizes)[rank]
            case "mask":
                out[device] = mine if rank == 0 else np.zeros_like(mine)
            case "all_gather":
                out[device] = whole_again(parts, dim, left, sizes)
            case "all_reduce":
                out[device] = sum(parts)
            case "reduce_scatter":
                out[device] = pieces(sum(parts), dim, sizes)[rank]
            case "all_to_all":
                out[device] = whole_again([pieces(p, to_dim, sizes)[rank] for p in parts], dim, left, sizes)
            case "permute":  # every device gets the block whose place it takes
                old = [a for a in step["before"] if MESH.sizes[a] > 1]
                place = np.ravel_multi_index([device[a] for a in atoms], sizes)
                source = list(device)
                for a, c in zip(old, np.unravel_index(place, [MESH.sizes[a] for a in old]), strict=True):
                    source[a] = int(c)
                out[device] = data[tuple(source)]
    return out


KINDS = ("slice", "mask", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")


@st.composite
def layouts(draw) -> tuple[tuple[int, int], Holding]:
    shape = draw(st.sampled_from(SHAPES))
    dims: list[list[int]] = [[], []]
    partial = set()
    for atom in draw(st.permutations(range(len(MESH.sizes)))):
        where = draw(st.integers(0, 3))
        if where < 2:
            try:
                cut(shape[where], [*dims[where], atom], MESH)
            except Impossible:
                continue
            dims[where].append(atom)
        elif where == 2:
            partial.add(atom)
    return shape, Holding(tuple(cut(n, d, MESH) for n, d in zip(shape, dims, strict=True)), frozenset(partial))


@st.composite
def steps(draw) -> dict:
    atoms = draw(st.lists(st.sampled_from(range(len(MESH.sizes))), min_size=1, max_size=3, unique=True))
    dim = draw(st.integers(0, 1))
    return {"kind": draw(st.sampled_from(KINDS)), "atoms": atoms, "dim": dim, "to_dim": 1 - dim}


@settings(max_examples=800, deadline=None)
@given(layouts(), steps(), st.integers(0, 99))
def test_a_step_moves_blocks_as_the_arithmetic_says(layout, step, seed):
    shape, held = layout
    try:
        after = apply_step(step, held, MESH, summable=True)
    except Impossible:
        return
    whole = np.arange(np.prod(shape)).reshape(shape)
    left = -(-shape[step["dim"]] // MESH.group(set(held.runs[step["dim"]].atoms) - set(step["atoms"])))
    moved = run({**step, "before": held.runs[step["dim"]].atoms}, scatter(held, whole, seed), left)
    for device in DEVICES:
        members = [d for d in DEVICES if all(d[a] == device[a] for a in range(len(device)) if a not in after.partial)]
        total = sum(moved[m] for m in members)
        wanted = block(after, device, whole)
        assert total.shape == tuple(run.length for run in after.runs)
        assert np.array_equal(total[: wanted.shape[0], : wanted.shape[1]], wanted)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (2, 3), (6,), (2, 3, 2)])
def test_the_pieces_of_a_padded_dimension_are_those_that_are_run(sizes):
    """The planner's rooms cut by stages, and so does the checker; every element is on exactly one device."""
    from autoshard.sharding.rows import ranges

    mesh = Atoms(tuple("abc"[: len(sizes)]), (1,) * len(sizes), sizes, dict(zip("abc", sizes, strict=False)))
    for n in range(1, 40):
        if n % np.prod(sizes) and np.prod(sizes[:-1]) >= n:
            with pytest.raises(Impossible, match="leave nothing to cut"):
                cut(n, range(len(sizes)), mesh)
            continue
        found = cut(n, range(len(sizes)), mesh)
        held = [found.held(device) for device in product(*(range(s) for s in sizes))]
        assert [(r.start, len(r)) for r in held if r] == [r for r in ranges(n, sizes) if r[1]]
        assert [k for r in held for k in r] == list(range(n))
        assert found.length == -(-n // int(np.prod(sizes)))


@given(layouts(), steps())
def test_the_planner_allows_only_steps_that_the_arithmetic_allows(layout, step):
    """And where both allow a step they agree on what comes out of it."""
    from autoshard.sharding.layout import Layout
    from autoshard.sharding.steps import Step, StepKind

    held = layout[1]

    has_target = step["kind"] == "all_to_all"
    has_dim = step["kind"] not in ("mask", "all_reduce")
    theirs = Step(
        StepKind(step["kind"]),
        tuple(step["atoms"]),
        step["dim"] if has_dim else -1,
        step["to_dim"] if has_target else -1,
    )
    start = Layout(tuple(run.atoms for run in held.runs), tuple(sorted(held.partial)))
    try:
        expected = theirs.apply(start)
    except ValueError:
        expected = None
    try:
        told = {**step, "dim": theirs.dim, "to_dim": theirs.to_dim}
        after = apply_step(told, held, MESH, summable=True)
    except Impossible as error:
        uneven = "does not divide" in str(error) or "are not those of the other" in str(error)
        after = None
    if after is None:
        assert expected is None or uneven
        return
    assert expected == Layout(tuple(run.atoms for run in after.runs), tuple(sorted(after.partial)))


def test_an_inner_factor_may_be_cut_only_where_the_outer_one_is_cut_up():
    # 4 x 6: elements of one device lie together only if each device has a single index of the outer factor
    assert combine([(2, [0]), (12, [1])], MESH, "d") == cut(24, [0, 1], MESH)
    with pytest.raises(Impossible, match="do not lie in one block"):
        combine([(3, [0]), (8, [])], MESH, "d")
    with pytest.raises(Impossible, match="not cut up"):
        combine([(4, [0]), (6, [1])], MESH, "d")


def test_parts_of_an_axis_are_joined_in_texts():
    assert MESH.text([1, 2, 0]) == '"y", "x"'
    assert MESH.text([2, 1]) == '"y":(3)2, "y":(1)3'
    assert isinstance(MESH, Atoms)
    assert MESH.of("y") == (1, 2)
    assert MESH.of("y", 3, 2) == (2,)
