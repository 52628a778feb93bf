"""A plan that was changed by hand is caught, every time; one that was not passes."""

import copy
import re
from typing import Any

import corrupted_costs
import corrupted_layouts
import corrupted_placements
import corrupted_programs
import corrupted_reshards
import pytest
from asked_cases import Json, plain

from autoshard.verify import check_plan

MESH = {"x": 2, "y": 4}
SUBJECTS = (corrupted_layouts, corrupted_placements, corrupted_reshards, corrupted_programs, corrupted_costs)
CASES: list[Any] = [case for subject in SUBJECTS for case in subject.corruption.cases]


@pytest.fixture(scope="session")
def transformer() -> Json:
    """A two-layer decoder (scan and remat) with pins and a memory limit that binds."""
    from autoshard.api import verbs as api
    from autoshard.constraints import Pin
    from autoshard.models import build

    model = build(
        "transformer",
        layers=2,
        d_model=64,
        d_ff=128,
        heads=4,
        kv_heads=2,
        vocab=128,
        batch=8,
        seq=16,
        scan=True,
        remat=True,
    )
    pins = [
        Pin("batch/*", '[{"x"}, {}]'),
        Pin("state/params/layers/w_up", '[{}, {?}, {"y", ?}]'),
        Pin("state/params/head", '[{?}, {?}] replicated={"x"}'),
        Pin("@logits", '[{"x"}, {}, {?}]'),
        Pin("out/1/loss", "[]"),
    ]
    plan = api.plan(
        model.step, *model.specs, mesh=MESH, hardware="cpu_sim", donate_argnums=model.donate_argnums,
        argnames=model.argnames, constraints=pins, memory_limit=1_000_000, baselines=["data_parallel"],
        roles=model.logical_axes,
    )  # fmt: skip
    return plain(plan.to_dict())


@pytest.fixture(scope="session")
def mlp() -> Json:
    from autoshard.api import verbs as api
    from autoshard.constraints import Pin
    from autoshard.models import build

    model = build("mlp")
    pins = [Pin("batch/x", '[{"x", ?}, {?}]'), Pin("state/params/layers/0/w", '[{}, {"y"}]')]
    plan = api.plan(
        model.step, *model.specs, mesh=MESH, hardware="cpu_sim", donate_argnums=model.donate_argnums,
        argnames=model.argnames, constraints=pins,
    )  # fmt: skip
    return plain(plan.to_dict())


@pytest.fixture(scope="session")
def looked_up() -> Json:
    """A softmax over a cut dimension (combined by max) and a lookup in a cut table; nothing donated."""
    import jax
    import jax.numpy as jnp

    from autoshard.api import verbs as api
    from autoshard.constraints import Pin

    def f(table, ids, x):
        return jnp.sum(table[ids], axis=0), jax.nn.softmax(x)

    specs = [((64, 32), jnp.float32), ((16,), jnp.int32), ((16, 4096), jnp.float32)]
    plan = api.plan(
        f, *(jax.ShapeDtypeStruct(*s) for s in specs), mesh=MESH, hardware="cpu_sim", argnames=["table", "ids", "x"],
        constraints=[Pin("table", '[{"y"}, {}]'), Pin("ids", '[{"x"}]'), Pin("x", '[{"x"}, {"y"}]')],
    )  # fmt: skip
    return plain(plan.to_dict())


def test_plans_as_made_pass(transformer, mlp, looked_up):
    for plan in (transformer, mlp, looked_up):
        assert [str(f) for f in check_plan(plan).findings] == []


def test_there_are_ninety_kinds_of_corruption_and_no_name_twice():
    """docs/verification.md states the count."""
    assert len(CASES) == len({case.id for case in CASES}) == 90


@pytest.mark.parametrize(("of", "change", "expected"), CASES)
def test_a_changed_plan_is_caught(of, change, expected, request):
    plan = copy.deepcopy(request.getfixturevalue(of))
    change(plan)
    found = [str(f) for f in check_plan(plan).findings]
    assert any(re.search(expected, line) for line in found), found[:10]
