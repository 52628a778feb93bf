"""Statements, mesh, machine, limits and priorities are derived from the config again; what was changed is caught."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import changed_configs
import changed_statements
import changed_surroundings
import pytest
from asked_cases import MANUAL, NAMED, STATED, Json, planned_from
from parts_of_plans import settings

from autoshard.verify import check_plan
from autoshard.verify.derived import check_derived
from autoshard.verify.report import Status

SUBJECTS = (changed_statements, changed_surroundings, changed_configs)
CASES: list[Any] = [case for subject in SUBJECTS for case in subject.change.cases]


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A function with every kind of statement but regions, in two stages."""
    return planned_from(STATED, tmp_path_factory.mktemp("stated"))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Stages by the name of a strategy and by rules."""
    return planned_from(NAMED, tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A manual region, decided by a named strategy, no layers shared."""
    return planned_from(MANUAL, tmp_path_factory.mktemp("manual"))


@pytest.mark.parametrize("name", ["stated", "named", "manual"])
def test_plans_as_made_are_what_was_asked_for(name: str, request: pytest.FixtureRequest) -> None:
    plan = request.getfixturevalue(name)
    assert [str(f) for f in check_plan(plan).findings] == []
    found = check_derived(plan)
    assert found.status is Status.OK, str(found)
    assert "follow from the config" in found.lines[0]


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("max_reshards", {"limit": 60, "pattern": "**"}),
        ("max_reshards", [60]),
        ("max_reshards", [{"limit": 60}]),
        ("axis_only", [{"axis": "z", "patterns": ["x"]}]),
        ("axis_only", {'"z"': ["x"]}),
        ("replicated", [{"pattern": "x", "axes": ['"y"']}]),
    ],
)
def test_a_statement_may_be_written_in_any_of_its_forms(stated: Json, key: str, form: Any) -> None:
    plan = copy.deepcopy(stated)
    settings(plan)[key] = form
    assert [str(f) for f in check_plan(plan).findings] == []


def test_there_are_sixty_one_kinds_of_change_and_no_name_twice() -> None:
    """docs/verification.md states the count."""
    assert len(CASES) == len({case.id for case in CASES}) == 61


@pytest.mark.parametrize(("of", "do", "expected"), CASES)
def test_a_plan_that_is_not_what_was_asked_for_is_caught(
    of: str, do: Callable[[Json], None], expected: str, request: pytest.FixtureRequest
) -> None:
    plan = copy.deepcopy(request.getfixturevalue(of))
    do(plan)
    found = check_derived(plan)
    lines = [*found.lines, *map(str, check_plan(plan).findings)]
    assert found.status is Status.FAILED and any(re.search(expected, line) for line in lines), lines[:10]


def test_a_profile_that_is_not_there_leaves_the_check_undone(stated: Json, tmp_path: Path) -> None:
    plan = copy.deepcopy(stated)
    settings(plan)["hardware"] = str(tmp_path / "gone.yaml")
    found = check_derived(plan)
    assert found.status is Status.NOT_DONE
    assert "taken from the plan itself: not derived" in found.lines[0]


def test_a_plan_that_does_not_tell_its_options_and_limit_says_what_rests_on_trust(named: Json) -> None:
    plan = copy.deepcopy(named)
    del plan["memory_limit"], plan["options"]
    found = check_derived(plan)
    assert found.status is Status.OK
    assert "taken on trust: which memory limit the plan was made for: it says none" in found.lines
    assert any("options of the search that the plan does not tell: effort, seed" in line for line in found.lines)


@pytest.mark.parametrize("path", ["mesh.device_ids", "program.name", "program.warnings", "stages.0.axes"])
def test_a_plan_that_lacks_something_has_failed_the_check(stated: Json, path: str) -> None:
    plan = copy.deepcopy(stated)
    at: Any = plan
    *upper, last = path.split(".")
    for key in upper:
        at = at[int(key) if key.isdigit() else key]
    del at[last]
    found = check_derived(plan)
    assert found.status is Status.FAILED
    assert "the plan is damaged" in found.lines[0]
