"""Small programs, machines and an independent check of schedules, shared by the tests of the planner's rooms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.ad_checkpoint import checkpoint_name

from autoshard.api.plans import Plan
from autoshard.constraints import Pin, match_pins
from autoshard.costmodels import Machine, load_profile, place_mesh
from autoshard.costs.price import price
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.planning import Model, Problem, build_model
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard
from autoshard.solver.network import IMPOSSIBLE, CostNetwork


def f32(*shape: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, jnp.float32)


@functools.cache
def _machine(axes: tuple[tuple[str, int], ...], profile: str) -> Machine:
    return place_mesh(load_profile(profile), dict(axes), None)


def machine(axes: Mapping[str, int], profile: str = "tpu_v5e") -> Machine:
    return _machine(tuple(axes.items()), profile)


def atoms(axes: Mapping[str, int], splits: Mapping[str, Sequence[int]] | None = None) -> AtomMesh:
    return AtomMesh.split(Mesh.from_dict(axes), splits)


# -- programs ------------------------------------------------------------------------------------------------------


def mlp(w1: Any, w2: Any, x: Any) -> Any:
    return jnp.tanh(x @ w1) @ w2


def shared_value(wq: Any, wk: Any, x: Any) -> Any:
    """One value with three uses (trap 1)."""
    h = jnp.tanh(x) * 2.0
    return h @ wq + h @ wk + h.sum()


def partial_sums(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Two partial sums that can be added before they are reduced (trap 2)."""
    return (x @ a + y @ b).T * 0.5


def looped(w: Any, x: Any) -> Any:
    """A scan with stacked operands, a carry and stacked results."""

    def layer(c: Any, wk: Any) -> Any:
        c = checkpoint_name(jnp.tanh(c @ wk), "carried")
        return c, c.sum(axis=0)

    last, sums = jax.lax.scan(layer, x, w)
    return checkpoint_name(last, "last") * 2.0, sums


def accumulated(w: Any, x: Any) -> Any:
    """A carry that adds up a gradient: it may stay unreduced over the whole loop."""

    def one(total: Any, xk: Any) -> Any:
        return total + xk.T @ (xk @ w), None

    return jax.lax.scan(one, jnp.zeros_like(w), x)[0]


def branches(p: Any, w: Any, x: Any) -> Any:
    return jax.lax.cond(p, lambda w, x: x @ w, lambda w, x: jnp.maximum(x, 0.0) @ (w * 2.0), w, x)


def repeated(n: Any, w: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x))[1]


def gradient(w1: Any, w2: Any, x: Any) -> Any:
    """A train step: loss, and parameters moved against their gradients."""
    loss, grads = jax.value_and_grad(lambda p: jnp.square(mlp(*p, x)).sum())((w1, w2))
    return w1 - 0.1 * grads[0], w2 - 0.1 * grads[1], loss


def softmax(w: Any, x: Any) -> Any:
    """Reductions by max and by sum."""
    return jax.nn.softmax(x @ w, axis=-1)


Case = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Case] = {
    "mlp": (mlp, (f32(8, 16), f32(16, 8), f32(4, 8))),
    "shared_value": (shared_value, (f32(8, 8), f32(8, 8), f32(4, 8))),
    "partial_sums": (partial_sums, (f32(8, 4), f32(8, 4), f32(4, 8), f32(4, 8))),
    "looped": (looped, (f32(3, 8, 8), f32(4, 8))),
    "accumulated": (accumulated, (f32(8, 8), f32(3, 4, 8))),
    "branches": (branches, (ShapeDtypeStruct((), jnp.bool_), f32(8, 8), f32(4, 8))),
    "repeated": (repeated, (ShapeDtypeStruct((), jnp.int32), f32(8, 8), f32(4, 8))),
    "gradient": (gradient, (f32(8, 16), f32(16, 8), f32(4, 8))),
    "softmax": (softmax, (f32(8, 8), f32(4, 8))),
}


@functools.cache
def traced(name: str) -> TracedFunction:
    function, specs = PROGRAMS[name]
    return trace(function, *specs)


def program_of(f: Callable[..., Any], *specs: Any, **options: Any) -> Program:
    return trace(f, *specs, **options).program


def problem(
    program: Program, axes: Mapping[str, int], *, pins: Sequence[Pin] = (), profile: str = "tpu_v5e", **options: Any
) -> Problem:
    mesh = Mesh.from_dict(axes)
    return Problem.make(program, mesh, machine(axes, profile), pins=match_pins(pins, program, mesh), **options)


def model_of(name: str, axes: Mapping[str, int], **options: Any) -> Model:
    return build_model(problem(traced(name).program, axes, **options))


def ops_of(program: Program, kind: str) -> list[Op]:
    return [op for op, _ in program.walk() if op.kind == kind]


# -- assignments ---------------------------------------------------------------------------------------------------


def random_assignment(network: CostNetwork, random: Random, tries: int = 200) -> tuple[int, ...] | None:
    """A random assignment without forbidden entries, or None where none was found."""
    near: list[list[tuple[int, np.ndarray]]] = [[] for _ in network.costs]
    for edge in network.edges:
        near[edge.first].append((edge.second, edge.costs))
        near[edge.second].append((edge.first, edge.costs.T))
    for _ in range(tries):
        chosen: dict[int, int] = {}
        for node, costs in enumerate(network.costs):
            free = costs < IMPOSSIBLE
            for other, table in near[node]:
                if other in chosen:
                    free &= table[:, chosen[other]] < IMPOSSIBLE
            states = np.flatnonzero(free)
            if not len(states):
                break
            chosen[node] = int(random.choice(states.tolist()))
        else:
            return tuple(chosen[n] for n in range(network.n_nodes))
    return None


def unsolved_plan(
    model: Model,
    assignment: tuple[int, ...],
    *,
    traced: TracedFunction | None = None,
    statements: Sequence[Mapping[str, Any]] = (),
) -> Plan:
    """The plan of any assignment, with everything that a solved one has; its bound is 0."""
    problem, schedule = model.problem, model.schedule(assignment)
    cost = price(problem.program, schedule, model.fusion, model.prices, problem.trips)
    extra = model.memory_price_s(assignment)
    return Plan(
        program=problem.program,
        schedule=schedule,
        machine=problem.machine,
        cost=cost,
        memory=model.simulate(schedule),
        status="feasible",
        objective_s=cost.step_s + extra,
        bound_s=0.0,
        gap=1.0,
        memory_price_s=extra,
        rounding_s=model.encoded.rounding_s,
        trips=problem.trips,
        traced=traced,
        statements=tuple(statements),
    )


def whole(program: Program, axes: Mapping[str, int]) -> Schedule:
    """The schedule with everything on every device."""
    schedule = Schedule(atoms(axes))
    for op, _ in program.walk():
        if op.rule is not None:
            schedule.placements[op.id] = Placement(tuple(() for _ in op.rule.factor_sizes))
    for value in program.values:
        schedule.definitions[value.id] = Layout.replicated(value.type.rank)
    return schedule


def needless_copies(model: Model, assignment: tuple[int, ...]) -> bool:
    """Whether a state that stands for a copy equals its source; the network counts it, nobody would make it."""
    state = [int(s[c]) for s, c in zip(model.encoded.states, model.repeats.expand(assignment), strict=True)]
    for link in model.collected.links:
        copies = model.collected.nodes[link.target.node].copies
        if link.shares and copies is not None and copies[state[link.target.node]]:
            if link.source.layouts[state[link.source.node]] == link.target.layouts[state[link.target.node]]:
                return True
    return False


# -- an independent reading of docs/architecture.md ------------------------------------------------------------------


def check_schedule(program: Program, schedule: Schedule) -> None:
    """Every use starts at the value's form, replays to what its consumer wants, and nothing is left over."""
    seen: set[Use] = set()
    mesh = schedule.mesh

    def well_formed(value: int, layout: Layout) -> None:
        used = [a for d in layout.dims for a in d] + list(layout.unreduced)
        assert len(used) == len(set(used)), f"an atom twice in {layout}"
        assert len(layout.dims) == program.type_of(value).rank

    def use(value: int, where: Use, target: Layout) -> None:
        if program.values[value].origin is Origin.LITERAL:
            return
        seen.add(where)
        reshard = schedule.uses[where]
        reshard.check()
        assert reshard.source == schedule.form_before_use(value), where
        assert reshard.target == target, (where, reshard.target, target)
        well_formed(value, target)

    def stacked(layout: Layout) -> Layout:
        return Layout(((), *layout.dims), layout.unreduced)

    def block(body: Block) -> None:
        for op in body.ops:
            define = schedule.definitions
            if op.rule is not None:
                placement = schedule.placements[op.id]
                for k, value in enumerate(op.operands):
                    use(value, Use(op.id, k), placement.operand(op.rule, k))
                for k, value in enumerate(op.results):
                    assert define[value] == placement.result(op.rule, k)
                    well_formed(value, define[value])
            elif op.kind == "scan":
                inner, consts, carries = op.regions[0], op.attrs["num_consts"], op.attrs["num_carry"]
                for k, value in enumerate(op.operands):
                    wanted = define[inner.args[k]]
                    use(value, Use(op.id, k), stacked(wanted) if k >= consts + carries else wanted)
                block(inner)
                for k, value in enumerate(inner.results):
                    if k < carries:
                        assert define[op.results[k]] == define[inner.args[consts + k]]
                        use(value, Use(op.id, k, 0), define[op.results[k]])
                    else:
                        crossing = Layout(define[op.results[k]].dims[1:], define[op.results[k]].unreduced)
                        assert define[op.results[k]].dims[0] == ()
                        use(value, Use(op.id, k, 0), crossing)
            elif op.kind == "while":
                cond, inner = op.regions
                n, m = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
                for k, value in enumerate(op.operands):
                    args = [cond.args[k]] if k < n else []
                    args += [inner.args[k - n]] if n <= k else []
                    args += [cond.args[k - m]] if k >= n + m else []
                    for arg in args:
                        use(value, Use(op.id, k), define[arg])
                block(cond)
                use(cond.results[0], Use(op.id, 0, 0), Layout(()))
                block(inner)
                for k, value in enumerate(inner.results):
                    assert define[op.results[k]] == define[inner.args[m + k]]
                    use(value, Use(op.id, k, 1), define[op.results[k]])
            elif op.kind == "cond":
                use(op.operands[0], Use(op.id, 0), Layout(()))
                for r, region in enumerate(op.regions):
                    for k, value in enumerate(op.operands[1:]):
                        use(value, Use(op.id, k + 1), define[region.args[k]])
                    block(region)
                    for k, value in enumerate(region.results):
                        use(value, Use(op.id, k, r), define[op.results[k]])
            else:
                raise AssertionError(op.kind)

    block(program.body)
    for slot, value in enumerate(program.body.results):
        if program.values[value].origin is not Origin.LITERAL:
            target = schedule.uses[Use(PROGRAM, slot)].target
            use(value, Use(PROGRAM, slot), target)
            assert not target.unreduced
            assert target.is_even(program.type_of(value).shape, mesh)
    for value in program.body.args:
        assert not schedule.definitions[value].unreduced
    for value, reshard in schedule.shared.items():
        reshard.check()
        assert reshard.source == schedule.definitions[value]
    assert set(schedule.uses) == seen


def steps_of(reshard: Reshard) -> list[str]:
    return [step.kind.value for step in reshard.steps]
