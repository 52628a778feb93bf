"""A train step over scanned layers, and schedules of it whose memory depends on how a compiler orders it."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import autoshard
from autoshard.api.plans import Plan
from autoshard.costs import fusion, liveness
from autoshard.costs.memory import simulate
from autoshard.costs.ordering import order_to_keep
from autoshard.program.order import Order
from autoshard.program.schedule import Schedule
from autoshard.sharding.steps import Reshard, StepKind

LAYERS, WIDTH, HIDDEN, WORDS, ROWS = 4, 32, 128, 512, 4096
PARAMS = {"layers": {"a": (LAYERS, WIDTH, HIDDEN), "b": (LAYERS, HIDDEN, WIDTH)}, "head": (WIDTH, WORDS)}
WHOLE_A = {"params/layers/a": "[{}, {}, {}]", "mu/layers/a": '[{}, {}, {"data"}]'}
CUT = {
    "params/layers/b": '[{}, {}, {"data"}]', "mu/layers/b": '[{}, {}, {"data"}]', "x": '[{"data"}, {}]',
    "params/head": '[{}, {"data"}]',
}  # fmt: skip


def loss(params: Any, x: Any) -> Any:
    """Scanned layers, then an output head whose gradient the layers' backward pass does not need."""

    def layer(h: Any, w: Any) -> Any:
        return h + jnp.tanh(h @ w["a"]) @ w["b"], None

    h, _ = lax.scan(layer, x, params["layers"])
    return jnp.sum(jnp.tanh(h @ params["head"]) ** 2) / ROWS


def step(params: Any, mu: Any, x: Any) -> Any:
    """One step of momentum."""
    value, g = jax.value_and_grad(loss)(params, x)
    mu = jax.tree.map(lambda m, d: 0.9 * m + d, mu, g)
    return jax.tree.map(lambda w, m: w - 0.1 * m, params, mu), mu, value


def arrays(seed: int = 0) -> tuple[Any, Any, Any]:
    """Arguments of `step`."""
    keys = iter(jax.random.split(jax.random.key(seed), 9))
    params, mu = (
        jax.tree.map(lambda s: 0.1 * jax.random.normal(next(keys), s), PARAMS, is_leaf=lambda s: isinstance(s, tuple))
        for _ in range(2)
    )
    return params, mu, jax.random.normal(next(keys), (ROWS, WIDTH))


@cache
def planned() -> Plan:
    """`step` on eight devices: `a` whole between steps, its momentum and everything else cut."""
    specs = jax.eval_shape(arrays)
    return autoshard.plan(
        step, *specs, mesh={"data": 8}, hardware="tpu_v5e", donate_argnums=(0, 1),
        constraints=[autoshard.Pin(value, text) for value, text in (WHOLE_A | CUT).items()],
    )  # fmt: skip


def gathered_for_each_use(plan: Plan, name: str) -> Schedule:
    """The plan's schedule, but with a gathered copy of a value made for each use, not once for all."""
    (value,) = (v.id for v in plan.program.values if v.name == name)
    schedule = plan.schedule
    shared = schedule.shared[value]
    uses = dict(schedule.uses)
    for use, reshard in uses.items():
        if use.value_in(plan.program) == value:
            back = reshard.target == shared.source
            steps = () if back else (*shared.steps, *reshard.steps)
            uses[use] = Reshard(shared.source, reshard.target, steps)
    return replace(schedule, shared={v: r for v, r in schedule.shared.items() if v != value}, uses=uses)


def order_within(plan: Plan, schedule: Schedule, share: float = 1.0) -> Order:
    """What to keep in order where a device may hold so many times the schedule's peak."""
    live = liveness.analyse(plan.program, fusion.analyse(plan.program))
    peak = simulate(plan.program, schedule, live).peak_bytes
    return order_to_keep(plan.program, schedule, live, None, int(peak * share))


def gathers(schedule: Schedule) -> int:
    """How many all-gathers a schedule has outside of loops' bodies and inside, each counted once."""
    reshards = [*schedule.shared.values(), *schedule.uses.values()]
    return sum(step.kind is StepKind.ALL_GATHER for reshard in reshards for step in reshard.steps)
