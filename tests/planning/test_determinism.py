"""The same input gives the same bytes, whatever the hash seed; limits and Ctrl-C give the best plan so far."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from plan_cases import f32, mlp

import autoshard
from autoshard import MaxReshards, Pin, plan
from autoshard.errors import OutOfTimeError
from autoshard.planning.memory_cap import held_bytes, memory_cap
from autoshard.verify import check_plan

SCRIPT = """
import sys
import jax, jax.numpy as jnp
from autoshard import AxisOnly, NoCollective, Pin, SameSharding, plan

def step(state, x):
    g = jax.grad(lambda w: jnp.square(jnp.tanh(x @ w["w1"]) @ w["w2"]).sum())(state)
    return jax.tree.map(lambda w, d: w - 0.1 * d, state, g)

def spec(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

found = plan(
    step, {"w1": spec(64, 64), "w2": spec(64, 64)}, spec(128, 64), mesh={"x": 2, "y": 2}, hardware="tpu_v5e",
    constraints=[Pin("x", '[{"x", ?}, {?}]', "a:1"), Pin("state/w1", '[{?}, {"y", ?}]', "a:2", priority=1),
                 SameSharding(["out/*"], "a:3"), NoCollective("y", "out/w1", "a:4")],
    memory_limit=160_000, effort=0.3, carry=False, argnames=("state", "x"),
)
found.save(sys.argv[1])
"""


def runs(count: int, folder: Path) -> list[bytes]:
    root = Path(autoshard.__file__).parents[1]
    found = []
    for seed in range(count):
        file = folder / f"{seed}.json"
        env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, "-c", SCRIPT, str(file)], check=True, env=env, timeout=300)
        found.append(file.read_bytes())
    return found


def test_plans_are_the_same_bytes_on_two_hash_seeds(tmp_path: Path) -> None:
    assert len(set(runs(2, tmp_path))) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_plans_are_the_same_bytes_on_twenty_hash_seeds(tmp_path: Path) -> None:
    assert len(set(runs(20, tmp_path))) == 1


MLP = (f32(64, 64), f32(64, 64), f32(512, 64))
PINS = [Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)]


def test_a_stop_between_stages_gives_the_best_plan_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.planning import stages

    calls = []

    def stop(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "build_model", stop)
    found = plan(mlp, *MLP, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", constraints=PINS)
    assert calls and not found.stages
    assert any("the user stopped the run" in note for note in found.notes)
    assert check_plan(found.to_dict()).ok


def test_the_search_ends_where_the_process_holds_too_much() -> None:
    assert held_bytes() > 10**6
    reached = []

    def wait() -> None:
        with memory_cap(10**6) as cap:
            reached.append(cap)
            for _ in range(200):
                time.sleep(0.05)

    with pytest.raises(OutOfTimeError, match="planning held more than 1000000 bytes"):
        wait()
    assert reached[0].reached
    with memory_cap(10**15) as cap:
        time.sleep(0.3)
    assert not cap.reached


def test_no_cap_starts_no_watcher() -> None:
    before = threading.active_count()
    with memory_cap(None):
        assert threading.active_count() == before


# -- repeated layers -----------------------------------------------------------------------------------------------


def layers(ws: Any, x: Any) -> Any:
    for w, v in ws:
        h = jnp.maximum(x @ w, 0.0)
        h = h * jnp.tanh(h) + 1.0
        x = x + h @ v - h.mean(axis=-1, keepdims=True)
    return x


def test_the_price_of_sharing_layers_is_told_and_sharing_can_be_left() -> None:
    specs = ([(f32(32, 64), f32(64, 32))] * 4, f32(64, 32))
    shared = plan(layers, *specs, mesh={"x": 2}, hardware="tpu_v5e", argnames=("ws", "x"))
    told = shared.sharing
    assert told is not None and told.shared > 0
    free = plan(layers, *specs, mesh={"x": 2}, hardware="tpu_v5e", argnames=("ws", "x"), share_repeats=False)
    assert free.sharing is None
    assert told.bound_s <= free.objective_s + 2 * free.rounding_s
    assert told.price_at_most_s >= shared.objective_s - free.objective_s - 2 * free.rounding_s
    assert shared.to_dict()["sharing"] == told.to_dict()


def test_counted_reshards_leave_layers_on_their_own() -> None:
    specs = ([(f32(32, 64), f32(64, 32))] * 4, f32(64, 32))
    asked: Any = {"mesh": {"x": 2}, "hardware": "tpu_v5e", "argnames": ("ws", "x")}
    pins = [Pin("x", '[{}, {"x"}]'), Pin("out", '[{"x"}, {}]')]
    free = plan(layers, *specs, **asked, constraints=pins)
    many = sum(bool(r.steps) for r in (*free.schedule.shared.values(), *free.schedule.uses.values()))
    found = plan(layers, *specs, **asked, constraints=[*pins, MaxReshards(many - 1)])
    assert free.sharing is not None and found.sharing is None
    assert sum(bool(r.steps) for r in (*found.schedule.shared.values(), *found.schedule.uses.values())) < many
