"""What a plan says lowering keeps in order is held against its program and its reshards."""

from typing import Any

import pytest
from changed_plans import Change, Changes, check_caught
from rival_cases import plain, planned

from autoshard.verify import check_plan

Json = dict[str, Any]
SCANNED = """
model: {name: transformer, layers: 2, d_model: 64, d_ff: 256, heads: 8, kv_heads: 4, vocab: 512, batch: 16, seq: 64,
        scan: true, remat: true}
mesh: {data: 2, model: 4}
hardware: tpu_v5e
verify: false
"""
change = Changes(of="scanned")


@pytest.fixture(scope="module")
def scanned() -> Json:
    """A scanned transformer within the memory that its plan holds."""
    peak_bytes = planned(config_text=SCANNED).memory.peak_bytes
    return plain(planned(f"memory_limit: {peak_bytes}\n", SCANNED))


def test_the_plan_keeps_something_in_order(scanned: Json) -> None:
    assert scanned["order"]["over"] and scanned["order"]["finished"]
    assert check_plan(scanned).ok


@change("says that lowering keeps something in order, and not what")
def nothing_is_kept(plan: Json) -> None:
    plan["order"] |= {"again": [], "finished": [], "over": []}


@change("less than the peak")
def less_could_be_held_than_is(plan: Json) -> None:
    plan["order"]["could_hold_bytes"] = plan["memory"]["peak_bytes"] - 1


@change("which is no loop")
def an_op_that_is_no_loop_waits(plan: Json) -> None:
    plan["order"]["finished"][0]["op"] = 1


@change("which is not made before")
def a_loop_waits_for_what_comes_after_it(plan: Json) -> None:
    plan["order"]["finished"][0]["values"].append(plan["program"]["body"]["ops"][-1]["results"][0])


@change("takes the place of no donated input")
def another_output_is_written_over_an_input(plan: Json) -> None:
    plan["order"]["over"].append(10**6)


@change("for which nothing is moved")
def a_use_without_a_copy_is_made_again(plan: Json) -> None:
    still = next(use for use in plan["schedule"]["uses"] if not use["steps"])
    plan["order"]["again"].append({key: still[key] for key in ("op", "slot", "region")})


@change("is no larger than what it is made of|whose copy no other op has")
def a_copy_that_only_one_op_has_is_made_again(plan: Json) -> None:
    moved = next(use for use in plan["schedule"]["uses"] if use["steps"])
    plan["order"]["again"].append({key: moved[key] for key in ("op", "slot", "region")})


@change("which is not gathered")
def an_output_that_is_not_gathered_is_written_over(plan: Json) -> None:
    moved = {use["slot"] for use in plan["schedule"]["uses"] if use["op"] == -1 and use["steps"]}
    still = [k for k, name in enumerate(plan["program"]["output_names"]) if "/opt/" in name and k not in moved]
    plan["order"]["over"].append(still[0])


@pytest.mark.parametrize(("of", "do", "expected"), change.cases)
def test_every_change_of_it_is_caught(scanned: Json, of: str, do: Change, expected: str) -> None:
    assert of == "scanned"
    check_caught(scanned, do, expected)
