"""Which rows change devices in a slice of a cut dimension; the judge follows every element by itself."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.sharding.rows import pieces, ranges, rounds

CASES = st.tuples(
    st.integers(1, 40), st.integers(1, 40), st.integers(-9, 30),
    st.sampled_from([(2,), (3,), (8,), (2, 2), (2, 3), (4, 2)]),
)  # fmt: skip


def owners(n, sizes):
    """Element -> the block that holds it, and where."""
    return {b + i: (block, i) for block, (b, count) in enumerate(ranges(n, sizes)) for i in range(count)}


@settings(derandomize=True, max_examples=200, deadline=None)
@given(CASES)
def test_every_element_of_the_result_comes_from_where_the_operand_has_it(case):
    operand, result, start, sizes = case
    have, want = owners(operand, sizes), owners(result, sizes)
    told = {}
    for p in pieces(operand, result, start, sizes):
        for i in range(p.count):
            assert (p.target, p.at + i) not in told, "an element comes twice"
            told[p.target, p.at + i] = (p.source, p.begin + i)
    assert told == {want[r]: have[r + start] for r in want if r + start in have}


@settings(derandomize=True, max_examples=200, deadline=None)
@given(CASES)
def test_a_device_sends_and_gets_at_most_one_piece_in_a_round(case):
    for together in rounds(*case):
        assert len({p.source for p in together}) == len({p.target for p in together}) == len(together)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(CASES)
def test_rounds_have_every_piece_that_changes_devices_and_there_are_as_few_as_there_can_be(case):
    moved = [p for p in pieces(*case) if p.source != p.target]
    found = rounds(*case)
    assert sorted(p for together in found for p in together) == sorted(moved)
    busiest = max([0, *Counter(p.source for p in moved).values(), *Counter(p.target for p in moved).values()])
    assert len(found) == busiest


@pytest.mark.parametrize(
    ("what", "case", "sent"),
    [
        ("a shift by one row", (64, 63, 1, (8,)), [1]),
        ("all rows but the last", (64, 63, 0, (8,)), []),
        ("a window with both edges missing", (64, 60, 2, (8,)), [2]),
        ("the first half", (64, 32, 0, (8,)), [4, 4]),
        ("the last half", (64, 32, 32, (8,)), [4, 4]),
        ("the middle third", (96, 32, 32, (8,)), [4, 4]),
        ("two axes as one", (64, 63, 1, (2, 4)), [1]),
    ],
)
def test_how_many_rows_a_device_sends_in_each_permute(what, case, sent):
    assert [max(p.count for p in together) for together in rounds(*case)] == sent, what
