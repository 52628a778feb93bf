"""Baselines refute the bound of a plan all at once; the bound of a last stage says nothing about them."""

import copy
from typing import Any

import pytest

from autoshard import plan
from autoshard.models import build
from autoshard.verify import check_plan


@pytest.fixture(scope="module")
def staged() -> dict[str, Any]:
    model = build("mlp", batch=64)
    found = plan(
        model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames,
        mesh={"data": 4, "model": 2}, hardware="h100", roles=model.logical_axes, priorities=["data", "tensor"],
        baselines=["data", "tensor"],
    )  # fmt: skip
    return found.to_dict()


def test_a_baseline_may_be_cheaper_than_stages_that_were_asked_for(staged: dict[str, Any]) -> None:
    cheapest = min(b["objective_s"] for b in staged["baselines"])
    assert staged["joint"]["bound_s"] < cheapest < staged["bound_s"]
    assert check_plan(staged).ok


def test_a_baseline_refutes_the_bound_on_all_at_once(staged: dict[str, Any]) -> None:
    changed = copy.deepcopy(staged)
    cheapest = min(b["objective_s"] for b in changed["baselines"])
    changed["joint"]["bound_s"] = changed["joint"]["cost_s"] = 1.01 * cheapest
    assert "it refutes the bound" in str(check_plan(changed))
