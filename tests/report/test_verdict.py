"""The verdict: a line for how long a step takes, one for memory, one for the proof, one for what to do next."""

from typing import Any

import pytest

from autoshard.report.verdict import checks_text, losses_text, verdict


def plan(**changed: Any) -> dict[str, Any]:
    """The parts of a plan.json that a verdict is made from."""
    gib = 2**30
    return {
        "status": "optimal", "objective_s": 0.020, "bound_s": 0.020, "gap": 0.0,
        "mesh": {"axes": {"data": 2, "model": 4}}, "hardware": {"name": "tpu_v5e"}, "program": {"name": "step"},
        "cost": {"step_time": {"estimate_s": 0.015, "mfu": {"estimate": 0.412}}},
        "memory": {
            "peak_bytes": 12 * gib, "usable_bytes": 15 * gib, "device_bytes": 16 * gib, "allocation_bytes": 13 * gib,
            "fits": True,
        },
        "memory_limit": {"bytes": 14 * gib, "from": "device"},
        "baselines": [
            {"name": "fsdp", "objective_s": 0.030, "peak_bytes": gib, "reason": ""},
            {"name": "data", "objective_s": 0.025, "peak_bytes": gib, "reason": ""},
            {"name": "tensor", "objective_s": None, "peak_bytes": None, "reason": "over the memory limit"},
        ],
        "stages": [], "certificate": {"of": "plan"}, **changed,
    }  # fmt: skip


def line(name: str, told: list[str]) -> str:
    (found,) = [text for text in told if text.startswith(name)]
    return found.removeprefix(name).strip()


def test_a_verdict_is_five_lines_of_at_most_80_columns() -> None:
    told = verdict(plan(), file="out/step/plan.json")
    assert [text.split()[0] for text in told] == ["plan", "step", "memory", "proof", "next"]
    assert max(map(len, told)) <= 80


def test_the_step_is_the_estimate_and_the_best_baseline_is_named() -> None:
    told = line("step", verdict(plan()))
    assert told == "15 ms, MFU 41.2%; data, the best baseline, costs 1.25 times as much"


def test_without_an_estimate_the_step_is_the_cost() -> None:
    assert line("step", verdict(plan(cost={}, baselines=[]))) == "20 ms"


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ({"fits": True}, "12 GiB per device at the peak; fits into 15 GiB that programs get"),
        ({"fits": False, "allocation_bytes": 15.5 * 2**30}, "MAY NOT FIT: with the compiler's headroom 15.5 GiB"),
        ({"fits": False, "peak_bytes": 15.2 * 2**30}, "15.2 GiB per device at the peak; DOES NOT FIT into 15 GiB"),
    ],
)
def test_memory_says_whether_the_plan_fits(memory: dict[str, Any], says: str) -> None:
    assert says in line("memory", verdict(plan(memory=plan()["memory"] | memory)))


def test_a_stated_limit_stands_beside_the_peak() -> None:
    told = line("memory", verdict(plan(memory_limit={"bytes": 13 * 2**30, "from": "stated"})))
    assert told.startswith("12 GiB per device at the peak, of 13 GiB allowed;")


def test_a_gap_is_told_with_both_its_ends() -> None:
    told = line("proof", verdict(plan(status="feasible", bound_s=0.019, gap=0.05)))
    less = "no plan under these statements less than 19 ms; with a certificate"
    assert told == f"within 5.00%: it costs 20 ms if nothing overlaps, {less}"
    told = line("proof", verdict(plan(status="feasible", bound_s=0.019, gap=0.05, cost={})))
    assert told == f"within 5.00%: it costs 20 ms, {less}"


def test_a_proof_says_of_what_it_is() -> None:
    assert line("proof", verdict(plan())).startswith("optimal: no plan under these statements costs less")
    staged = verdict(plan(stages=[{}, {}], certificate={"of": "joint"}))
    assert line("proof", staged).startswith(
        "optimal: no plan of the last of 2 stages costs less; the certificate is of"
    )
    proved = verdict(plan(stages=[{}, {"certificate": {"of": "stage"}}], certificate={"of": "joint"}))
    assert line("proof", proved) == "optimal: no plan of the last of 2 stages costs less; with a certificate"
    assert line("proof", verdict(plan(certificate=None))).endswith("; without a certificate")


def test_what_was_checked_is_counted_and_what_is_wrong_is_named() -> None:
    checks = [{"name": "costs", "status": "ok"}, {"name": "bound", "status": "not done"}]
    assert checks_text({"checks": checks}) == "1 of 2 checks green, 1 not done (autoshard verify says why)"
    wrong = checks_text({"checks": [*checks, {"name": "results", "status": "failed"}]})
    assert wrong.startswith("THE PLAN IS WRONG: results")
    assert losses_text([2.0, 1.5]) == "2 train steps, loss 2.0000 -> 1.5000"
    told = verdict(plan(), checked="1 of 1 checks green", ran=losses_text([2.0]))
    assert line("checked", told) == "1 of 1 checks green; 1 train step, loss 2.0000"


def test_an_objective_that_is_not_the_default_stands_beside_the_plan() -> None:
    assert line("plan", verdict(plan(options={"objective": "overlap"}))).endswith("; objective overlap")
    assert "objective" not in line("plan", verdict(plan(options={"objective": "serial"})))


def test_where_a_timeline_judged_the_forms_each_figure_says_what_it_is() -> None:
    why = "as constraints XLA's partitioner decides the collectives, and does not know what is stated: no collective a"
    form = {
        "asked": "auto", "form": "explicit", "judge": "libtpu 1", "seconds": {"explicit": 0.0247},
        "notes": [f"constraints: {why} (and 1 more); form 'explicit' holds it", "of the schedule: a note"],
    }  # fmt: skip
    told = verdict(plan(form=form))
    assert line("step", told).startswith("15 ms by the planner's prices, MFU 41.2%; ")
    assert line("form", told) == (
        "explicit, 24.7 ms on the timeline of libtpu 1; no other one can be "
        "(constraints leaves to XLA what is stated: no collective a (and 1 more))"
    )
    both = form | {"form": "constraints", "seconds": {"explicit": 0.03, "constraints": 0.02}}
    assert line("form", verdict(plan(form=both))) == (
        "constraints, 20 ms on the timeline of libtpu 1, 10 ms quicker than explicit (33.3%); "
        "XLA decides the collectives"
    )
    stated = {"asked": "constraints", "form": "constraints", "judge": None, "seconds": {}, "notes": []}
    assert line("step", verdict(plan(form=stated))).startswith("15 ms, MFU")
