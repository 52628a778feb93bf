"""What the notes say of stages is what the stages say of themselves."""

import copy
import functools
import json
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from plan_cases import f32

from autoshard import Pin, plan
from autoshard.verify import check_plan

Json = dict[str, Any]


@functools.cache
def staged() -> Json:
    """A plan whose first stage chose a placement that a later statement forbids."""
    found = plan(
        lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, f32(256, 128), f32(128, 512), f32(512, 128), mesh={"x": 2, "y": 2},
        hardware="tpu_v5e", constraints=[Pin("x", '[{"x", ?}, {?}]'), Pin("out", '[{?}, {"x", ?}]', priority=1)],
    )  # fmt: skip
    return json.loads(json.dumps(found.to_dict()))


def findings(change: Callable[[Json], object]) -> list[str]:
    data = copy.deepcopy(staged())
    change(data)
    return [str(found) for found in check_plan(data).findings]


def relaxed(data: Json) -> Json:
    return data["stages"][0]["relaxed"][0]


def test_the_plan_as_it_is_passes() -> None:
    assert findings(lambda data: None) == []


CHANGES: dict[str, tuple[Callable[[Json], object], str]] = {
    "the note is gone": (lambda data: data["notes"].pop(0), "no note says so"),
    "what was given up is gone": (lambda data: data["stages"][0]["relaxed"].clear(), "that no stage gave up so"),
    "no proof is said to be one": (lambda data: relaxed(data).update(proved=False), "no note says so"),
    "another reason": (lambda data: relaxed(data).update(why="placements"), "no note says so"),
    "another dimension in the note": (
        lambda data: data["notes"].__setitem__(0, data["notes"][0].replace("x on out", "y on out")),
        "that no stage gave up so",
    ),
    "fewer stages in the note": (
        lambda data: data["notes"].__setitem__(1, data["notes"][1].replace("2 stages", "1 stages")),
        "the notes speak of 1 stages; the plan has 2",
    ),
    "a price without a peak": (lambda data: relaxed(data).update(price_s=1e-6), "a price and no peak"),
    "a price where memory was no reason": (
        lambda data: relaxed(data).update(price_s=1e-6, peak_bytes=8),
        "which it did not give up for memory",
    ),
    "a stage without a limit that gave up nothing for it": (
        lambda data: data["stages"][0].update(unlimited={"cost_s": 1e-6, "peak_bytes": 8}),
        "for which it gave up nothing",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_notes_and_stages_say_differently_is_found(name: str) -> None:
    change, message = CHANGES[name]
    assert any(message in line for line in findings(change))
