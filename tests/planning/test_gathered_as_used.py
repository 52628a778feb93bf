"""A value that several matmuls convert is gathered once for them, converted; the rest reads it as it is made."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import f32, problem, program_of
from test_memory_laws import assert_the_same_bytes

import autoshard
from autoshard.constraints import MaxReshards, Pin
from autoshard.costs.apart import fusion_on
from autoshard.costs.liveness import analyse
from autoshard.costs.memory import Held, holdings
from autoshard.costs.travel import Travels
from autoshard.errors import InputError
from autoshard.planning import build_model
from autoshard.program.as_json import schedule_from_json, schedule_to_json
from autoshard.verify import check_plan

PINS = [Pin("d", '[{"x"}, {}]'), Pin("w", '[{}, {"x"}]'), Pin("x", '[{}, {"x"}]')]
"""The matmuls want all rows of d: their other operands are cut along what is left of them."""


def step(d: Any, w: Any, x: Any) -> Any:
    d = jnp.tanh(d)
    return d @ w, x.T @ d, jnp.sum(d * d, axis=1)


SPECS = f32(256, 512), f32(512, 2048), f32(256, 2048)


def planned(function: Callable[..., Any] = step, *, pins: Any = PINS, **words: Any) -> Any:
    words = {"mesh": {"x": 4}, "hardware": "tpu_v5e@compiler", "memory_limit": "none", **words}
    return autoshard.plan(function, *SPECS, constraints=pins, argnames=("d", "w", "x"), **words)


@pytest.fixture(scope="module")
def plan() -> Any:
    return planned()


def gathers_of_d(plan: Any) -> list[Any]:
    made = next(op.results[0] for op, _ in plan.program.walk() if op.kind == "tanh")
    return [row for row in plan.cost.rows if row.value == made and row.kind == "all_gather"]


def test_it_is_gathered_once_at_half_its_bytes(plan: Any) -> None:
    assert [row.bytes for row in gathers_of_d(plan)] == [256 * 512 * 2]


def test_without_other_types_than_its_own_it_is_gathered_whole() -> None:
    plain = planned(hardware="tpu_v5e")
    assert not plain.schedule.as_used
    assert [row.bytes for row in gathers_of_d(plain)] == [256 * 512 * 4]


def test_matmuls_that_ask_for_full_precision_take_it_whole() -> None:
    with jax.default_matmul_precision("highest"):
        exact = planned()
    assert not exact.schedule.as_used
    assert [row.bytes for row in gathers_of_d(exact)] == [256 * 512 * 4]
    assert check_plan(exact.to_dict()).findings == ()


def test_nothing_is_sliced_for_what_reads_it_as_it_is_defined(plan: Any) -> None:
    (value,) = plan.schedule.as_used
    assert [row.kind for row in plan.cost.rows if row.value == value] == ["all_gather"]


def test_for_a_tpu_only_the_matmuls_read_what_is_gathered(plan: Any) -> None:
    assert plan.lower().stablehlo("tpu").count("dynamic_slice") < plan.lower().stablehlo("cpu").count("dynamic_slice")


def holdings_of_d(plan: Any) -> dict[str, Held]:
    (value,) = plan.schedule.as_used
    fusion = fusion_on(plan.program, plan.machine.profile)
    held = holdings(plan.program, plan.schedule, analyse(plan.program, fusion))
    return {item.what: item for item in held if item.value == value}


def test_memory_holds_it_in_the_type_in_which_it_is_gathered(plan: Any) -> None:
    (copy,) = [item for what, item in holdings_of_d(plan).items() if what.endswith("for all its uses")]
    assert copy.bytes == 256 * 512 * 2


def test_memory_holds_what_it_is_made_of_until_the_last_use() -> None:
    def ordered(d: Any, w: Any, x: Any) -> Any:
        d = jnp.sort(d, axis=1)
        return d @ w, x.T @ d, jnp.exp(d)

    held = holdings_of_d(planned(ordered))
    (whole,) = [item for item in held.values() if not item.copy]
    (copy,) = [item for what, item in held.items() if what.endswith("for all its uses")]
    assert (whole.bytes, copy.bytes) == (256 * 512, 256 * 512 * 2)
    assert whole.stop == copy.stop


def carried(d: Any, w: Any, x: Any) -> Any:
    """The carry of a loop is read by two matmuls, and as it is."""
    return jax.lax.scan(lambda c, _: (c + (c @ w) @ w.T + x @ (x.T @ c), jnp.sum(c)), d, None, length=3)


def updated(d: Any, w: Any, x: Any) -> Any:
    """A parameter that two matmuls read is updated as it lies."""
    return d @ w, x.T @ d, d - 0.1 * (x @ w.T)


@pytest.mark.parametrize("function", [step, carried, updated])
def test_network_and_simulation_say_the_same_bytes_of_it(function: Any) -> None:
    program = program_of(function, f32(64, 32), f32(32, 128), f32(64, 128), donate_argnums=(0,))
    model = build_model(problem(program, {"x": 4}, profile="tpu_v5e@compiler"))
    assert any(node.defined_in is not None for node in model.collected.nodes)
    assert_the_same_bytes(model, 60)


def test_a_limit_without_room_for_a_copy_in_its_own_type_leaves_it(plan: Any) -> None:
    within = planned(memory_limit=plan.memory.peak_bytes)
    assert within.objective_s == plan.objective_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Travels, "converting", lambda self, value: frozenset())
        assert planned(memory_limit=plan.memory.peak_bytes).objective_s > planned().objective_s


def test_the_checker_finds_the_same_prices(plan: Any) -> None:
    assert check_plan(plan.to_dict()).findings == ()


def test_it_runs_as_the_function_does(plan: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s.shape).astype(np.float32) for s in SPECS]
    found = plan.lower().jit()(*arrays)
    for a, b in zip(found, step(*arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-4)


def test_explain_says_who_reads_what_is_gathered(plan: Any) -> None:
    (value,) = plan.schedule.as_used
    (told,) = plan.explain(plan.program.values[value].name)
    assert "resharded once for the ops that convert it; all else has it as it is made" in str(told)


def test_the_schedule_keeps_it_in_json(plan: Any) -> None:
    data = schedule_to_json(plan.schedule)
    assert schedule_from_json(data, plan.schedule.mesh, plan.program) == plan.schedule


def test_a_plan_that_says_so_of_a_value_without_a_gathered_form_is_refused(plan: Any) -> None:
    data = schedule_to_json(plan.schedule) | {"as_used": [plan.program.body.args[1]]}
    with pytest.raises(InputError, match="said to be gathered as it is used, and has no gathered form"):
        schedule_from_json(data, plan.schedule.mesh, plan.program)


def findings(plan: Any, change: Callable[[Any], None]) -> str:
    data = plan.to_dict()
    change(data["schedule"])
    return "\n".join(map(str, check_plan(data).findings))


def test_the_checker_catches_that_it_is_not_said(plan: Any) -> None:
    assert "all_gather over x: the plan says 262144.0 bytes, it is 524288.0" in findings(
        plan, lambda schedule: schedule.pop("as_used")
    )


def test_the_checker_catches_a_value_that_shares_no_form(plan: Any) -> None:
    assert "is said to be gathered as it is used, but shares no form" in findings(
        plan, lambda schedule: schedule["as_used"].append(0)
    )


def test_the_checker_catches_another_use_that_reads_what_is_gathered(plan: Any) -> None:
    (value,) = plan.schedule.as_used

    def keep(schedule: Any) -> None:
        square = next(op for op, _ in plan.program.walk() if op.kind in ("mul", "square") and value in op.operands)
        for use in schedule["uses"]:
            if use["op"] == square.id:
                use["steps"] = []

    assert "is gathered as others convert it, so it must arrive as it is defined" in findings(plan, keep)


def test_the_checker_catches_a_way_back_on_which_devices_send(plan: Any) -> None:
    """Slices alone cost nothing: nobody would list, or price, an all-to-all behind one."""

    def send(schedule: Any) -> None:
        for use in schedule["uses"]:
            for sliced in list(use["steps"]):
                use["steps"] = [{**sliced, "dim": 1}, {**sliced, "kind": "all_to_all", "dim": 1, "to_dim": 0}]

    assert 'as it is defined, [{"x"}, {}], by slices alone, not in [{"x"}, {}] by slice, all_to_all' in findings(
        plan, send
    )


def test_the_checker_catches_a_value_that_one_op_alone_converts() -> None:
    def once(d: Any, w: Any, x: Any) -> Any:
        d = jnp.tanh(d)
        return d @ w, x, jnp.sum(d * d, axis=1), jnp.exp(d)

    plan = planned(once, pins=[*PINS, Pin("out/3", "[{}, {}]")])
    assert not plan.schedule.as_used
    (value,) = plan.schedule.shared
    told = findings(plan, lambda schedule: schedule.update(as_used=[value]))
    assert "on this machine no two ops convert it beside others" in told


def test_the_checker_lets_it_be_gathered_over_two_axes_at_once() -> None:
    """What one axis cuts moves first: both rings of the torus work at the gather."""
    both, each = '[{}, {"a", "b"}]', '[{"a"}, {"b"}]'
    pins = [Pin("d", each), Pin("w", both), Pin("x", both), Pin("out/2", each)]
    torus = autoshard.plan(
        lambda d, w, x: (d @ w, x.T @ d, jnp.exp(d)), f32(256, 512), f32(512, 8192), f32(256, 8192),
        mesh={"a": 2, "b": 2}, hardware="tpu_v5e@compiler", memory_limit="none", constraints=pins,
        argnames=("d", "w", "x"),
    )  # fmt: skip
    (value,) = torus.schedule.as_used
    assert [step.kind for step in torus.schedule.shared[value].steps] == ["all_to_all", "all_gather"]
    assert check_plan(torus.to_dict()).findings == ()


def test_a_count_that_it_keeps_leaves_it_as_it_is() -> None:
    free, counted = planned(), planned(pins=[*PINS, MaxReshards(60)])
    assert free.schedule.as_used and counted.schedule == free.schedule
    assert check_plan(counted.to_dict()).findings == ()


def test_where_reshards_are_few_it_is_gathered_whole() -> None:
    free = planned()
    many = sum(bool(way.steps) for way in (*free.schedule.shared.values(), *free.schedule.uses.values()))
    counted = planned(pins=[*PINS, MaxReshards(many - 1)])
    assert not counted.schedule.as_used
    assert check_plan(counted.to_dict()).findings == ()


def test_what_comes_last_is_handed_out_as_it_is_defined() -> None:
    def hand(d: Any, w: Any, x: Any) -> Any:
        d = jnp.tanh(d)
        return d @ w, x.T @ d, d

    plan = planned(hand, pins=[*PINS, Pin("out/2", '[{"x"}, {}]')])
    assert len(plan.schedule.as_used) == 1
    assert [row.bytes for row in gathers_of_d(plan)] == [256 * 512 * 2]
    assert check_plan(plan.to_dict()).findings == ()


@settings(max_examples=15, deadline=None)
@given(
    matmuls=st.integers(2, 3),
    others=st.lists(st.sampled_from(["exp", "out", "rows", "sum", "scan"]), min_size=1, max_size=2),
    rows=st.sampled_from([256, 1024, 2048]), mesh=st.sampled_from([{"x": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 4}]),
    chip=st.sampled_from(["v5e", "v5p", "v6e"]), share=st.sampled_from([None, None, 0.98, 0.9]),
    objective=st.sampled_from(["serial", "overlap"]),
)  # fmt: skip
def test_plans_are_no_dearer_for_it_and_the_checker_agrees(
    matmuls: int, others: list[str], rows: int, mesh: Any, chip: str, share: float | None, objective: str
) -> None:
    def drawn(d: Any, w: Any, x: Any) -> Any:
        d = jnp.tanh(d)
        out = [(d * (k + 1.0)) @ w if k == 2 else x.T @ d if k else d @ w for k in range(matmuls)]
        for other in others:
            if other == "scan":
                out.append(jax.lax.scan(lambda c, row: (c + row, jnp.sum(row)), jnp.zeros(256), d)[1])
            else:
                out.append({"sum": jnp.sum(d, axis=0), "rows": jnp.sum(d, axis=1), "exp": jnp.exp(d), "out": d}[other])
        return tuple(out)

    specs = f32(rows, 256), f32(256, 2048), f32(rows, 1024)
    axes = ", ".join(f'"{axis}"' for axis in mesh)
    pins = [Pin("d", f"[{{{axes}}}, {{}}]"), *(Pin(name, f"[{{}}, {{{axes}}}]") for name in "wx")]

    def solve(limit: Any) -> Any:
        return autoshard.plan(
            drawn, *specs, mesh=mesh, hardware=f"tpu_{chip}@compiler", objective=objective, memory_limit=limit,
            constraints=pins, argnames=("d", "w", "x"),
        )  # fmt: skip

    plan, limit = solve("none"), "none"
    if share is not None:
        limit = int(plan.memory.peak_bytes * share)
        try:
            plan = solve(limit)
        except autoshard.InfeasibleError:
            return
    assert check_plan(plan.to_dict()).findings == ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Travels, "converting", lambda self, value: frozenset())
        try:
            whole = solve(limit)
        except autoshard.InfeasibleError:  # whole copies take more
            return
    assert plan.status == whole.status == "optimal"
    assert plan.objective_s <= whole.objective_s * (1 + 1e-7)
