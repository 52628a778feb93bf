"""Every leaf of what a plan claims is changed, left out, emptied, doubled or turned around: what still passes is known.

`UNSEEN` is what docs/verification.md says is not checked: taken on trust, or nothing follows from it. What a plan says
of its program, machine and schedule is changed in the other tests of this folder.
"""

from typing import Any

import pytest
from asked_cases import NAMED, Json, planned_from
from leaves import changes

from autoshard.api.bound import check_bound
from autoshard.verify import Status, check_plan
from autoshard.verify.derived import check_derived

CLAIMS = ("mesh", "memory_limit", "options", "stages", "joint", "certificate", "baselines", "bound_s", "gap", "status")
UNSEEN = {
    # may be missing, as in plans of earlier versions: told as taken on trust
    "memory_limit": {"left out"},
    "options": {"left out", "emptied"},
    **{f"options.{key}": {"left out"} for key in ("effort", "seed", "accepted_gap", "share_repeats")},
    **{f"options.{key}": {"left out"} for key in ("sub_axes", "strategy", "objective")},
    # told as not certified
    "certificate": {"left out"},
    "stages.*.certificate": {"left out"},
    # the default, and layers that decide for themselves where none are alike
    "certificate.shares": {"left out", "changed 0"},
    "stages.*.certificate.shares": {"left out", "changed 0"},
    # the default, and counts of reshards that are left out where none are stated
    "certificate.counts": {"left out", "changed 0"},
    "stages.*.certificate.counts": {"left out", "changed 0"},
    # none, as in plans of earlier versions
    "certificate.prices": {"left out"},
    "stages.*.certificate.prices": {"left out"},
    "certificate.weights": {"left out"},
    "stages.*.certificate.weights": {"left out"},
    "stages.*.unlimited": {"left out"},
    # on trust: what baselines cost and hold, and why one cannot be; their order
    "baselines": {"reversed"},
    "baselines.*.objective_s": {"changed 0", "changed 1"},
    "baselines.*.peak_bytes": {"changed 0", "changed 1"},
    "baselines.*.reason": {"left out", "changed 0"},
}


def passes(plan: Json) -> bool:
    if not check_plan(plan).ok or check_derived(plan).status is Status.FAILED:
        return False
    return check_bound(plan).status is not Status.FAILED


def part(plan: Json) -> Json:
    """What is claimed, of stages the last one."""
    return {key: plan[key][-1:] if key == "stages" else plan[key] for key in CLAIMS}


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Json:
    return planned_from(NAMED, tmp_path_factory.mktemp("named"))


def test_what_passes_though_it_is_changed_is_known(named: Json) -> None:
    found: dict[str, set[str]] = {}
    count = 0
    for shape, kind, changed in changes(part(named), each=1):
        whole: dict[str, Any] = {key: value for key, value in named.items() if key not in CLAIMS} | changed
        if "stages" in changed and isinstance(changed["stages"], list):
            whole["stages"] = [*named["stages"][:-1], *changed["stages"]]
        count += 1
        if passes(whole):
            found.setdefault(shape, set()).add(kind)
    assert count > 250
    unknown = {shape: kinds - UNSEEN.get(shape, set()) for shape, kinds in found.items()}
    assert {shape: kinds for shape, kinds in unknown.items() if kinds} == {}
    assert UNSEEN.keys() - found.keys() == set()
