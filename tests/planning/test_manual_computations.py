"""Manual computations as statements: a region that is local over axes, as a `shard_map` in code would be."""

import json
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_plan import Manual, cheapest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plan_cases import f32, machine

from autoshard import ManualComputation, NoCollective, Pin, plan
from autoshard.api.plans import Plan
from autoshard.constraints import match_pins, match_restrictions
from autoshard.constraints.restrictions.manual_computation import MatchedManual
from autoshard.errors import AutoshardError, InfeasibleError, InputError, ShardingError
from autoshard.formulation.domains import satisfies
from autoshard.frontends.jax.function import trace
from autoshard.planning import Problem, build_model, decide
from autoshard.sharding.mesh import Mesh
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}


@jax.jit
def ffn(x: Any, w1: Any, w2: Any) -> Any:
    return jnp.tanh(x @ w1) @ w2


def model(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
    return jnp.sin(ffn(x, w1, w2)) @ w3


SPECS = (f32(64, 32), f32(32, 64), f32(64, 32), f32(32, 16))
ROWS = ManualComputation("scope:ffn", "y", {"x": '[{"y"}, {?}]', "**": "replicated"}, ['[{"y"}, {?}]'])


def planned(f: Any, specs: Any, *stated: Any, **options: Any) -> Plan:
    found = plan(f, *specs, mesh=AXES, hardware="tpu_v5e", constraints=list(stated), **options)
    assert findings(found.to_dict()) == []
    return found


def findings(data: dict[str, Any]) -> list[str]:
    return list(map(str, check_plan(json.loads(json.dumps(data))).findings))


def restriction(found: Plan) -> MatchedManual:
    (one,) = found.stated_as(MatchedManual)
    return one


# -- what it means -------------------------------------------------------------------------------------------------


def test_what_comes_in_and_what_leaves_is_as_stated() -> None:  # S4.17, S4.23
    found = planned(model, SPECS, ROWS, Pin("x", "[{}, {}]"))
    schedule, mesh, stated = found.schedule, found.schedule.mesh, restriction(found)
    assert [found.program.values[v].name for v, _ in stated.entering] == ["x", "w1", "w2"]
    wanted = dict(stated.entering)
    for use, reshard in schedule.uses.items():
        value = use.value_in(found.program)
        if use.op in stated.ops and value in wanted:
            assert satisfies(reshard.target, wanted[value], mesh)
    ((leaving, sharding),) = stated.leaving
    assert satisfies(schedule.form_before_use(leaving), sharding, mesh)


def test_nothing_moves_over_the_manual_axes_inside() -> None:
    pins = [Pin("x", '[{"y"}, {}]'), Pin("w1", '[{"x"}, {}]'), Pin("w2", '[{}, {"y"}]'), Pin("out", '[{}, {"y"}]')]
    found = planned(model, SPECS, ROWS, *pins)
    stated, atoms = restriction(found), set(found.schedule.mesh.atoms_of["y"])
    inner = [r for use, r in found.schedule.uses.items() if use.op in stated.ops]
    own = [r for r in inner if found.schedule.definitions and r.steps]
    for use, reshard in found.schedule.uses.items():
        if use.op in stated.ops and use.value_in(found.program) in stated.inside:
            assert not any(atoms & set(step.atoms) for step in reshard.steps)
    assert own, "the weights are brought to where the region wants them"


def test_free_axes_are_the_planners_and_closed_dimensions_keep_them_out() -> None:  # S4.23
    pins = [Pin("w1", '[{}, {"x"}]'), Pin("x", '[{"y"}, {}]')]
    found = planned(model, SPECS, ROWS, *pins)
    ops = {op.id: op for op, _ in found.program.walk() if op.kind == "dot_general"}
    atom = found.schedule.mesh.atoms_of["x"][0]
    inside = [i for i in ops if i in restriction(found).ops]
    assert any(atom in {a for f in found.schedule.placements[i].factors for a in f} for i in inside)
    closed = ManualComputation("scope:ffn", "y", ['[{"y"}, {}]', "[{}, {}]", "[{}, {}]"], ['[{"y"}, {}]'])
    closed_plan = planned(model, SPECS, closed, *pins)
    first = min(inside)
    assert not any(atom in f for f in closed_plan.schedule.placements[first].factors)


def test_a_statement_costs_what_the_same_shard_map_costs() -> None:  # S2.55
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def in_code(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        cut = P(("y", "x"), None)
        region = jax.shard_map(
            lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, mesh=mesh, in_specs=(cut, P(), P()), out_specs=cut, check_vma=False
        )
        return jnp.sin(region(x, w1, w2)) @ w3

    stated = ManualComputation(
        "scope:ffn", ["x", "y"], ['[{"y", "x"}, {}]', "[{}, {}]", "[{}, {}]"], ['[{"y", "x"}, {}]']
    )
    pins = [Pin("x", '[{"x"}, {}]'), Pin("w1", '[{"y"}, {}]'), Pin("out", '[{"y", "x"}, {}]')]
    one, other = planned(model, SPECS, stated, *pins), planned(in_code, SPECS, *pins)
    columns = ["kind", "axes", "bytes", "times"]
    assert one.collectives[columns].values.tolist() == other.collectives[columns].values.tolist()
    assert one.objective_s == pytest.approx(other.objective_s, rel=0.05)  # fusion inside of a shard_map is not modelled


def test_the_planned_function_computes_the_same() -> None:
    found = planned(model, SPECS, ROWS, Pin("out", '[{}, {"y"}]'))
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s.shape), s.dtype) for s in SPECS]
    np.testing.assert_allclose(found.jit()(*args), jax.jit(model)(*args), rtol=2e-4, atol=2e-4)


def test_sums_over_a_manual_axis_leave_as_partial_sums() -> None:
    stated = ManualComputation(
        "scope:ffn", "y", {"x": "[{?}, {}]", "w1": '[{}, {"y"}]', "w2": '[{"y"}, {}]'}, ['[{?}, {}] unreduced={"y"}']
    )
    found = planned(model, SPECS, stated)
    moved = found.collectives
    assert list(moved[moved["axes"] == "y"]["kind"]) in (["all_reduce"], ["reduce_scatter"])


def test_each_call_of_a_function_is_a_region_of_its_own() -> None:
    def twice(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        return ffn(jnp.sin(ffn(x, w1, w2)), w1, w2) @ w3

    stated = ManualComputation("scope:ffn", "y", ['[{"y"}, {?}]', "[{}, {?}]", "[{?}, {}]"], ['[{"y"}, {?}]'])
    found = restriction(planned(twice, SPECS, stated))
    assert len(found.entering) == 4 and len(found.leaving) == 2


def test_a_region_may_lie_in_a_loop_and_hold_one() -> None:
    def in_loop(x: Any, w1: Any, w2: Any) -> Any:
        return jax.lax.scan(lambda c, _: (ffn(c, w1, w2), None), x, None, length=3)[0]

    @jax.jit
    def loop(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0]

    square = (f32(64, 32), f32(32, 64), f32(64, 32))
    stated = ManualComputation("scope:ffn", "y", ['[{"y"}, {?}]', "replicated", "replicated"], ['[{"y"}, {?}]'])
    planned(in_loop, square, stated)
    stated = ManualComputation("scope:loop", "y", ['[{"y"}, {}]', "replicated"], ['[{"y"}, {}]'])
    found = planned(lambda x, ws: loop(x, ws) * 2, (f32(64, 32), f32(3, 32, 32)), stated, Pin("x", "[{}, {}]"))
    assert "all_gather" not in set(found.collectives["kind"])


def test_the_backward_pass_is_a_scope_of_its_own() -> None:
    def step(x: Any, w1: Any, w2: Any) -> Any:
        return jax.grad(lambda w1, w2: ffn(x, w1, w2).sum(), argnums=(0, 1))(w1, w2)

    forward = ManualComputation("scope:ffn", "y", {"x": '[{"y"}, {?}]', "**": "replicated"}, {"**": '[{"y"}, {?}]'})
    found = restriction(planned(step, SPECS[:3], forward))
    back = [op.id for op, _ in found_ops(step) if "transpose(" in op.source and "ffn" in op.source.split("[")[1]]
    assert back and not set(back) & set(found.ops)
    behind = ManualComputation(
        "scope:transpose(ffn)", "y", {"x": '[{"y"}, {?}]', "w2": "replicated", "**": '[{"y"}, {?}]'},
        {"**": '[{?}, {?}] unreduced={"y"}'},
    )  # fmt: skip
    both = planned(step, SPECS[:3], behind)
    assert set(restriction(both).ops) == set(back)


def found_ops(f: Any) -> Any:
    return trace(f, *SPECS[:3]).program.walk()


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "error", "said"),
    [
        (("scope:fnn", "y", [], []), InputError, "did you mean scope:ffn"),
        (("x", "y", [], []), InputError, "region of a manual computation is made of ops"),
        (("scope:ffn", "z", [], []), ShardingError, "no axis 'z'"),
        (("scope:ffn", "y", ["replicated"], ["replicated"]), InputError, "1 entries, but 3 values come in: x float32"),
        (("scope:ffn", "y", {"x": "replicated"}, ["replicated"]), InputError, "says nothing of w1 .*, w2 .*"),
        (("scope:ffn", "y", {"w3": "replicated", "**": "replicated"}, []), InputError, "'w3' is none of the values"),
        (("scope:ffn", "y", {"x": "[{}]", "**": "replicated"}, ["replicated"]), ShardingError, "has 1 dimensions"),
        (
            ("scope:ffn", "y", {"x": '[{"x", "y"}, {}]', "**": "replicated"}, ["replicated"]),
            ShardingError, "a free axis before a manual one",
        ),
        (
            ("scope:ffn", "y", {"x": '[{}, {"y"}]', "**": "replicated"}, ["replicated"]),
            ShardingError, r"dot_general:0 .* needs w1 cut by \{\"y\"\} where it is cut by \{\}",
        ),
        (
            ("scope:ffn", "y", {"x": '[{"y"}, {}]', "**": "replicated"}, ["replicated"]),
            ShardingError, r"leaves as \[\{\"y\"\}, \{\}\].*says \[\{\}, \{\}\]",
        ),
        (
            ("scope:ffn", "y", {"w1": '[{}, {"y"}]', "w2": '[{"y"}, {}]', "x": "replicated"}, ["replicated"]),
            ShardingError, "a sum over a manual axis needs a collective",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_before_the_search(stated: tuple, error: type[AutoshardError], said: str) -> None:
    with pytest.raises(error, match=said):
        plan(model, *SPECS, mesh=AXES, hardware="tpu_v5e", constraints=[ManualComputation(*stated)])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("", "y", [], []), "needs the ops of its region"),
        (("scope:a", [], [], []), "manual axes are a list"),
        (("scope:a", "y", "replicated", []), "in_shardings is a list of shardings, or a mapping"),
        (("scope:a", "y", [3], []), "a sharding is text"),
        (("scope:a", "y", ["[{"], []), "in_shardings"),
    ],
)
def test_malformed_statements_are_refused(given: tuple, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ManualComputation(*given)


def test_manual_axes_do_not_pad() -> None:  # S4.22
    stated = ManualComputation("dot_general", "y", {"x": '[{"y"}, {}]', "w": "replicated"}, ['[{"y"}, {}]'])
    with pytest.raises(ShardingError, match=r"do(es)? not"):
        plan(lambda x, w: x @ w, f32(6, 8), f32(8, 8), mesh=AXES, hardware="tpu_v5e", constraints=[stated])


def test_nested_regions_have_axes_of_their_own() -> None:  # S4.24
    inner = ManualComputation("tanh", "y", {"**": '[{"y"}, {?}]'}, ['[{"y"}, {?}]'])
    with pytest.raises(ShardingError, match=r"axis 'y' is manual in .*scope:ffn already"):
        plan(model, *SPECS, mesh=AXES, hardware="tpu_v5e", constraints=[ROWS, inner])
    other = ManualComputation("tanh", "x", {"**": '[{?}, {"x"}]'}, ['[{?}, {"x"}]'])
    assert len(planned(model, SPECS, ROWS, other).stated_as(MatchedManual)) == 2


def test_a_shard_map_inside_has_axes_of_its_own() -> None:  # S4.24
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    @jax.jit
    def block(x: Any) -> Any:
        return jax.shard_map(jnp.tanh, mesh=mesh, in_specs=P("y"), out_specs=P("y"), check_vma=False)(x) * 2

    stated = ManualComputation("scope:block", "y", ['[{"y"}, {}]'], ['[{"y"}, {}]'])
    with pytest.raises(ShardingError, match="axis 'y' is manual in the shard_map"):
        plan(block, f32(64, 32), mesh=AXES, hardware="tpu_v5e", constraints=[stated])
    inside = ManualComputation("tanh", "y", ['[{"y"}, {}]'], ['[{"y"}, {}]'])
    with pytest.raises(InputError, match="lies inside of the shard_map"):
        plan(block, f32(64, 32), mesh=AXES, hardware="tpu_v5e", constraints=[inside])


def test_a_pin_against_a_border_is_a_conflict_of_the_two() -> None:
    with pytest.raises(InfeasibleError) as caught:
        plan(model, *SPECS, mesh=AXES, hardware="tpu_v5e", constraints=[Pin("tanh", '[{"x"}, {"y"}]'), ROWS])
    assert len(caught.value.conflict) == 2 and any("manual computation" in c for c in caught.value.conflict)


# -- the checker finds what is broken ------------------------------------------------------------------------------


def test_the_checker_finds_plans_that_break_it() -> None:
    held, free = planned(model, SPECS, ROWS, Pin("w1", '[{"y"}, {}]')), planned(model, SPECS, Pin("w1", '[{}, {"y"}]'))
    data = free.to_dict()
    data["statements"] = [s for s in held.to_dict()["statements"] if s["kind"] == "manual_computation"]
    told = [t for t in findings(data) if "manual computation over y at scope:ffn is broken" in t]
    assert told


@pytest.mark.parametrize("key", ["in_shardings", "out_shardings"])
def test_the_checker_works_the_borders_out_itself(key: str) -> None:
    data = json.loads(json.dumps(planned(model, SPECS, ROWS).to_dict()))
    (statement,) = data["statements"]
    taken = statement[key].pop()
    assert any("at that border" in t for t in findings(data))
    statement[key].append({**taken, "sharding": "[{?}, {?}]"})
    assert any("leaves {" in t and "open" in t for t in findings(data))


def test_edges_exchanged_over_a_barred_axis_are_collectives() -> None:
    def conv(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    specs = (f32(1, 2048, 512, 8), f32(3, 3, 8, 8))
    pins = [Pin("x", '[{}, {"y"}, {}, {}]'), Pin("out", '[{}, {"y"}, {}, {}]')]
    free = planned(conv, specs, *pins)
    assert "permute" in set(free.collectives["kind"])
    with pytest.raises(InfeasibleError):
        planned(conv, specs, *pins, NoCollective("y"))


# -- exhaustive search ---------------------------------------------------------------------------------------------

TINY = {"x": 2, "y": 2}
CHOICES = ('[{"y"}, {?}]', '[{?}, {"y"}]', "replicated", "[{}, {?}]", '[{"y"}, {}]')


def judge(seed: int) -> str:
    """A statement drawn at random, and the best of all plans under it."""
    random = Random(seed)

    @jax.jit
    def part(a: Any, w: Any) -> Any:
        h = a @ w
        return jnp.tanh(h) if seed % 2 else h + a

    def f(a: Any, w: Any, v: Any) -> Any:
        return part(a, w) @ v

    program = trace(f, f32(8, 8), f32(8, 8), f32(8, 4)).program
    mesh = Mesh.from_dict(TINY)
    ends = [*CHOICES, '[{?}, {?}] unreduced={"y"}']
    stated = ManualComputation("scope:part", "y", [random.choice(CHOICES) for _ in range(2)], [random.choice(ends)])
    pins = [Pin(name, random.choice(['[{"x"}, {}]', '[{}, {"y"}]', '[{"y", ?}, {?}]'])) for name in ("a", "v")]
    matched = match_pins(random.sample(pins, random.randint(0, 2)), program, mesh)
    bare = Problem.make(program, mesh, machine(TINY), pins=matched, sub_axes={}, share_repeats=False)
    model_ = build_model(bare)
    try:
        restrictions = match_restrictions([stated], program, mesh)
    except ShardingError:
        # the early refusal must be right: no plan exists under the same words
        restrictions = ()
    region = [op.id for op in program.body.ops if "part" in op.source.split("[")[-1]]
    wanted = _words(stated, program, region, mesh)
    best = cheapest(
        program, bare.mesh, model_.prices, model_.fusion, model_.liveness, matched,
        manual=Manual(frozenset(bare.mesh.atoms_of["y"]), frozenset(region), *wanted),
    ).seconds  # fmt: skip
    if not restrictions:
        assert best == float("inf"), seed
        return "refused"
    problem = Problem.make(
        program, mesh, machine(TINY), pins=matched, sub_axes={}, share_repeats=False, restrictions=restrictions
    )
    if best == float("inf"):
        with pytest.raises(InfeasibleError):
            decide(build_model(problem))
        return "infeasible"
    decision = decide(build_model(problem))
    assert decision.status == "optimal"
    assert abs(decision.objective_s - best) <= 4 * decision.rounding_s + 1e-9 * best, seed
    return "optimal"


def _words(stated: ManualComputation, program: Any, region: list[int], mesh: Mesh) -> tuple[dict, dict]:
    """Shardings at the borders with the manual axis in each, worked out here."""
    from autoshard.sharding.tensor_sharding import TensorSharding

    made = {v for op in program.body.ops if op.id in region for v in op.results}
    entering = [v for op in program.body.ops if op.id in region for v in op.operands if v not in made]
    used = {v for op in program.body.ops if op.id not in region for v in op.operands}

    def read(given: Any) -> Any:
        text = "[{?}, {?}]" if given == "replicated" else str(given)
        if '"y"' not in text:
            text += ' replicated={"y"}'
        return TensorSharding.from_text(text, mesh)

    ins = dict(zip(dict.fromkeys(entering), (read(s) for _, s in stated.in_shardings), strict=True))  # type: ignore[misc]
    (out,) = stated.out_shardings
    return ins, {v: read(out[1]) for v in sorted(made & used)}  # type: ignore[index]


def test_exhaustive_search_finds_the_same_optimum_under_the_statement() -> None:
    found = [judge(seed) for seed in range(60)]
    assert found.count("optimal") >= 8 and found.count("refused") >= 8
