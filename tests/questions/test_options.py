"""Questions ask the problem that the plan answers: with its options, its limit, its statements as they were made."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from autoshard import InputError, NotFoundError, Pin, plan, solver
from autoshard.api.plans import Plan
from autoshard.plan_record import ToldLimit
from autoshard.questions.again import Changed, options_of, problem_of, solve_again
from autoshard.questions.alternatives import Alternatives
from autoshard.questions.break_even import break_even
from autoshard.search_options import ACCEPTED_GAP, SearchOptions
from autoshard.verify.plan.checker import check_plan

SPEC = jax.ShapeDtypeStruct
X, W = SPEC((32, 64), jnp.float32), SPEC((64, 128), jnp.float32)
GIVEN: dict[str, Any] = {"mesh": {"a": 2, "b": 4}, "hardware": "tpu_v5e", "argnames": ("x", "w")}
MADE: dict[str, Any] = {"effort": 3.0, "seed": 7, "accepted_gap": 0.02}


def _searched(options: SearchOptions) -> tuple[float, int, float]:
    return options.effort, options.seed, options.accepted_gap


def f(x: Any, w: Any) -> Any:
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)


def layers(params: Any, x: Any) -> Any:
    for w in params:
        x = jax.nn.relu(x @ w)
    return x


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(f, X, W, **GIVEN, **MADE)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every call of the solver."""
    whole, seen = solver.solve, []

    def recorded(network: Any, **options: Any) -> Any:
        seen.append(options)
        return whole(network, **options)

    monkeypatch.setattr(solver, "solve", recorded)
    return seen


# -- effort, seed, accepted gap ----------------------------------------------------------------------------------------


def test_a_plan_says_with_which_options_it_was_made(made: Plan) -> None:
    assert made.to_dict()["options"] == {
        **MADE, "share_repeats": True, "sub_axes": None, "strategy": None, "objective": "serial",
    }  # fmt: skip


def test_instead_searches_with_the_options_of_the_plan(made: Plan, searches: Any) -> None:
    made.instead("w", '[{"a"}, {}]')
    assert [(s["effort"], s["seed"]) for s in searches] == [(3.0, 7)]


def test_options_given_to_the_question_win(made: Plan, searches: Any) -> None:
    other = made.instead("w", '[{"a"}, {}]', effort=0.5, seed=1).other
    assert [(s["effort"], s["seed"]) for s in searches] == [(0.5, 1)]
    assert _searched(options_of(other)) == (0.5, 1, 0.02)  # and those of questions to the answer


@pytest.mark.parametrize(("most_of_a_small_one", "gap"), [(0, 0.02), (400, 0.0)])
def test_the_accepted_gap_is_that_of_the_plan_in_large_networks_within_a_limit(
    made: Plan, searches: Any, monkeypatch: pytest.MonkeyPatch, most_of_a_small_one: int, gap: float
) -> None:
    monkeypatch.setattr(import_module("autoshard.planning.searches"), "SMALL_NODES", most_of_a_small_one)
    solve_again(made, Changed(memory_limit=made.memory.peak_bytes - 1))
    within = [s["gap"] for s in searches[1:]]
    assert within and set(within) == {gap}


def test_break_even_takes_the_seed_and_a_tenth_of_the_effort(made: Plan, searches: Any) -> None:
    made.break_even("x", "bandwidth", instead=made["x"])
    assert {(round(s["effort"], 6), s["seed"]) for s in searches} == {(0.3, 7)}


def test_break_even_takes_options_of_its_own(made: Plan, searches: Any) -> None:
    made.break_even("x", "bandwidth", instead=made["x"], effort=1.0, seed=2)
    assert {(s["effort"], s["seed"]) for s in searches} == {(1.0, 2)}


def test_alternatives_are_searched_with_the_seed_and_a_part_of_the_effort(made: Plan, searches: Any) -> None:
    assert Alternatives(made).of(made.program.body.args[1])
    assert {(round(s["effort"], 6), s["seed"]) for s in searches} == {(0.06, 7)}


def test_a_loaded_plan_answers_with_the_same_options(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded.options == made.options and _searched(options_of(loaded)) == (3.0, 7, 0.02)


def test_a_plan_of_an_earlier_version_is_asked_with_the_defaults(made: Plan, tmp_path: Path) -> None:
    replace(made, options=None, memory_limit=None).save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded.options is None and "options" not in loaded.to_dict()
    assert _searched(options_of(loaded)) == _searched(SearchOptions())
    assert loaded.instead("w", '[{"a"}, {}]').extra_s >= -made.rounding_s


def test_a_plan_of_an_earlier_version_from_a_config_is_asked_with_what_that_says(made: Plan) -> None:
    config = {"settings": {"solver": {"effort": 2.0, "seed": 5}}}
    assert _searched(options_of(replace(made, options=None, config=config))) == (2.0, 5, ACCEPTED_GAP)


def test_a_rougher_search_has_a_part_of_the_effort_and_the_larger_gap() -> None:
    options = SearchOptions(effort=2.0, seed=3, accepted_gap=0.5)
    assert _searched(options.rougher(0.9, 0.25)) == (0.5, 3, 0.9)
    assert _searched(options.rougher(0.1, 1.0)) == (2.0, 3, 0.5)


@pytest.mark.parametrize(("key", "wrong"), [("effort", "much"), ("seed", 1.5), ("seed", True), ("share_repeats", 1)])
def test_damaged_options_are_refused(made: Plan, tmp_path: Path, key: str, wrong: Any) -> None:
    data = made.to_dict()
    data["options"][key] = wrong
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=f"options: {key} is"):
        Plan.load(tmp_path / "plan.json")


# -- what else makes the problem ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
def test_layers_share_in_questions_as_they_do_in_the_plan(share: bool) -> None:
    specs = [SPEC((64, 64), jnp.float32)] * 3, X
    made = plan(layers, *specs, **{**GIVEN, "argnames": ("params", "x")}, share_repeats=share)
    assert problem_of(made).share_repeats is share
    assert (solve_again(made).sharing is None) == (made.sharing is None)


def test_sharing_is_on_where_it_was_though_nothing_is_shared(made: Plan) -> None:
    assert made.sharing is None and problem_of(made).share_repeats


def test_an_axis_that_was_stated_whole_is_whole_in_questions() -> None:
    """A dimension of 2 asks for a part of the axis, which would be chosen."""
    specs = SPEC((2, 8), jnp.float32), SPEC((8, 32), jnp.float32)
    parts, whole = (plan(jnp.matmul, *specs, mesh={"a": 4}, hardware="tpu_v5e", argnames=("x", "w"), sub_axes=given)
                    for given in (None, {"a": [4]}))  # fmt: skip
    assert len(parts.schedule.mesh.atoms) == 2 and len(whole.schedule.mesh.atoms) == 1
    assert problem_of(whole).mesh == whole.schedule.mesh
    assert problem_of(parts).mesh == parts.schedule.mesh


def test_trips_of_loops_are_those_of_the_plan(made: Plan) -> None:
    assert problem_of(replace(made, trips=17)).trips == 17


def test_the_strategy_is_that_of_the_plan() -> None:
    greedy = plan(f, X, W, **GIVEN, strategy="greedy")
    assert greedy.instead("x", '[{"a"}, {}]').other.strategy == "greedy"


def test_the_limit_and_where_it_comes_from_are_those_of_the_plan(made: Plan) -> None:
    problem = problem_of(made)
    assert made.memory_limit is not None and problem.device_limit
    assert problem.memory_limit == made.memory_limit.bytes
    lifted = plan(f, X, W, **GIVEN, memory_limit="none")
    assert problem_of(lifted).memory_limit is None
    stated = plan(f, X, W, **GIVEN, memory_limit=10**6)
    assert (problem_of(stated).memory_limit, problem_of(stated).device_limit) == (10**6, False)


def test_a_limit_that_a_question_states_is_stated_in_its_plan(made: Plan) -> None:
    other = solve_again(made, Changed(memory_limit=10**6))
    assert other.memory_limit == ToldLimit(bytes=10**6, source="stated")
    assert {"kind": "memory_limit", "bytes": 10**6, "source": ""} in other.statements


def test_a_plan_with_other_statements_does_not_claim_the_search_over_meshes() -> None:
    found = plan(f, X, W, **{**GIVEN, "mesh": {"devices": 4, "axes": ["a", "b"]}})
    assert found.mesh_search is not None and found.instead("x", "[{}, {}]").other.mesh_search is None


# -- statements on other meshes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def turned() -> Plan:
    """x lies on a mesh with the devices in another order, w on one with another factorisation."""
    devices = np.array(jax.devices()[:8])
    other, flat = Mesh(devices[::-1].reshape(2, 4), ("a", "b")), Mesh(devices, ("all",))
    pins = [Pin("x", NamedSharding(other, P("a", "b"))), Pin("w", NamedSharding(flat, P("all")))]
    return plan(f, X, W, **{**GIVEN, "mesh": Mesh(devices.reshape(2, 4), ("a", "b"))}, constraints=pins)


def test_pins_on_another_mesh_keep_their_mesh_and_words_in_the_other_plan(turned: Plan) -> None:
    other = turned.instead("out", '[{"a"}, {}]').other
    pins = [s for s in other.statements if s["kind"] == "pin" and s["pattern"] in ("x", "w")]
    assert pins == [s for s in turned.statements if s["kind"] == "pin"]
    assert all(s["mesh"] and s["stated"] for s in pins)


def test_the_other_plan_is_in_the_same_order_of_devices_and_passes_the_checker(turned: Plan) -> None:
    other = turned.instead("out", '[{"a"}, {}]').other
    assert other.program.orders == turned.program.orders != ()
    assert check_plan(other.to_dict()).ok


def test_a_displaced_pin_takes_its_order_of_devices_with_it(turned: Plan) -> None:
    told = turned.instead("x", "[{}, {}]")
    assert len(told.replaced) == 1 and told.other.program.orders == ()
    assert check_plan(told.other.to_dict()).ok


def test_asking_for_what_a_pin_on_another_mesh_says_gives_the_plan(turned: Plan) -> None:
    told = turned.instead("x", turned["x"])
    assert told.replaced == () and abs(told.extra_s) <= turned.rounding_s + told.other.rounding_s
    assert told.other.program.orders == turned.program.orders
    assert check_plan(told.other.to_dict()).ok


def test_the_other_plan_runs(turned: Plan) -> None:
    other = turned.instead("out", '[{"a"}, {}]').other
    x, w = np.ones(X.shape, np.float32), np.full(W.shape, 0.01, np.float32)
    assert np.allclose(other.jit()(*other.place(x, w)), f(x, w), rtol=1e-4)


# -- no plan -----------------------------------------------------------------------------------------------------------


def test_where_no_plan_was_found_break_even_does_not_say_that_none_exists(
    made: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autoshard.questions import break_even as breakeven

    whole = breakeven.decide_again

    def nothing(plan: Plan, model: Any, *rest: Any, **options: Any) -> Any:
        if (model.problem.memory_limit or 1e12) < made.memory.peak_bytes:
            raise NotFoundError("no plan was found")
        return whole(plan, model, *rest, **options)

    monkeypatch.setattr(breakeven, "decide_again", nothing)
    told = break_even(made, "w", "memory")
    (flip,) = [f for f in told.flips if f.direction == "down"]
    assert flip.sharding is None and not flip.proved and flip.to_dict()["proved"] is False
    assert "no plan was found" in str(told) and "no plan exists" not in str(told)
