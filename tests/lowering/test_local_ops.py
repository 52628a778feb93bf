"""Every primitive's local form: under random placements, even and uneven, results are those of one device."""

from functools import cache

import pytest
from naive_schedule import MESHES, naive_schedule
from primitive_families import FAMILIES, together
from running import Original, run_and_compare


@cache
def original(family: str) -> Original:
    cases, args = FAMILIES[family]()
    return Original(together(cases), *args)


def check(family: str, mesh: str, seed: int, *, uneven: bool) -> None:
    program = original(family).traced.program
    schedule = naive_schedule(program, MESHES[mesh], seed, uneven=uneven)
    report = run_and_compare(original(family), schedule)
    assert report.ok, report


@pytest.mark.parametrize("family", FAMILIES)
def test_random_even_placements_give_the_results_of_one_device(family):
    check(family, "2x4", 0, uneven=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_uneven_placements_give_the_results_of_one_device(family):
    check(family, "6", 1, uneven=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_placements_give_the_results_of_one_device(family, mesh, seed):
    check(family, mesh, seed, uneven=bool(seed % 2))


def test_no_primitive_of_the_families_is_unknown_to_the_rules():
    assert [original(f).traced.program.warnings for f in FAMILIES] == [()] * len(FAMILIES)
