"""The bandwidth terms of lines, rings, strides and tori against brute-force counts of what crosses each link."""

import itertools
import random
from collections import Counter

import pytest

from autoshard.costmodels.collectives import CollectiveKind, Piece, Torus, level_costs
from autoshard.costmodels.load import load_profile

W = load_profile("tpu_v5e").levels[0].link.value  # type: ignore[union-attr]
Link = tuple[tuple[int, ...], int, int]


def per_byte(kind: CollectiveKind, pieces: list[Piece], shape: tuple[int, ...], wraps: tuple[bool, ...]) -> float:
    profile = load_profile("tpu_v5e")
    (cost,) = level_costs(kind, pieces, profile, Torus(shape, wraps), False)
    return cost.seconds_per_byte * W  # in units of one byte over one link


def route(a: tuple[int, ...], b: tuple[int, ...], shape, wraps, load: Counter, amount: float) -> None:
    """Dimension by dimension, the shorter way round a ring, half each way where both are equal."""
    here = list(a)
    for dim, n in enumerate(shape):
        forward = (b[dim] - here[dim]) % n if wraps[dim] else b[dim] - here[dim]
        ways = [(forward, 1.0)]
        if wraps[dim]:
            if 2 * forward == n:
                ways = [(forward, 0.5), (-forward, 0.5)]
            elif 2 * forward > n:
                ways = [(forward - n, 1.0)]
        for steps, share in ways:
            at = list(here)
            for _ in range(abs(steps)):
                sign = 1 if steps > 0 else -1
                load[(tuple(at), dim, sign)] += amount * share
                at[dim] = (at[dim] + sign) % n
        here[dim] = b[dim]


def groups(pieces: list[Piece], shape: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """All groups of chips that the pieces make on the slice."""
    by_key: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for chip in itertools.product(*map(range, shape)):
        key = list(chip)
        for p in pieces:
            digit = chip[p.dim] // p.stride % p.size
            key[p.dim] -= digit * p.stride
        by_key.setdefault(tuple(key), []).append(chip)
    return list(by_key.values())


CASES = [
    ([Piece(0, 0, 1, 4)], (4,), (False,)),
    ([Piece(0, 0, 1, 5)], (5,), (False,)),
    ([Piece(0, 0, 1, 2)], (2,), (False,)),
    ([Piece(0, 0, 1, 8)], (8,), (True,)),
    ([Piece(0, 0, 1, 7)], (7,), (True,)),
    ([Piece(0, 0, 1, 16)], (16,), (True,)),
    ([Piece(0, 0, 4, 4)], (16,), (True,)),  # a major sub-axis: four groups share the ring
    ([Piece(0, 0, 2, 4)], (8,), (False,)),
    ([Piece(0, 0, 2, 2)], (8,), (False,)),  # a middle sub-axis
    ([Piece(0, 0, 1, 4)], (16,), (True,)),  # a minor sub-axis has no ring
    ([Piece(0, 0, 1, 4), Piece(0, 1, 1, 4)], (4, 4), (False, False)),
    ([Piece(0, 0, 1, 8), Piece(0, 1, 1, 4)], (8, 4), (True, True)),
    ([Piece(0, 0, 1, 4), Piece(0, 1, 1, 4), Piece(0, 2, 1, 4)], (4, 4, 4), (True, True, True)),
    ([Piece(0, 0, 2, 2), Piece(0, 1, 1, 4)], (4, 4), (False, False)),
]


@pytest.mark.parametrize(("pieces", "shape", "wraps"), CASES)
def test_all_to_all_takes_what_its_busiest_link_carries(pieces, shape, wraps) -> None:
    load: Counter[Link] = Counter()
    for group in groups(pieces, shape):
        chunk = 1.0 / len(group) ** 2
        for a, b in itertools.permutations(group, 2):
            route(a, b, shape, wraps, load, chunk)
    assert per_byte(CollectiveKind.ALL_TO_ALL, pieces, shape, wraps) == pytest.approx(max(load.values()))


@pytest.mark.parametrize(("pieces", "shape", "wraps"), CASES)
def test_a_gather_takes_no_less_than_cuts_of_the_links_allow(pieces, shape, wraps) -> None:
    # For every group, what a chip lacks must come over links; chips a stride apart share them. Cutting each dimension
    # in the middle bounds the time from below; the formula is never below it and within the known factor of it.
    seconds = per_byte(CollectiveKind.ALL_GATHER, pieces, shape, wraps)
    n = len(groups(pieces, shape)[0])
    usable = sum(2 if wraps[p.dim] and p.stride * p.size == shape[p.dim] else 1 for p in pieces)
    worst = max(p.stride for p in pieces)
    assert (n - 1) / n / usable - 1e-12 <= seconds <= worst * (n - 1) / n / usable * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize(("pieces", "shape", "wraps"), [case for case in CASES if len(case[0]) == 1])
def test_no_permutation_of_one_dimension_needs_more_than_the_price_of_any(pieces, shape, wraps) -> None:
    price = per_byte(CollectiveKind.PERMUTE, pieces, shape, wraps)
    (piece,) = pieces
    m = piece.size
    chance = random.Random(0)
    worst = 0.0
    # Rotations by k and the reversal, which are what re-ordering sub-axes makes, and random ones on lines.
    maps = [[(i + k) % m for i in range(m)] for k in range(m)] + [list(reversed(range(m)))]
    if not wraps[0]:
        maps += [chance.sample(range(m), m) for _ in range(50)]
    for mapping in maps:
        load: Counter[Link] = Counter()
        for group in groups(pieces, shape):
            for index, chip in enumerate(group):
                route(chip, group[mapping[index]], shape, wraps, load, 1.0)
        worst = max(worst, max(load.values(), default=0.0))
    if wraps[0] and piece.stride * m == shape[0]:
        # Going the shorter way only, a rotation loads one direction: twice the price, which splits over both.
        worst /= 2
    assert worst <= price + 1e-12


def test_a_shift_by_half_a_ring_is_the_dearest_permutation() -> None:
    assert per_byte(CollectiveKind.PERMUTE, [Piece(0, 0, 1, 16)], (16,), (True,)) == pytest.approx(4.0)  # n / 4
    assert per_byte(CollectiveKind.PERMUTE, [Piece(0, 0, 1, 8)], (8,), (False,)) == pytest.approx(4.0)  # n / 2
    assert per_byte(CollectiveKind.PERMUTE, [Piece(0, 0, 1, 2)], (2,), (False,)) == pytest.approx(1.0)
