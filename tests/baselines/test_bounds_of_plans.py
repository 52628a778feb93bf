"""The lower bounds of closed forms beside plans of the library's programs with the same sizes and strategy."""

from typing import Any

import pytest

import autoshard
from autoshard.costmodels import load_profile, place_mesh
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.strategies import price_strategy
from autoshard.costs.steptime import NO_LINKS
from autoshard.models import build
from autoshard.questions.rivals import near_rivals

SIZES: dict[str, Any] = {
    "layers": 2,
    "d_model": 256,
    "d_ff": 4096,
    "heads": 16,
    "kv_heads": 16,
    "head_dim": 32,
    "vocab": 512,
}


@pytest.fixture(scope="module")
def by_strategy():
    """Plans of one train step on 16 v5e under every named strategy."""
    model = build("transformer", batch=128, seq=64, remat=False, **SIZES)
    plan = autoshard.plan(
        model.step, *model.specs, mesh={"a": 16}, hardware="tpu_v5e", memory_limit=None, effort=0.02, time_limit=20
    )
    found = near_rivals(plan, 1e9, roles=model.logical_axes)
    return {name: near.plan for near in found.near for name in (near.name, *near.also)}


@pytest.mark.parametrize("strategy", ["data", "zero1", "tensor", "sequence"])
def test_no_plan_keeps_its_links_less_busy_than_the_bound_of_its_strategy(by_strategy, strategy):
    further = {"gated_mlp": True, "tied_embeddings": False, "train_seq": 64, "source": "this test"}
    card = ModelCard.model_validate(SIZES | further)
    machine = place_mesh(load_profile("tpu_v5e"), {"a": 16})
    bound = price_strategy(machine, card, strategy, 128 * 64, dtype="float32", dtype_bytes=4.0)
    step = by_strategy[strategy].step_time
    assert max(bound.communication_s.values()) <= max(s for part, s in step.resources_s.items() if part not in NO_LINKS)
    assert bound.lower_s <= step.lower_s
