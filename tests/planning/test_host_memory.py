"""Inputs and outputs in host memory: where they live, what is held, what crosses the link, and a limit of its own."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import f32, machine, needless_copies, random_assignment, unsolved_plan

from autoshard import MemoryKind, Pin, plan
from autoshard.api.plans import Plan
from autoshard.api.verbs import ask
from autoshard.config import load_config
from autoshard.config.load import ConfigError
from autoshard.costs.price import price
from autoshard.errors import InfeasibleError, InputError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.planning import build_model, decide
from autoshard.solver.network import evaluate
from autoshard.verify import check_plan, verify_file

AXES = {"x": 2, "y": 4}
W = {"w1": f32(64, 128), "w2": f32(128, 64)}
STEP = ({"w": W, "m": W}, f32(256, 64))
BYTES = 2 * 64 * 128 * 4


def step(state: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.square(jnp.tanh(x @ w["w1"]) @ w["w2"]).sum() * 1e-3

    grads = jax.grad(loss)(state["w"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    return {"w": jax.tree.map(lambda w, m: w - 0.1 * m, state["w"], moments), "m": moments}


def planned(*stated: Any, donate: Any = (0,), **options: Any) -> Plan:
    options = {"mesh": AXES, "hardware": "tpu_v5e", **options}
    found = plan(step, *STEP, donate_argnums=donate, constraints=list(stated), **options)
    assert findings(found.to_dict()) == []
    return found


def findings(data: dict[str, Any]) -> list[str]:
    return list(map(str, check_plan(json.loads(json.dumps(data))).findings))


def test_outputs_in_the_place_of_donated_inputs_follow_them() -> None:
    program = planned(MemoryKind("state/m/**")).program
    assert [program.input_names[k] for k in sorted(program.host_inputs)] == ["state/m/w1", "state/m/w2"]
    assert [program.output_names[k] for k in sorted(program.host_outputs)] == ["out/m/w1", "out/m/w2"]


def test_both_ways_over_the_link_are_priced_and_told() -> None:
    found = planned(MemoryKind("state/m/**"), Pin("state/m/**", '[{"x"}, {"y"}]'))
    rows = [r for r in found.cost.rows if r.kind in ("to_device", "to_host")]
    local = BYTES / 2 / 8
    assert [(r.kind, r.bytes) for r in rows] == [("to_device", local)] * 2 + [("to_host", local)] * 2
    seconds = sum(r.seconds for r in rows)
    assert seconds == pytest.approx(4 * local / 1.5e10)  # book_tpu: PCIe of a chip
    assert found.cost.local_s >= seconds
    assert found.to_dict()["cost"]["step_time"]["resources_s"]["host link"] == pytest.approx(seconds)
    free = planned(Pin("state/m/**", '[{"x"}, {"y"}]'))
    assert free.objective_s < found.objective_s <= free.objective_s + seconds * (1 + 1e-6) + 1e-9


def test_a_device_holds_them_only_while_they_are_used() -> None:
    def found(*stated: Any) -> Plan:
        specs = (STEP[0], f32(16384, 64))  # many rows: the peak is where activations are held
        whole = Pin("state/m/**", "[{}, {}]")
        return plan(
            step, *specs, mesh=AXES, hardware="tpu_v5e", donate_argnums=(0,), constraints=[whole, *stated]
        )  # fmt: skip

    on_host, on_device = found(MemoryKind("state/m/**")), found()
    assert on_host.memory.host_bytes == BYTES and on_device.memory.host_bytes == 0
    assert on_host.memory.peak_bytes == on_device.memory.peak_bytes - BYTES
    assert "host_bytes" not in on_device.to_dict()["memory"]


def test_inputs_that_are_not_donated_and_outputs_are_held_beside_each_other() -> None:
    both = planned(MemoryKind("state/m/**"), MemoryKind("out/m/**"), Pin("state/m/**", "[{}, {}]"), donate=())
    outputs = sum(np.prod(found.local_shape((64, 128), both.schedule.mesh)) for found in both.output_layouts[:2]) * 4
    assert both.memory.host_bytes == BYTES + outputs


def test_it_runs_and_its_state_stays_on_the_host() -> None:
    found = planned(MemoryKind("state/m/**"))
    rng = np.random.default_rng(0)
    args = jax.tree.map(lambda t: jnp.asarray(rng.standard_normal(t.shape), t.dtype), STEP)
    wanted = jax.jit(step)(*args)
    run = found.jit()
    state = run(*jax.device_put(args, found.in_shardings))
    kinds = jax.tree.map(lambda a: a.sharding.memory_kind, state)
    assert set(jax.tree.leaves(kinds["m"])) == {"pinned_host"} and "pinned_host" not in jax.tree.leaves(kinds["w"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), state, wanted)
    run(state, args[1])  # the next step takes it as it is
    with pytest.raises(UnsupportedError, match="host memory"):
        found.lower("constraints")


def test_a_plan_file_keeps_it(tmp_path: Path) -> None:
    found = planned(MemoryKind("state/m/**"), memory_limit={"pinned_host": BYTES})
    found.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.to_dict() == found.to_dict()
    attached = again.attach(step, *STEP)
    assert attached.in_shardings[0]["m"]["w1"].memory_kind == "pinned_host"
    other = again.instead("state/m/w1", "[{}, {}]").other
    assert findings(other.to_dict()) == [] and other.memory.host_bytes <= BYTES


# -- limits --------------------------------------------------------------------------------------------------------


def test_the_host_has_a_limit_of_its_own() -> None:
    free = planned(MemoryKind("state/m/**"), Pin("state/w/**", "[{}, {}]"))
    least = BYTES // 8
    held = planned(
        MemoryKind("state/m/**"), Pin("state/w/**", "[{}, {}]"), memory_limit={"device": "1GB", "pinned_host": least}
    )
    assert held.memory.host_bytes == least <= free.memory.host_bytes
    with pytest.raises(InfeasibleError, match=f"at least {least} bytes are stated to live there"):
        planned(MemoryKind("state/m/**"), memory_limit={"pinned_host": least - 1})
    with pytest.raises(InfeasibleError):
        planned(MemoryKind("state/m/**"), Pin("state/m/w1", "[{}, {}]"), memory_limit={"pinned_host": least})


def test_all_assignments_agree_with_the_optimum_under_both_limits() -> None:
    def f(a: Any, w: Any) -> Any:
        return jnp.tanh(a) @ w, a * 2

    random = Random(1)
    judged = 0
    for profile, donated in itertools.product(("tpu_v5e", "h100"), ((), (0,))):
        traced = trace(f, f32(8, 8), f32(8, 4), donate_argnums=donated)
        asked = ask(
            traced, mesh={"x": 2, "y": 2}, hardware=machine({"x": 2, "y": 2}, profile),
            constraints=[MemoryKind("a"), MemoryKind("out/1")],
        )  # fmt: skip
        problem = replace(asked.problem, share_repeats=False)
        base = build_model(problem)
        network = base.repeats.network
        plans = []
        for _ in range(800):
            choice = random_assignment(network, random)
            assert choice is not None
            cost, held = evaluate(network, choice).cost, base.simulate(base.schedule(choice))
            assert cost is not None
            plans.append((cost * base.encoded.tick_s, held.peak_bytes, held.host_bytes))
        for device, host in ((None, 100), (None, 200), (400, 200), (300, 400)):
            fitting = [s for s, p, h in plans if h <= host and (device is None or p <= device)]
            try:
                decision = decide(build_model(replace(problem, memory_limit=device, host_limit=host)))
            except InfeasibleError:
                assert not fitting
                continue
            assert decision.memory.host_bytes <= host
            assert decision.bound_s <= decision.objective_s
            assert not fitting or decision.bound_s <= min(fitting) + 2 * decision.rounding_s
            judged += 1
    assert judged >= 8


@pytest.mark.parametrize("donated", [(), (0,)])
def test_random_plans_cost_and_hold_what_the_checker_says(donated: tuple[int, ...]) -> None:
    def f(w: Any, x: Any) -> Any:
        def layer(c: Any, wk: Any) -> Any:
            return jnp.tanh(c @ wk), c.sum()

        last, sums = jax.lax.scan(layer, x, w)
        return w * 2.0, last, sums, x

    traced = trace(f, f32(3, 8, 8), f32(4, 8), donate_argnums=donated)
    stated = [MemoryKind("w"), MemoryKind("out/0"), MemoryKind("out/1")]
    asked = ask(traced, mesh={"x": 2, "y": 2}, hardware="tpu_v5e", constraints=stated)
    model = build_model(asked.problem)
    random, checked = Random(3), 0
    for _ in range(30):
        assignment = random_assignment(model.repeats.network, random)
        assert assignment is not None
        if needless_copies(model, assignment):
            continue
        schedule, problem = model.schedule(assignment), model.problem
        cost = price(problem.program, schedule, model.fusion, model.prices)
        extra = model.memory_price_s(assignment)
        found = evaluate(model.repeats.network, assignment).cost
        assert found is not None
        assert abs(found * model.encoded.tick_s - cost.step_s - extra) <= 2 * model.encoded.rounding_s
        made = unsolved_plan(model, assignment, statements=asked.statements)
        assert findings(made.to_dict()) == []
        checked += 1
    assert checked >= 8


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (MemoryKind("tanh"), "names values that ops make"),
        (MemoryKind("nothing"), "matches no value"),
        (MemoryKind("out/m/**"), "takes the place of the donated input state/m/w1"),
    ],
)
def test_what_cannot_live_there_is_refused(stated: MemoryKind, said: str) -> None:
    with pytest.raises(InputError, match=said):
        planned(stated)


def test_a_profile_without_a_host_link_is_refused() -> None:
    with pytest.raises(InputError, match=r"does not say how fast the link to the host is.*memory\.host_link"):
        planned(MemoryKind("state/m/**"), hardware="tpu_v3")


def test_other_memories_are_refused() -> None:
    with pytest.raises(InputError, match="none of device, pinned_host"):
        MemoryKind("x", "unpinned_host")
    with pytest.raises(InputError, match="limits are for device and pinned_host, found 'hbm'"):
        planned(memory_limit={"hbm": 100})
    with pytest.raises(InputError, match="pinned_host: give an amount"):
        planned(memory_limit={"pinned_host": "50%"})


def test_the_checker_finds_other_claims() -> None:
    data = planned(MemoryKind("state/m/**"), memory_limit={"pinned_host": BYTES}).to_dict()
    data = json.loads(json.dumps(data))
    data["memory"]["host_bytes"] += 4
    assert any("memory.host_bytes" in t for t in findings(data))
    data["program"]["host"]["inputs"].pop()
    assert any("is stated to live on the host" in t for t in findings(data))
    for statement in data["statements"]:
        if statement["kind"] == "host_memory_limit":
            statement["bytes"] = 10
    assert any("limit of 10 bytes of pinned_host" in t for t in findings(data))


def test_configs_state_memories_and_limits(tmp_path: Path) -> None:
    from autoshard.api.session import plan_config
    from autoshard.config.problem import build_problem

    file = tmp_path / "c.yaml"
    text = (
        "model: {name: mlp, batch: 16}\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\n"
        "memory_kinds: {'state/opt/**': pinned_host}\n"
        "memory_limit: {device: 90%, pinned_host: 1GiB}\n"
    )
    file.write_text(text)
    config = load_config(file)
    found = plan_config(config, build_problem(config))
    assert findings(found.to_dict()) == []
    assert found.memory.host_bytes > 0
    found.save(tmp_path / "plan.json")
    verified = verify_file(tmp_path / "plan.json")
    assert verified.ok, str(verified)
    kinds = [s["kind"] for s in found.statements]
    assert kinds == ["memory_kind", "memory_limit", "host_memory_limit"]
    for wrong, said in (
        ("pinned_host: 1GiB", "unpinned: 1GiB"),
        ("'state/opt/**': pinned_host", "'state/opt/**': hbm"),
        ("90%", "-3"),
        ("1GiB", "50%"),
    ):
        file.write_text(text.replace(wrong, said))
        with pytest.raises(ConfigError, match="memory_"):
            load_config(file)


def test_an_input_on_the_host_that_nothing_reads_stays_there() -> None:
    """It holds nothing on the device and crosses no link."""

    def unread(kept: Any, x: Any) -> tuple[Any, Any]:
        return kept["handed back"], jnp.tanh(x)

    kept = {"unread": f32(64, 64), "handed back": f32(64, 64)}
    found = plan(
        unread, kept, f32(64, 64), mesh=AXES, hardware="tpu_v5e",
        constraints=[MemoryKind("kept/**"), MemoryKind("out/0")],
        memory_limit={"device": 2 * 64 * 64 * 4 // 8, "pinned_host": 2 * 64 * 64 * 4 // 8},
    )  # fmt: skip
    assert found.memory.peak_bytes == found.memory.host_bytes == 2 * 64 * 64 * 4 // 8
    assert not [row for row in found.cost.rows if row.kind in ("to_device", "to_host")]
    assert findings(found.to_dict()) == []


def test_of_several_memories_stated_for_one_value_the_last_holds() -> None:
    host, device = MemoryKind("state/m/**"), MemoryKind("state/m/**", "device")
    pin = Pin("state/m/**", "[{}, {}]")
    assert planned(host, device, pin).memory.host_bytes == 0
    assert planned(device, host, pin).memory.host_bytes == BYTES
