"""`autoshard.jit`: planned at the first call, run as planned, kept for the next process."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.api import kept, verbs
from autoshard.errors import InputError
from autoshard.solver.solution import Stopped

MESH = {"data": 2, "model": 4}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(kept.FOLDER, str(tmp_path / "plans"))
    return tmp_path / "plans"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Requests that were planned."""
    seen: list[Any] = []
    whole = verbs.plan_request

    def counting(request: Any) -> Any:
        seen.append(request)
        return whole(request)

    monkeypatch.setattr(verbs, "plan_request", counting)
    return seen


def train(weights: dict[str, Any], x: Any, *, rate: float = 0.1) -> tuple[dict[str, Any], Any]:
    def loss(w: dict[str, Any]) -> Any:
        return jnp.mean((jnp.tanh(x @ w["up"]) @ w["down"] - x) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - rate * g, weights, gradient), value


def arguments() -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(0)
    shapes = {"up": (64, 256), "down": (256, 64)}
    weights = {name: jnp.asarray(random.normal(size=shape), jnp.float32) / 8 for name, shape in shapes.items()}
    return weights, jnp.asarray(random.normal(size=(32, 64)), jnp.float32)


@pytest.mark.smoke
def test_three_steps_of_a_loop_are_those_of_one_device(counted: list[Any]) -> None:
    planned = autoshard.jit(train, mesh=MESH, hardware="cpu_sim", donate_argnums=0)
    weights, x = arguments()
    expected, found = weights, jax.tree.map(jnp.copy, weights)
    for _ in range(3):
        expected, loss = jax.jit(train)(expected, x)
        found, told = planned(found, x)
        np.testing.assert_allclose(told, loss, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)
    assert len(counted) == 1
    assert found["up"].sharding.is_equivalent_to(planned.plan.in_shardings[0]["up"], 2)


def test_other_shapes_and_static_values_are_planned_anew(counted: list[Any]) -> None:
    @autoshard.jit(mesh={"data": 2}, hardware="cpu_sim", static_argnames="power", keep=False)
    def f(x: Any, power: int) -> Any:
        return x**power

    assert f(jnp.full(4, 3.0), power=2).tolist() == [9.0] * 4
    assert f(jnp.full(4, 2.0), power=2).tolist() == [4.0] * 4
    assert len(counted) == 1
    assert f(jnp.full(4, 2.0), power=3).tolist() == [8.0] * 4
    assert f(jnp.full(8, 2.0), power=3).shape == (8,)
    assert len(counted) == 3


def test_a_plan_is_kept_for_the_next_function_that_is_the_same(counted: list[Any], folder: Path) -> None:
    first = autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    again = autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    assert len(counted) == 1 and len(list(folder.glob("*.json"))) == 1
    assert again.to_dict() == first.to_dict()


def test_whatever_changes_a_plan_makes_another_one(counted: list[Any]) -> None:
    words: list[dict[str, Any]] = [
        {"mesh": MESH, "hardware": "cpu_sim"},
        {"mesh": {"data": 4, "model": 2}, "hardware": "cpu_sim"},
        {"mesh": MESH, "hardware": "tpu_v5e"},
        {"mesh": MESH, "hardware": "cpu_sim", "constraints": autoshard.Pin("x", '[{"data"}, {}]')},
        {"mesh": MESH, "hardware": "cpu_sim", "memory_limit": "1GiB"},
        {"mesh": MESH, "hardware": "cpu_sim", "seed": 3},
        {"mesh": MESH, "hardware": "cpu_sim", "donate_argnums": 0},
    ]
    for asked in words:
        autoshard.jit(train, **asked).planned(*arguments())
    assert len(counted) == len(words)


def test_code_behind_a_link_counts_as_that_of_the_folder(tmp_path: Path) -> None:
    own, beside = tmp_path / "own", tmp_path / "beside"
    own.mkdir()
    beside.mkdir()
    (own / "linked").symlink_to(beside)
    before = kept.source_key(own)
    (beside / "code.py").write_text("x = 1\n")
    assert kept.source_key(own) != before


@pytest.mark.parametrize("part", ["}", '"input_names": [', '"args": [', '"schedule": {', "}\n"])
def test_a_kept_plan_that_is_damaged_is_made_again(counted: list[Any], folder: Path, part: str) -> None:
    autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    (file,) = folder.glob("*.json")
    damage = {'"input_names": [': '"input_names": ["w", ', '"args": [': '"args": [0, ', '"schedule": {': '"odd": {'}
    assert part in file.read_text()
    file.write_text(file.read_text().replace(part, damage.get(part, ""), 1))
    autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    assert len(counted) == 2 and len(file.read_text()) > 1000


def test_a_kept_plan_that_was_changed_and_still_is_a_plan_is_made_again(counted: list[Any], folder: Path) -> None:
    first = autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    (file,) = folder.glob("*.json")
    changed = file.read_text().replace('"name": "train"', '"name": "other"')
    file.write_text(changed)
    assert autoshard.Plan.load(file).program.name == "other"
    again = autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    assert len(counted) == 2 and again.to_dict() == first.to_dict()


def test_nothing_is_kept_where_that_is_not_wanted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    autoshard.jit(train, mesh=MESH, hardware="cpu_sim", keep=False).planned(*arguments())
    monkeypatch.setenv(kept.FOLDER, "")
    autoshard.jit(train, mesh=MESH, hardware="cpu_sim").planned(*arguments())
    assert not folder.exists()


@pytest.mark.parametrize("run", [{"interrupted": True}, {"rounds": [{"stopped": Stopped.TIME}]}])
def test_a_plan_whose_search_was_cut_short_is_not_kept(folder: Path, run: dict[str, Any]) -> None:
    plan = autoshard.plan(lambda x: x * 2, jnp.ones(8), mesh={"a": 2}, hardware="cpu_sim")
    kept.keep("short", replace(plan, run=run))
    assert not folder.exists()
    kept.keep("whole", plan)
    assert [file.stem for file in folder.iterdir()] == ["whole"]


def test_only_kept_plans_are_deleted_from_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_KEPT", 1)
    folder.mkdir()
    other, old, half = (folder / name for name in ("mine.json", f"{'0' * 32}.json", f".{'1' * 32}.json.x.part"))
    for file in (other, old, half):
        file.write_text("{}")
        os.utime(file, (1, 1))
    writing = folder / f".{'2' * 32}.json.x.part"
    writing.write_text("{")
    plan = autoshard.plan(lambda x: x * 2, jnp.ones(8), mesh={"a": 2}, hardware="cpu_sim")
    kept.keep("3" * 32, plan)
    assert {file.name for file in folder.iterdir()} == {other.name, writing.name, f"{'3' * 32}.json"}


def test_a_search_to_its_time_limit_is_not_answered_by_one_that_spent_its_effort(counted: list[Any]) -> None:
    for words in ({}, {"time_limit": 600}, {"time_limit": 600}, {"time_limit": 600, "effort": 1.0}):
        autoshard.jit(train, mesh=MESH, hardware="cpu_sim", **words).planned(*arguments())
    assert len(counted) == 2


@pytest.mark.smoke
def test_lower_and_compile_are_as_in_jax() -> None:
    planned = autoshard.jit(train, mesh=MESH, hardware="cpu_sim", keep=False)
    weights, x = arguments()
    compiled = planned.lower(weights, x).compile()
    assert "all-" in compiled.as_text() or planned.plan.cost.communication_s == 0
    np.testing.assert_allclose(compiled(weights, x)[1], train(weights, x)[1], rtol=1e-5)


@pytest.mark.smoke
def test_without_mesh_and_machine_those_of_the_devices_are_taken() -> None:
    planned = autoshard.jit(lambda x, w: x @ w, keep=False)
    x, w = jnp.ones((64, 32)), jnp.ones((32, 16))
    assert planned(x, w)[0, 0] == 32
    plan = planned.plan
    assert plan.machine.profile.name == "cpu_sim" and plan.schedule.mesh.mesh.size == len(jax.devices())


def test_a_mesh_is_searched_for_the_quickest_plan_and_not_within_less_memory() -> None:
    asked: dict[str, Any] = {"mesh": {"devices": 4, "axes": ["data", "model"]}, "hardware": "cpu_sim"}
    of_jit: list[str] = []
    of_plan: list[str] = []
    called = autoshard.jit(train, **asked, progress=of_jit.append).planned(*arguments())
    planned = autoshard.plan(train, *arguments(), **asked, progress=of_plan.append)
    assert called.objective_s == planned.objective_s
    assert any(" within " in text for text in of_plan)
    assert not any(" within " in text for text in of_jit)


def test_before_the_first_call_there_is_no_plan() -> None:
    with pytest.raises(InputError, match="train has no plan yet"):
        _ = autoshard.jit(train, mesh=MESH).plan
    with pytest.raises(InputError, match="jit takes a function, found int"):
        autoshard.jit(3)


def test_a_second_process_starts_from_the_kept_plan(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        "import jax.numpy as jnp, autoshard\n"
        "from autoshard.api import verbs\n"
        "made = []\n"
        "whole = verbs.plan_request\n"
        "verbs.plan_request = lambda request: made.append(1) or whole(request)\n"
        "f = autoshard.jit(lambda x, w: jnp.tanh(x @ w), mesh={'a': 8}, hardware='cpu_sim')\n"
        "print(float(f(jnp.ones((8, 4)), jnp.zeros((4, 8))).sum()), len(made))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent)}
    told = [
        subprocess.run(
            [sys.executable, tmp_path / "twice.py"], env=environment, capture_output=True, text=True, check=True,
            timeout=200,
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert told == [["0.0", "1"], ["0.0", "0"]]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_are_arguments_and_results(impl: str, counted: list[Any]) -> None:
    def noisy(key: Any, x: Any) -> tuple[Any, Any]:
        key, one = jax.random.split(key)
        return key, x + jax.random.normal(one, x.shape)

    planned = autoshard.jit(noisy, mesh=MESH, hardware="cpu_sim")
    here = there = jax.random.key(3, impl=impl)
    x = jnp.ones((32, 64))
    for _ in range(2):
        here, wanted = jax.jit(noisy)(here, x)
        there, found = planned(there, x)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert (jax.random.key_data(here) == jax.random.key_data(there)).all()
    assert len(counted) == 1


def averaged(state: Any, x: jax.Array) -> Any:
    weights = state["weights"] - 0.1 * x.T @ (x @ state["weights"])
    return {"weights": weights, "average": 0.9 * state["average"] + 0.1 * weights}


@pytest.mark.parametrize("layout", ["[{}, {}]", '[{"data"}, {"model"}]'])
@pytest.mark.parametrize("by", ["autoshard.jit", "plan.jit"])
def test_a_donated_state_may_begin_with_one_array_in_two_places(by: str, layout: str) -> None:
    weights, x = jnp.eye(16), jnp.ones((8, 16))
    pins = [autoshard.Pin(f"state/{name}", layout) for name in ("weights", "average")]
    asked: dict[str, Any] = {"mesh": MESH, "hardware": "cpu_sim", "donate_argnums": 0, "constraints": pins}
    expected = jax.jit(averaged)({"weights": weights, "average": weights}, x)
    begin = {"weights": weights, "average": weights}
    planned = (
        autoshard.jit(averaged, **asked) if by == "autoshard.jit" else autoshard.plan(averaged, begin, x, **asked).jit()
    )
    found = planned(begin, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)


def test_a_donated_array_may_be_another_argument_too_and_stays() -> None:
    weights, x = jnp.eye(16), jnp.ones((8, 16))
    pins = [autoshard.Pin(name, "[{}, {}]") for name in ("weights", "target")]

    def step(weights: jax.Array, target: jax.Array, x: jax.Array) -> jax.Array:
        return weights - 0.1 * x.T @ (x @ (weights - 2 * target))

    planned = autoshard.jit(step, mesh=MESH, hardware="cpu_sim", donate_argnums=0, constraints=pins)
    np.testing.assert_allclose(planned(weights, weights, x), step(weights, weights, x), rtol=1e-5)


def test_settings_by_which_jax_traces_have_plans_of_their_own(counted: list[Any]) -> None:
    planned = autoshard.jit(lambda x: x @ x + jnp.arange(16) / 3, mesh=MESH, hardware="cpu_sim")
    x = jnp.eye(16)
    assert planned(x).dtype == jnp.float32
    with jax.enable_x64(True):
        assert planned(x).dtype == jnp.float64
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in planned.lower(x).as_text()
    assert "HIGHEST" not in planned.lower(x).as_text()
    assert len(counted) == 3  # matmuls of another precision move other bytes on machines as their compiler runs them
