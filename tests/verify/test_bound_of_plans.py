"""The bound of a plan is proved by a certificate on the plan's own network, made again from what the file states."""

import base64
import copy
import re
from typing import Any

import jax.numpy as jnp
import pytest
from asked_cases import NAMED, planned_from
from plan_cases import f32

from autoshard import Pin, plan
from autoshard.api.bound import check_bound
from autoshard.models import build
from autoshard.plan_record import PlanRecord
from autoshard.planning import build_model
from autoshard.planning.certified import Proved
from autoshard.questions.again import problem_of
from autoshard.solver import solve
from autoshard.verify import Status, check_plan

MESH = {"a": 2, "b": 2}


def chain(x, w1, w2):
    return (x @ w1) @ w2


@pytest.fixture(scope="module")
def limited() -> dict[str, Any]:
    """The limit leaves room for no copy of a weight beside the others."""
    found = plan(
        chain, f32(1024, 512), f32(512, 2048), f32(2048, 512), mesh=MESH, hardware="h100", memory_limit=8650752
    )
    return found.to_dict()


@pytest.fixture(scope="module")
def staged() -> dict[str, Any]:
    model = build("mlp", batch=64)
    found = plan(
        model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames,
        mesh={"data": 4, "model": 2}, hardware="h100", roles=model.logical_axes, priorities=["data", "tensor"],
    )  # fmt: skip
    return found.to_dict()


def test_the_bound_of_a_plan_without_a_limit_is_proved() -> None:
    found = plan(chain, f32(64, 32), f32(32, 64), f32(64, 32), mesh=MESH, hardware="h100", memory_limit="none")
    check = check_bound(found.to_dict())
    assert check.status is Status.OK
    assert re.search(
        r"\d+ reductions?, \d+ sets? of messages and \d+ (leaf|leaves) judged on \d+ decisions?", check.lines[0]
    )


def test_a_plan_at_a_tight_limit_is_optimal_and_proved_with_the_limit(limited: dict[str, Any]) -> None:
    assert limited["status"] == "optimal"
    assert limited["objective_s"] < 2.56e-5
    check = check_bound(limited)
    assert check.status is Status.OK
    assert "memory limit included" in check.lines[0]


@pytest.fixture(scope="module")
def relaxed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The second stage could not keep all that its rules propagate."""
    found = planned_from(NAMED, tmp_path_factory.mktemp("named"))
    assert found["stages"][1]["relaxed"] and found["stages"][1]["left_out"]
    return found


def six_heads(x, w):
    return jnp.tanh(jnp.einsum("bse,ehd->bshd", x, w))


@pytest.fixture(scope="module")
def on_whole_axes() -> dict[str, Any]:
    """Six heads are cut by two of eight devices, where an axis of 8 is split as planning does."""
    specs = f32(4, 32, 64), f32(64, 6, 16)
    return plan(six_heads, *specs, mesh={"x": 8}, hardware="h100", sub_axes={"x": [8]}).to_dict()


def test_a_plan_on_axes_that_are_stated_to_be_whole_is_proved(on_whole_axes: dict[str, Any]) -> None:
    assert check_bound(on_whole_axes).status is Status.OK


def test_axes_in_larger_parts_than_planning_makes_of_them_prove_no_bound(on_whole_axes: dict[str, Any]) -> None:
    changed = copy.deepcopy(on_whole_axes)
    changed["options"]["sub_axes"] = None
    check = check_bound(changed)
    assert check.status is Status.FAILED
    assert "axis x is planned as 8; statements and program split it into " in check.lines[0]


def test_a_plan_that_does_not_tell_whether_parts_were_stated_leaves_them_on_trust(
    on_whole_axes: dict[str, Any],
) -> None:
    changed = copy.deepcopy(on_whole_axes)
    del changed["options"]["sub_axes"]
    assert check_bound(changed).lines[-1] == "taken on trust: the parts into which axes are split"


def test_of_stages_the_optimum_all_at_once_and_every_stage_is_proved(staged: dict[str, Any]) -> None:
    check = check_bound(staged)
    assert check.status is Status.OK
    assert [line.split(" s: ")[0].rsplit(" ", 1)[0] for line in check.lines] == [
        "the bound_s of all at once", "the bound_s of stage 0", "the bound_s of stage 1"
    ]  # fmt: skip


def test_a_strategy_without_a_proof_of_its_own_has_one_of_its_bound() -> None:
    found = plan(chain, f32(64, 32), f32(32, 64), f32(64, 32), mesh=MESH, hardware="h100", strategy="greedy")
    check = check_bound(found.to_dict())
    assert check.status is Status.OK and check.lines[0].startswith("bound_s ")


def spoiled(plan_: dict[str, Any], what: str) -> dict[str, Any]:
    """A plan in stages that says something else of them."""
    out = copy.deepcopy(plan_)
    first, last = out["stages"]
    if what == "bound of the last stage":
        out["bound_s"] = last["bound_s"] = last["bound_s"] * (1 + 1e-6)
    elif what == "bound of the first stage":
        first["bound_s"] *= 1 + 1e-6
    elif what == "ticks of a stage":
        first["certificate"]["bound"] += 1
    elif what == "a certificate of the other stage":
        last["certificate"] = first["certificate"]
    elif what == "nothing placed by the first stage":
        first["placed"] = {kind: {} for kind in first["placed"]}
    elif what == "nothing placed by the last stage":
        last["placed"] = {kind: {} for kind in last["placed"]}
    elif what == "axes of a stage":
        first["axes"] = ["model"]
    elif what == "words of a stage":
        first["statements"] = ["data: batch on model"]
    elif what == "rounding":
        out["cost"]["rounding_s"] *= 1.5
    elif what == "a stage taken out":
        out["stages"].pop()
    return out


@pytest.mark.parametrize(
    "what",
    [
        "bound of the last stage", "bound of the first stage", "ticks of a stage", "a certificate of the other stage",
        "nothing placed by the first stage", "nothing placed by the last stage", "axes of a stage", "words of a stage",
        "rounding", "a stage taken out",
    ],
)  # fmt: skip
def test_what_stages_do_not_prove_is_told(relaxed: dict[str, Any], what: str) -> None:
    found = check_bound(spoiled(relaxed, what))
    assert found.status is Status.FAILED, found


def test_what_stages_with_something_relaxed_are_proved_with_is_told(relaxed: dict[str, Any]) -> None:
    assert check_bound(relaxed).status is Status.OK
    kept, silent, other, damaged = (copy.deepcopy(relaxed) for _ in range(4))
    damaged["stages"][1]["left_out"]["ops"]["0"].append(["model"])
    assert check_bound(damaged).status is Status.FAILED
    kept["stages"][1]["left_out"] = {}
    silent["stages"][1]["relaxed"] = []
    other["stages"][1]["relaxed"][0]["on"] = 0
    assert "does not prove it" in check_bound(kept).lines[0] or "do not propagate" in check_bound(kept).lines[0]
    assert "which relaxed does not tell" in check_bound(silent).lines[0]
    assert check_bound(other).status is Status.FAILED


def test_a_last_stage_without_a_certificate_leaves_the_check_undone(relaxed: dict[str, Any]) -> None:
    bare = copy.deepcopy(relaxed)
    bare["stages"][-1]["certificate"] = None
    check = check_bound(bare)
    assert check.status is Status.NOT_DONE
    assert "not certified: the bound_s of stage 1" in check.lines
    assert "the bounds of stages without a certificate (number 1)" in check_plan(bare).facts[-1]


def test_a_plan_without_a_certificate_says_so(limited: dict[str, Any]) -> None:
    bare = {k: v for k, v in limited.items() if k != "certificate"}
    check = check_bound(bare)
    assert check.status is Status.NOT_DONE
    assert "taken on trust" in check.lines[0]


def changed(plan_: dict[str, Any], what: str) -> dict[str, Any]:
    out = copy.deepcopy(plan_)
    told = out["certificate"]
    if what == "bound of the plan":
        out["bound_s"] *= 1 + 1e-6
    elif what == "bytes of the certificate":
        data = bytearray(base64.b64decode(told["data"]))
        data[-40] ^= 1
        told["data"] = base64.b64encode(bytes(data)).decode()
    elif what == "limit of its network":
        told["limit"] = 8650752 // 2  # a tighter network has a larger bound
    elif what == "limit dropped":
        told["limit"] = told["moments"] = None
    elif what == "moments dropped":
        told["moments"] = {}
    return out


@pytest.mark.parametrize(
    "what",
    ["bound of the plan", "bytes of the certificate", "limit of its network", "limit dropped", "moments dropped"],
)
def test_what_does_not_prove_the_bound_is_told(limited: dict[str, Any], what: str) -> None:
    assert check_bound(changed(limited, what)).status is Status.FAILED


@pytest.mark.parametrize("told", [3, {}, {"bound": 1, "limit": None, "moments": None, "data": "%%%"}, {"bound": "x"}])
def test_what_is_no_certificate_is_not_believed(limited: dict[str, Any], told: Any) -> None:
    assert check_bound({**limited, "certificate": told}).status is not Status.OK


@pytest.mark.parametrize("twice", ["excesses", "spans"])
def test_memory_that_is_named_twice_from_the_end_too_proves_nothing(limited: dict[str, Any], twice: str) -> None:
    """The plan itself is above the limit where its memory counts twice: so there would be no plan."""
    model = build_model(problem_of(PlanRecord.from_dict(limited)))
    limit, whole = limited["certificate"]["limit"], model.memory.all_of_them()
    moments = {k: frozenset(range(-len(spans), len(spans))) for k, spans in whole.items()}
    if twice == "excesses":
        moments = whole | {k - len(whole): spans for k, spans in whole.items()}
    proof = Proved.none(solve(model.within(limit, moments)), limit, moments)
    assert proof is not None
    forged = copy.deepcopy(limited) | {"certificate": proof.told("plan").to_dict()}
    check = check_bound(forged)
    assert check.status is Status.FAILED
    assert "its moments count from 0" in str(check)


@pytest.mark.parametrize("sharing", [None, {"decisions": 30, "shared": 1, "bound_s": None, "price_at_most_s": None}])
def test_a_bound_on_plans_whose_layers_are_alike_is_told_as_one(sharing: dict[str, Any] | None) -> None:
    def layers(ws, x):
        for up, down in ws:
            x = x + jnp.tanh(x @ up) @ down
        return x

    weights = [(f32(64, 128), f32(128, 64)) for _ in range(4)]
    found = plan(layers, weights, f32(256, 64), mesh=MESH, hardware="tpu_v5e").to_dict()
    assert check_bound(found).status is Status.OK
    assert found["sharing"]["shared"] > 1
    check = check_bound(found | {"sharing": sharing})
    assert check.status is Status.FAILED
    assert "decisions are shared between layers; the plan says" in str(check)


def test_the_check_is_part_of_verify(limited: dict[str, Any]) -> None:
    found = plan(
        chain, f32(64, 32), f32(32, 64), f32(64, 32), mesh=MESH, hardware="h100", constraints=[Pin("x", '[{"a"}, {}]')]
    )
    checks = found.verify(
        chain, f32(64, 32), f32(32, 64), f32(64, 32), mesh=MESH, hardware="h100", constraints=[Pin("x", '[{"a"}, {}]')]
    ).checks
    assert [c.status for c in checks if c.name == "no plan costs less than the bound"] == [Status.OK]
