"""Deadlines: what is left, and what a part of the work may take of it."""

from autoshard.deadline import LEAST_S, Deadline, clock
from autoshard.search_options import SearchOptions


def test_without_a_limit_there_is_no_end():
    assert (Deadline().left(), Deadline().passed) == (None, False)


def test_a_share_is_one_of_what_is_left():
    now = clock()
    assert 39 < Deadline(ends=now + 80, began=now).left(0.5) <= 40


def test_a_part_ends_before_the_whole():
    whole = Deadline.after(80)
    assert whole.part(0.5).ends < whole.ends


def test_a_part_without_limit_has_none():
    assert Deadline().part(0.1).left() is None


def test_what_is_late_still_has_its_least():
    over = Deadline(ends=clock() - 10, began=0.0)
    assert over.passed
    assert (over.left(), over.left(least=2.0)) == (LEAST_S, 2.0)


def test_options_change_only_what_is_given():
    options = SearchOptions(effort=2.0, seed=7)
    assert options.but(effort=None, seed=8) == SearchOptions(effort=2.0, seed=8, deadline=options.deadline)


def test_one_of_many_searches_gets_a_part_of_the_effort_and_little_is_not_cut_further():
    assert [SearchOptions(effort=e).effort_of_one(0.1) for e in (10.0, 1.0, 0.5, 0.05)] == [1.0, 0.1, 0.1, 0.05]
