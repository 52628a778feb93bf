"""Exhaustive search over tiny random programs judges the planner: same optimum, with and without pins."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax.numpy as jnp
import pytest
from every_plan import MOST_PLANS, TooManyPlansError, cheapest
from plan_cases import Pin, f32, machine, program_of

from autoshard.constraints import MatchedPin, match_pins
from autoshard.constraints.other_mesh import on_other_mesh
from autoshard.costmodels.profile import Overlap
from autoshard.costs.exposure import Objective
from autoshard.errors import InfeasibleError, ShardingError
from autoshard.planning import Problem, build_model, decide
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh

SIZES = (2, 4, 6)


def random_program(random: Random, most_ops: int, sizes: Sequence[int] = SIZES) -> Program:
    """A few matmuls, sums, maxima, pointwise ops and transposes on small matrices; every value is used or returned."""
    shapes = [(random.choice(sizes), random.choice(sizes)) for _ in range(random.randint(1, 2))]
    count = random.randint(1, most_ops)
    plan: list[tuple[str, int, int]] = []

    def run(*arrays: Any) -> Any:
        values = list(arrays)
        for kind, a, b in plan:
            x, y = values[a], values[b]
            values.append(_APPLY[kind](x, y))
        return values[len(arrays) :]

    known = list(shapes)
    for _ in range(count):
        fitting = [
            (kind, a, b)
            for kind in _APPLY
            for a, x in enumerate(known)
            for b, y in enumerate(known)
            if _FITS[kind](x, y) and (kind in _BINARY or a == b)
        ]
        kind = random.choice(sorted({k for k, _, _ in fitting}))
        plan.append(random.choice([f for f in fitting if f[0] == kind]))
        import numpy as np

        known.append(_APPLY[kind](np.zeros(known[plan[-1][1]]), np.zeros(known[plan[-1][2]])).shape)
    used = {i for _, a, b in plan for i in (a, b)}
    ends = [i - len(shapes) for i in range(len(shapes), len(known)) if i not in used or random.random() < 0.3]
    return program_of(lambda *arrays: [run(*arrays)[i] for i in ends], *(f32(*s) for s in shapes))


_BINARY = ("dot", "add", "mul")
_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "dot": lambda x, y: x @ y,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "tanh": lambda x, y: jnp.tanh(x),
    "negate": lambda x, y: -x,
    "transpose": lambda x, y: x.T,
    "sum": lambda x, y: x.sum(axis=0),
    "max": lambda x, y: x.max(axis=1),
}
_FITS: dict[str, Callable[[Any, Any], bool]] = {
    "dot": lambda x, y: len(x) == len(y) == 2 and x[1] == y[0],
    "add": lambda x, y: x == y,
    "mul": lambda x, y: x == y,
    "tanh": lambda x, y: True,
    "negate": lambda x, y: True,
    "transpose": lambda x, y: len(x) == 2,
    "sum": lambda x, y: len(x) == 2,
    "max": lambda x, y: len(x) == 2,
}


def random_pins(random: Random, program: Program, axes: dict[str, int], *, evenly: bool = True) -> list[Pin]:
    """Pins on inputs and outputs; where not `evenly`, on inputs alone, also by axes that do not divide a dimension."""
    pins = []
    names = [*program.input_names, *(program.output_names if evenly else ())]
    for name in random.sample(names, min(len(names), random.randint(0, 2))):
        value = (
            program.body.args[program.input_names.index(name)]
            if name in program.input_names
            else program.body.results[program.output_names.index(name)]
        )
        dims: list[str] = []
        free = list(axes)
        for size in program.type_of(value).shape:
            taken = [a for a in free if random.random() < 0.4]
            while evenly and taken and size % _product(axes, taken):
                taken.pop()
            free = [a for a in free if a not in taken]
            dims.append("{" + ", ".join([*(f'"{a}"' for a in taken), *(["?"] if random.random() < 0.3 else [])]) + "}")
        pins.append(Pin(name, "[" + ", ".join(dims) + "]"))
    return pins


def _product(axes: dict[str, int], names: list[str]) -> int:
    out = 1
    for name in names:
        out *= axes[name]
    return out


def shares_of(program: Program, overlap: Overlap) -> Callable[[str, int, int], float]:
    """What counts of a collective where some of it hides: all of it between matmuls, elsewhere what its kind leaves.

    For programs without loops: one look at the ops in their order, one in the reverse order.
    """
    behind: set[int] = set()  # values that a matmul's result leads to
    for op in program.body.ops:
        if op.kind == "dot_general" or behind.intersection(op.operands):
            behind.update(op.results)
    ahead: set[int] = set()  # values that lead to a matmul
    leading: set[int] = set()  # ops that do, or are one
    for op in reversed(program.body.ops):
        if op.kind == "dot_general" or ahead.intersection(op.results):
            ahead.update(op.operands)
            leading.add(op.id)

    def share(kind: str, value: int, op: int) -> float:
        waited = value in behind and (value in ahead if op < 0 else op in leading)
        return 1.0 if waited else 1.0 - float(getattr(overlap, kind, 0.0))

    return share


PARTS: tuple[tuple[dict[str, int], dict[str, int]], ...] = (
    ({"x": 4}, {'"x":(1)2': 2, '"x":(2)2': 2}),
    ({"x": 8}, {'"x":(1)4': 4, '"x":(4)2': 2}),
    ({"x": 8}, {'"x":(1)2': 2, '"x":(2)4': 4}),
    ({"x": 8}, {'"x":(1)2': 2, '"x":(2)2': 2, '"x":(4)2': 2}),
    ({"x": 4, "y": 2}, {'"x":(1)2': 2, '"x":(2)2': 2, '"y"': 2}),
)
"""Meshes, and parts of their axes with their sizes."""


def pins_on_parts(random: Random, program: Program, parts: dict[str, int]) -> list[Pin]:
    """Pins by parts of axes, which come in any order."""
    names = random.sample(list(parts), len(parts))
    pins = []
    for pin in random_pins(random, program, {f"part{k}": parts[name] for k, name in enumerate(names)}):
        text = str(pin.sharding)
        for k, name in enumerate(names):
            text = text.replace(f'"part{k}"', name)
        pins.append(Pin(pin.pattern, text))
    return pins


MESHES: tuple[tuple[dict[str, int], dict[str, int], dict[str, tuple[int, ...]]], ...] = (
    ({"x": 4}, {"a": 2, "b": 2}, {"x": (2, 2)}),
    ({"x": 8}, {"a": 2, "b": 4}, {"x": (2, 4)}),
    ({"x": 8}, {"a": 4, "b": 2}, {"x": (4, 2)}),
    ({"x": 8}, {"a": 2, "b": 2, "c": 2}, {"x": (2, 2, 2)}),
    ({"x": 4, "y": 2}, {"a": 2, "b": 2, "c": 2}, {"x": (2, 2)}),
    ({"x": 2, "y": 4}, {"a": 4, "b": 2}, {"y": (2, 2)}),
)
"""Meshes, others over the same devices, and the parts of the first ones' axes that the others' axes are made of."""


def judge_meshes(seed: int) -> int:
    """The same with pins on some axes of another mesh; -1 where there are none, or parts too many for all orders."""
    random = Random(seed)
    axes, others, parts = random.choice(MESHES)
    program = random_program(random, 3, (2, 4, 8))
    mesh, other = Mesh.from_dict(axes), Mesh.from_dict(others)
    used = random.sample(list(others), random.randint(0, len(others) - 1))
    matched: list[MatchedPin] = []
    for pin in random_pins(random, program, {name: others[name] for name in used}):
        found = on_other_mesh(str(pin.sharding), str(other), mesh, "here")
        assert found is not None
        (here,) = match_pins([Pin(pin.pattern, found.sharding)], program, mesh, compare=False)
        matched.append(replace(here, mesh=str(other), stated=str(pin.sharding)))
    return agreed(random, program, axes, matched, 400_000, sub_axes=parts) if matched else -1


def judge(seed: int, most_ops: int, objective: Objective = "serial") -> int:
    """Plan and search exhaustively; returns the number of plans tried, 0 where they are too many."""
    random = Random(seed)
    axes = random.choice([{"x": 2}, {"x": 2, "y": 2}])
    program = random_program(random, most_ops if len(axes) == 1 else most_ops - 1)
    return compare(random, program, axes, random_pins(random, program, axes), objective)


def judge_parts(seed: int) -> int:
    """The same with pins that name parts of axes; -1 where what is drawn is written otherwise, or names none."""
    random = Random(seed)
    axes, parts = random.choice(PARTS)
    program = random_program(random, 6 - len(parts), (2, 4, 8))
    pins = pins_on_parts(random, program, parts)
    try:
        matched = match_pins(pins, program, Mesh.from_dict(axes))
    except ShardingError:  # neighbours that make up a larger part
        return -1
    if not any(ref.is_sub_axis for pin in matched for ref in pin.sharding.axes_used()):
        return -1
    return compare(random, program, axes, pins, most=400_000)


def compare(
    random: Random,
    program: Program,
    axes: dict[str, int],
    pins: Sequence[Pin],
    objective: Objective = "serial",
    most: int = MOST_PLANS,
) -> int:
    """Plan and search exhaustively; returns the number of plans tried, 0 where they are too many."""
    matched = match_pins(pins, program, Mesh.from_dict(axes))
    return agreed(random, program, axes, matched, most, objective, sub_axes={})


def agreed(
    random: Random,
    program: Program,
    axes: dict[str, int],
    pins: Sequence[MatchedPin],
    most: int,
    objective: Objective = "serial",
    **options: Any,
) -> int:
    """The same with pins that are matched."""
    profile = random.choice(["tpu_v5e", "tpu_v5p", "tpu_v6e", "h100"])
    made = Problem.make(program, Mesh.from_dict(axes), machine(axes, profile), pins=pins, **options)
    model = build_model(made.minimising(objective))
    words: dict[str, Any] = (
        {} if objective == "serial" else {"shares": shares_of(program, model.problem.machine.profile.overlap)}
    )
    asked = (program, model.problem.mesh, model.prices, model.fusion, model.liveness, pins)
    try:
        best = cheapest(*asked, most=most, **words)
    except TooManyPlansError:
        return 0
    if best.seconds == float("inf"):
        with pytest.raises(InfeasibleError):
            decide(model)
        return best.plans
    decision = decide(model)
    assert decision.status == "optimal"
    assert decision.objective_s == pytest.approx(best.seconds, rel=1e-9, abs=2 * decision.rounding_s), (program, pins)
    assert decision.bound_s <= best.seconds + 2 * decision.rounding_s
    return best.plans


def test_the_optimum_of_random_programs_is_that_of_exhaustive_search() -> None:
    tried = [judge(seed, 4) for seed in range(150)]
    assert sum(n > 0 for n in tried) >= 140
    assert sum(tried) > 100_000


def test_what_is_waited_for_is_minimised_as_exhaustive_search_does() -> None:
    tried = [judge(seed, 4, "overlap") for seed in range(1000, 1060)]
    assert sum(n > 0 for n in tried) >= 55


def test_the_optimum_under_pins_on_parts_of_axes_is_that_of_exhaustive_search() -> None:
    """The parts cut all dimensions in all orders, as axes of a mesh do."""
    tried = [judge_parts(seed) for seed in range(250)]
    assert sum(n > 0 for n in tried) >= 100


def test_the_optimum_under_pins_on_some_axes_of_another_mesh_is_that_of_exhaustive_search() -> None:
    """All axes of that mesh cut all dimensions, also those that no pin uses."""
    tried = [judge_meshes(seed) for seed in range(150)]
    assert sum(n > 0 for n in tried) >= 80


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_optimum_of_4000_random_programs_with_pins_on_parts_is_that_of_exhaustive_search() -> None:
    tried = [judge_parts(seed) for seed in range(10_000, 14_000)]
    assert sum(n > 0 for n in tried) >= 1_600


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_optimum_of_2000_random_programs_is_that_of_exhaustive_search() -> None:
    tried = [judge(seed, 5) for seed in range(10_000, 12_100)]
    assert sum(n > 0 for n in tried) >= 2_000
