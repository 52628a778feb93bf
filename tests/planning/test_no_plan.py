"""No plan: *none exists* is proved and says so, *none was found* is another error, other words, another exit code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plan_cases import f32, mlp, problem, program_of

from autoshard import AutoshardError, InfeasibleError, NotFoundError, OutOfTimeError, Pin, plan, solver
from autoshard.cli import main
from autoshard.planning import Problem, build_model, decide, relaxations
from autoshard.questions.compare import compare_strategies
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution, Stopped

WIDE = (f32(64, 128), f32(128, 64), f32(32, 64))
GIVEN: dict[str, Any] = {"mesh": {"x": 2, "y": 2}, "hardware": "tpu_v5e", "argnames": ("w1", "w2", "x")}
ROOMY = 50_000
"""A limit within which there is a plan, but none of those that the search starts from."""


def refusal(*constraints: Pin, limit: int, **options: Any) -> AutoshardError:
    with pytest.raises(AutoshardError) as told:
        plan(mlp, *WIDE, constraints=constraints, memory_limit=limit, **{**GIVEN, **options})
    return told.value


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver loses every assignment within a memory limit, and proves nothing."""
    whole, any_at_all = solver.solve, solver.anything

    def without(found: Solution) -> Solution:
        stats = {"stopped": Stopped.EFFORT}
        return replace(found, assignment=None, cost=None, lower_bound=0, status="unknown", stats=stats)

    def solve(network: CostNetwork, **options: Any) -> Solution:
        found = whole(network, **options)
        return found if network.usage_limit is None else without(found)

    def anything(network: CostNetwork, dead_ends: int, **options: Any) -> Solution:
        return without(any_at_all(network, dead_ends, **options))

    monkeypatch.setattr(solver, "solve", solve)
    monkeypatch.setattr(solver, "anything", anything)


def peak() -> int:
    return plan(mlp, *WIDE, **GIVEN).memory.peak_bytes


def test_without_statements_none_are_spoken_of() -> None:
    told = refusal(limit=1_000)
    assert isinstance(told, InfeasibleError) and told.exit_code == 3
    assert str(told).startswith("no plan exists within the memory limit of 1000 bytes per device (proved): at least ")
    assert "pin" not in str(told) and "statement" not in str(told)
    assert told.conflict == ("memory limit of 1000 bytes per device",) and told.facts["proved"]


def test_statements_that_take_the_room_are_named_beside_the_limit() -> None:
    told = refusal(Pin("w1", "[{}, {}]", source="a.yaml:1"), Pin("x", "[{?}, {?}]", source="a.yaml:2"), limit=ROOMY)
    assert isinstance(told, InfeasibleError)
    assert f"{ROOMY} bytes per device and this statement cannot hold together (proved)" in str(told).splitlines()[0]
    assert "a.yaml:1" in str(told) and "a.yaml:2" not in str(told)


def test_statements_at_odds_are_told_to_be_proved() -> None:
    two = (Pin("w1", '[{"x"}, {}]'), Pin("w1", '[{"y"}, {}]'))
    told = refusal(*two, limit=10**9)
    assert isinstance(told, InfeasibleError) and told.facts["proved"] and len(told.conflict) == 2


def test_what_no_search_found_is_not_said_to_be_impossible(lost: None) -> None:
    limit = ROOMY
    told = refusal(limit=limit)
    assert isinstance(told, NotFoundError) and told.exit_code == 4
    head = str(told).splitlines()[0]
    assert head.startswith(
        f"no plan was found within the memory limit of {limit} bytes per device, and it is not proved"
    )
    assert "cannot hold" not in str(told) and "(proved)" not in str(told)
    assert told.facts["proved"] is False


def test_a_search_that_found_nothing_tells_the_best_seen_the_miss_and_the_bound(lost: None) -> None:
    limit = ROOMY
    facts = getattr(refusal(limit=limit), "facts")  # noqa: B009
    assert facts["limit_bytes"] == limit < facts["achieved_bytes"] <= peak()
    assert facts["missed_bytes"] == facts["achieved_bytes"] - limit
    assert 0 < facts["least_bytes"] <= limit


def test_the_smallest_plan_seen_is_the_smallest_that_the_message_speaks_of(lost: None) -> None:
    """Of the free optimum, the starts and what was found with more room."""
    told = refusal(limit=ROOMY)
    facts = getattr(told, "facts")  # noqa: B009
    limits = [r["found_bytes"] for r in facts["relaxations"] if r["kind"] == "limit"]
    assert facts["achieved_bytes"] <= min([peak(), *limits])
    assert f"the smallest plan seen holds {facts['achieved_bytes']} bytes" in str(told)


class Tried(relaxations._Searches):
    """Searches that find nothing, and know what they were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int | None] = []

    def peak_of_a_plan(self, problem: Problem) -> tuple[bool, int | None]:
        self.limits.append(problem.memory_limit)
        return True, None


@pytest.mark.parametrize(("bound", "tried"), [(100, [1101, 1501, 2002]), (2000, [2200, 3000, 4000])])
def test_limits_that_may_do_are_tried_above_the_limit_however_low_the_bound(bound: int, tried: list[int]) -> None:
    asked, searches = problem(program_of(mlp, *WIDE), {"x": 2, "y": 2}, memory_limit=1000), Tried()
    relaxations._limit(asked, bound, 1000, 5000, searches)
    assert searches.limits == tried


def test_a_search_without_explanation_says_the_same_in_short(lost: None) -> None:
    model = build_model(problem(program_of(mlp, *WIDE), {"x": 2, "y": 2}, memory_limit=ROOMY))
    with pytest.raises(NotFoundError, match="not proved that none exists"):
        decide(model)


def test_a_search_that_the_clock_ended_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solver.solve

    def late(network: CostNetwork, **options: Any) -> Solution:
        found = whole(network, **options)
        stats = {"stopped": Stopped.TIME}
        return replace(found, assignment=None, cost=None, lower_bound=0, status="unknown", stats=stats)

    monkeypatch.setattr(solver, "solve", late)
    with pytest.raises(OutOfTimeError, match="in the time given, and it is not proved that none exists") as told:
        decide(build_model(problem(program_of(mlp, *WIDE), {"x": 2})))
    assert not isinstance(told.value, NotFoundError)


def test_in_a_comparison_none_found_is_another_status_than_cannot_be(lost: None) -> None:
    model = build_model(problem(program_of(mlp, *WIDE), {"x": 2, "y": 2}, memory_limit=ROOMY))
    assert [row.status for row in compare_strategies(model, ["joint"]).rows] == ["none found"]


def test_in_a_comparison_cannot_be_is_proved() -> None:
    found = compare_strategies(build_model(problem(program_of(mlp, *WIDE), {"x": 2}, memory_limit=100)), ["joint"])
    assert [row.status for row in found.rows] == ["cannot be"] and "(proved)" in found.rows[0].reason


def test_a_search_over_meshes_that_proves_nothing_of_one_says_so(lost: None) -> None:
    limit = int(0.9 * min(plan(mlp, *WIDE, **{**GIVEN, "mesh": mesh}).memory.peak_bytes for mesh in (
        {"x": 1, "y": 2}, {"x": 2, "y": 1}
    )))  # fmt: skip
    told = refusal(limit=limit, mesh={"devices": 2, "axes": ["x", "y"]})
    assert isinstance(told, NotFoundError)
    assert "not proved that none exists" in str(told)


CONFIG = (
    "function: no_plan_program:f\nargs: {x: 'float32[64,64]', w: 'float32[64,64]'}\nmesh: {a: 2}\nhardware: tpu_v5e\n"
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "no_plan_program.py").write_text("import jax.numpy as jnp\ndef f(x, w):\n    return jnp.sort(x @ w)\n")
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG + "memory_limit: 20000\n")
    return file


def test_the_command_ends_with_3_where_none_exists(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(config), "--json"]) == 3
    out, error = capsys.readouterr()
    assert json.loads(out)["status"] == "infeasible" and "(proved)" in error


def test_the_command_ends_with_4_where_none_was_found(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autoshard.api import deciding

    def nothing(*args: Any, **options: Any) -> Any:
        raise NotFoundError("no plan was found", facts={"achieved_bytes": 3})

    monkeypatch.setattr(deciding, "decide_by", nothing)
    config.write_text(CONFIG)
    assert main(["solve", str(config), "--json"]) == 4
    out, _ = capsys.readouterr()
    told = json.loads(out)
    assert told["status"] == "not found" and told["facts"] == {"proved": False, "achieved_bytes": 3}


def test_the_help_lists_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "3 no plan exists (proved)" in told and "4 no plan was found" in told


def test_what_is_held_is_told_in_a_layout_of_as_many_bytes() -> None:
    """A gradient may be summed over devices: that partial sum is held as its parts, and they are what is told."""

    def step(w1: Any, w2: Any, x: Any) -> Any:
        first, second = jax.grad(lambda *w: jnp.sum(jnp.tanh(x @ w[0]) @ w[1]), (0, 1))(w1, w2)
        return w1 - first, w2 - second

    with pytest.raises(InfeasibleError) as told:
        plan(step, f32(64, 256), f32(256, 64), f32(128, 64), **GIVEN, memory_limit=30_000)
    lines = [line.split(maxsplit=3) for line in str(told.value).splitlines() if " bytes  " in line]
    assert len(lines) == 4
    assert not any("unreduced" in layout for *_, layout in lines)
