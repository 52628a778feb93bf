"""Exhaustive search judges restrictions on axes and on parts of axes, beside pins on them."""

from random import Random

import pytest
from every_choice import Kept
from every_plan import TooManyPlansError, cheapest
from plan_cases import machine
from test_brute_force import PARTS, pins_on_parts, random_program

from autoshard import AxisOnly, NoCollective, Replicated
from autoshard.constraints import MatchedPin, match_pins, match_restrictions
from autoshard.constraints.restrictions.restriction import Restriction
from autoshard.errors import InfeasibleError, ShardingError
from autoshard.planning import Decision, Problem, build_model, decide
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

MOST = 400_000


def kept_by(restriction: Restriction, mesh: AtomMesh, axis: AxisRef) -> Kept:
    atoms = frozenset(mesh.atoms_for(axis))
    if restriction.kind == "no_collective":
        return Kept(unsent=atoms)
    return Kept(own=atoms, values=frozenset(restriction.values)) if restriction.kind == "axis_only" else Kept()


def judge(seed: int) -> str:
    """Plan under one restriction and pins, and search exhaustively; what was found."""
    random = Random(seed)
    axes, parts = random.choice(PARTS)
    program = random_program(random, 5 - len(parts), (2, 4, 8))
    mesh, axis = Mesh.from_dict(axes), random.choice([*parts, '"x"'])
    names = random.sample(program.input_names, random.randint(1, len(program.input_names)))
    stated = random.choice([NoCollective(axis), AxisOnly(axis, names), Replicated(names[0], [axis])])
    (restriction,) = match_restrictions([stated], program, mesh)
    try:
        pins = match_pins(pins_on_parts(random, program, parts), program, mesh)
    except (ShardingError, InfeasibleError):  # neighbours that make up a larger part, or pins at odds
        return "not drawn"
    placed = machine(axes, random.choice(["tpu_v5e", "tpu_v5p", "h100"]))
    problem = Problem.make(program, mesh, placed, pins=pins, restrictions=[restriction], sub_axes={})
    bare = build_model(Problem.make(program, mesh, placed, sub_axes=sizes_of(problem.mesh)))
    held: list[MatchedPin] = []
    if restriction.kind == "replicated":
        ref = AxisRef.from_text(axis)
        for value in restriction.values:
            dims = TensorSharding.open(program.type_of(value).rank).dims
            held.append(MatchedPin("", TensorSharding(None, dims, (ref,)), (value,), ()))
    kept = kept_by(restriction, problem.mesh, AxisRef.from_text(axis))
    asked = (program, problem.mesh, bare.prices, bare.fusion, bare.liveness, (*pins, *held))
    try:
        best = cheapest(*asked, kept=kept, most=MOST).seconds
    except TooManyPlansError:
        return "too many"
    if best == float("inf"):
        with pytest.raises(InfeasibleError):
            answered(problem)
        return "no plan"
    decision = answered(problem)
    assert decision.status == "optimal"
    assert decision.objective_s == pytest.approx(best, rel=1e-9, abs=2 * decision.rounding_s), (seed, stated, pins)
    return restriction.kind


def answered(problem: Problem) -> Decision:
    return decide(build_model(problem))


def sizes_of(mesh: AtomMesh) -> dict[str, tuple[int, ...]]:
    return {name: tuple(mesh.sizes[a] for a in atoms) for name, atoms in mesh.atoms_of.items()}


def test_the_optimum_under_restrictions_on_parts_of_axes_is_that_of_exhaustive_search() -> None:
    found = [judge(seed) for seed in range(200)]
    assert min(found.count(kind) for kind in ("no_collective", "axis_only", "replicated")) >= 15


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_optimum_of_3000_random_programs_under_restrictions_is_that_of_exhaustive_search() -> None:
    found = [judge(seed) for seed in range(10_000, 13_000)]
    assert min(found.count(kind) for kind in ("no_collective", "axis_only", "replicated")) >= 300
