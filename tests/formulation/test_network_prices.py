"""The network, the schedule and the simulated memory say the same about every assignment, not only about the best
one.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct
from plan_cases import (
    PROGRAMS,
    Pin,
    check_schedule,
    model_of,
    needless_copies,
    ops_of,
    problem,
    program_of,
    random_assignment,
    traced,
)
from random_programs import random_program

from autoshard import plan
from autoshard.costs.memory import holdings, simulate
from autoshard.costs.price import price
from autoshard.formulation.model import NodeKind
from autoshard.interop.jax import auto_abstract_mesh
from autoshard.planning import Model, build_model, decide
from autoshard.solver.network import evaluate, usage_profile

MESHES = ({"x": 2}, {"x": 2, "y": 2}, {"x": 4, "y": 2})


def samples(model: Model, count: int, seed: int = 0) -> list[tuple[int, ...]]:
    random = Random(seed)
    found = [random_assignment(model.repeats.network, random) for _ in range(count)]
    assert all(found), "no finite assignment was found"
    return [f for f in found if f is not None]


@pytest.mark.parametrize("axes", MESHES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_network_costs_what_the_schedule_costs(name: str, axes: dict[str, int]) -> None:
    model = model_of(name, axes)
    for assignment in samples(model, 8):
        schedule = model.schedule(assignment)
        found = evaluate(model.encoded.network, model.repeats.expand(assignment))
        assert found.cost is not None
        cost = price(model.problem.program, schedule, model.fusion, model.prices)
        seconds = cost.step_s + model.memory_price_s(assignment)
        assert found.cost * model.encoded.tick_s == pytest.approx(seconds, abs=model.encoded.rounding_s, rel=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_use_of_a_random_schedule_gets_what_it_wants(name: str) -> None:
    model = model_of(name, {"x": 2, "y": 2})
    for assignment in samples(model, 12, seed=1):
        check_schedule(model.problem.program, model.schedule(assignment))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_best_schedule_gives_every_use_what_it_wants(name: str) -> None:
    model = model_of(name, {"x": 2, "y": 4})
    decision = decide(model)
    check_schedule(model.problem.program, decision.schedule)
    assert decision.status == "optimal"


def assert_counts_no_more_than_is_held(model: Model, count: int) -> None:
    """At no moment does the network of a model know of more bytes than the simulation of a plan holds then."""
    program, tile = model.problem.program, model.problem.machine.profile.memory_tile
    for assignment in samples(model, count, seed=2):
        if needless_copies(model, assignment):
            continue
        schedule = model.schedule(assignment)
        simulated = np.zeros(model.liveness.points + 2, np.int64)
        for item in holdings(program, schedule, model.liveness, tile):
            simulated[item.start : item.stop] += item.bytes
        network = np.zeros_like(simulated)
        for time, live in usage_profile(model.encoded.network, model.repeats.expand(assignment)):
            network[time:] = live
        assert (network <= simulated).all()
        assert simulated.max() == simulate(program, schedule, model.liveness, tile).peak_bytes


@pytest.mark.parametrize("machine", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_network_never_counts_more_memory_than_the_simulation(name: str, machine: str) -> None:
    """Else a limit could call a plan impossible that is not. What it misses are private copies only."""
    assert_counts_no_more_than_is_held(model_of(name, {"x": 2, "y": 2}, profile=machine), 12)


@pytest.mark.parametrize("machine", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("seed", [6, 8, 14, 18, 22, 32, 38, 40, 50, 59, 73])
def test_that_holds_for_random_programs(seed: int, machine: str) -> None:
    """Fused values that are copied, narrower types written in place, operands of branches, partial sums of scalars."""
    drawn = random_program(seed, ops=6)
    program = program_of(drawn.f, *drawn.args)
    assert_counts_no_more_than_is_held(build_model(problem(program, {"x": 2, "y": 2}, profile=machine)), 6)


def gelu_in_float32(x: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
    hidden = jax.nn.gelu((x @ w).astype(jnp.float32)).astype(jnp.bfloat16)
    return (hidden @ u).astype(jnp.float32).sum()


def test_that_holds_where_a_fused_value_is_wider_than_what_it_is_computed_from() -> None:
    shapes = [ShapeDtypeStruct(shape, "bfloat16") for shape in ((16, 8), (8, 32), (32, 8))]
    program = program_of(jax.grad(gelu_in_float32, argnums=(0, 1, 2)), *shapes)
    assert_counts_no_more_than_is_held(build_model(problem(program, {"x": 2, "y": 2})), 30)


def softmax_twice(x: jax.Array, w: jax.Array) -> jax.Array:
    """Scores are read for their largest value, and through a fused value that two ops read, one of them late."""
    scores = x @ w
    fused = jnp.exp(scores - scores.max(-1, keepdims=True))
    late = jnp.tanh(fused @ w.T) @ w
    return late @ fused.T


def test_what_a_fused_value_is_computed_from_is_not_held_where_a_copy_of_it_is_read() -> None:
    """The value that is fused takes memory of its own as soon as one of its uses copies it."""
    program = program_of(softmax_twice, *[ShapeDtypeStruct(shape, "float32") for shape in ((16, 8), (8, 16))])
    model = build_model(problem(program, {"x": 2, "y": 2}))
    (dot,) = (op for op in program.body.ops[:1])
    latest = max(model.liveness.time.values())
    assert model.liveness.reads[dot.results[0]][1] < latest - 2
    assert_counts_no_more_than_is_held(model, 60)


def test_the_price_of_memory_is_its_bytes_over_all_definitions_and_shared_copies() -> None:
    model = model_of("mlp", {"x": 1})
    (assignment,) = {tuple(0 for _ in range(model.repeats.network.n_nodes))}
    # w1 8x16, w2 16x8, x 4x8, the first product 4x16 and the result 4x8, in float32; tanh is fused
    expected = 4 * (8 * 16 + 16 * 8 + 4 * 8 + 4 * 16 + 4 * 8)
    assert model.memory_price_s(assignment) == pytest.approx(expected * 1e-16)


def test_a_tick_is_fine_against_the_cheapest_step_and_rounding_is_stated() -> None:
    model = model_of("mlp", {"x": 2, "y": 2})
    decision = decide(model)
    network = model.encoded.network
    assert model.encoded.tick_s <= decision.objective_s * 1e-6
    assert model.encoded.rounding_s == pytest.approx(model.encoded.tick_s / 2 * (network.n_nodes + len(network.edges)))


@pytest.mark.parametrize("pinned", ["@last", "@carried"])
def test_a_pin_holds_for_carries_and_results_of_loops(pinned: str) -> None:
    pin = Pin(pinned, '[{}, {"x"}]')
    model = build_model(problem(traced("looped").program, {"x": 2}, pins=[pin]))
    (value,) = [v.id for v in model.problem.program.values if pinned[1:] in v.tags]
    for assignment in samples(model, 8):
        assert model.schedule(assignment).form_before_use(value).dims == ((), (0,))


def test_a_pin_on_a_value_inside_of_a_shard_map_is_refused() -> None:
    from jax.ad_checkpoint import checkpoint_name
    from jax.sharding import PartitionSpec as P

    from autoshard.errors import UnsupportedError

    def f(x):  # type: ignore[no-untyped-def]
        mesh = auto_abstract_mesh((2,), ("x",))
        inner = lambda x: jnp.sin(checkpoint_name(jnp.tanh(x), "inside"))  # noqa: E731
        return jax.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)

    program = program_of(f, ShapeDtypeStruct((8,), jnp.float32))
    assert ops_of(program, "shard_map")
    with pytest.raises(UnsupportedError, match="lies inside of a shard_map"):
        build_model(problem(program, {"x": 2}, pins=[Pin("@inside", '[{"x"}]')]))


def test_values_with_one_use_and_no_pin_have_no_hub() -> None:
    model = model_of("mlp", {"x": 2})
    assert [n for n in model.collected.nodes if n.kind is NodeKind.HUB] == []


def test_a_value_with_several_uses_has_one_hub() -> None:
    model = model_of("shared_value", {"x": 2})
    hubs = [n.value for n in model.collected.nodes if n.kind is NodeKind.HUB]
    (mul,) = ops_of(model.problem.program, "mul")
    assert hubs == [mul.results[0]]


def into_a_branch(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    return jax.lax.cond(p > 0, jnp.tanh, lambda a: a * 2, x @ w)


def into_a_branch_as_narrow_values(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    return jax.lax.cond(p > 0, jnp.tanh, lambda a: a * 2, (x @ w).astype(jnp.bfloat16))


def read_by_every_iteration(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    y = x @ w
    return jax.lax.scan(lambda c, _: (jnp.tanh(c) * y.sum() * p, None), x[:, :1], None, length=3)[0]


def cut_into_iterations(x: jax.Array, w: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.scan(lambda c, row: (c + row * p, row * 2), jnp.zeros(16), x @ w)


def read_until_enough(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    y = x @ w
    return jax.lax.while_loop(lambda c: c[0] < p, lambda c: (c[0] + y.sum(), c[1] + 1), (p, p))[0]


def carried(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, _: (jnp.tanh(c) * p, None), x @ w, None, length=3)[0]


def made_in_a_branch(x: jax.Array, w: jax.Array, p: jax.Array) -> jax.Array:
    y = jax.lax.cond(p > 0, lambda a: a @ w, lambda a: (a * 2) @ w, x)
    return jax.lax.cond(p > 1, lambda a: a @ a.T, lambda a: (a * 2) @ a.T, y)


INTO_REGIONS = [
    into_a_branch, into_a_branch_as_narrow_values, read_by_every_iteration, cut_into_iterations, read_until_enough,
    carried, made_in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("f", INTO_REGIONS, ids=lambda f: f.__name__)
def test_that_holds_for_partial_sums_that_cross_into_regions(f: Callable[..., Any]) -> None:
    """A sum that is only read by a loop or a branch may be reduced where it is made: the boundary holds the result."""
    program = program_of(f, *[ShapeDtypeStruct(shape, "float32") for shape in ((16, 8), (8, 16), ())])
    assert_counts_no_more_than_is_held(build_model(problem(program, {"x": 2, "y": 2})), 40)


def test_what_takes_long_beside_all_work_is_no_contradiction() -> None:
    """8 GiB come cut over slices and leave whole. Nothing is computed: ticks are short, and it takes 1e15 of them."""
    array = ShapeDtypeStruct((65536, 65536), jnp.bfloat16)
    slices = {"x": {"size": 4, "link": "dcn"}}
    pins = [Pin("a", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]
    found = plan(lambda a: a, array, mesh=slices, hardware="tpu_v5e", memory_limit="none", constraints=pins)
    assert found.status == "optimal"
    assert found.cost.communication_s > 2
