"""Shardings stated in the planned function itself are hard statements of the plan (S4.4 to S4.6)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from plan_cases import f32, mlp

from autoshard import Mesh, Pin, SameSharding, plan, propagate
from autoshard.api.plans import Plan
from autoshard.errors import InfeasibleError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.verify import check_plan

try:
    from jax.experimental.shard_alike import shard_alike
except ImportError:  # JAX 0.12 has it no longer
    shard_alike = None

has_shard_alike = pytest.mark.skipif(shard_alike is None, reason="this JAX has no jax.experimental.shard_alike")

P = PartitionSpec
AXES = {"x": 2, "y": 4}
MLP = (f32(64, 128), f32(128, 64), f32(32, 64))


def mesh(**axes: int) -> jax.sharding.Mesh:
    axes = axes or AXES
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(mesh(), P(*spec))


def planned(f: Any, *specs: Any, **options: Any) -> Plan:
    found = plan(f, *specs, mesh=AXES, hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return found


def forms(found: Plan) -> list[str]:
    """What is behind each constraint, in the order of the program."""
    program, at = found.program, found.schedule
    ops = [op for op, _ in program.walk() if op.kind == "sharding_constraint"]
    return [at.form_before_use(op.results[0]).text(at.mesh) for op in ops]


def runs_as_written(found: Plan, f: Any, *specs: Any) -> None:
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s.shape), s.dtype) for s in specs]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), found.jit()(*args), jax.jit(f)(*args)
    )


def constrained(*spec: Any) -> Any:
    def f(w1: Any, w2: Any, x: Any) -> Any:
        h = jax.lax.with_sharding_constraint(jnp.tanh(x @ w1), named(*spec))
        return h @ w2

    return f


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (("x", "y"), '[{"x"}, {"y"}]'),
        ((None, ("y", "x")), '[{}, {"y", "x"}]'),
        ((), "[{}, {}]"),
        (("y",), '[{"y"}, {}]'),
    ],
    ids=str,
)
def test_a_constraint_holds_exactly_and_none_is_a_closed_dimension(spec: tuple, text: str) -> None:  # S4.4
    f = constrained(*spec)
    found = planned(f, *MLP)
    assert forms(found) == [text]
    runs_as_written(found, f, *MLP)


def test_an_unconstrained_dimension_is_open() -> None:  # S2.57
    f = constrained("y", P.UNCONSTRAINED)
    found = planned(f, *MLP)
    (statement,) = found.statements
    assert statement["sharding"] == '[{"y"}, {?}]'
    assert forms(found)[0].startswith('[{"y"}, ')
    assert found.objective_s <= planned(constrained("y"), *MLP).objective_s
    assert found.objective_s >= planned(mlp, *MLP).objective_s - 1e-12


def test_the_plan_lists_the_constraint_with_its_place_in_the_source() -> None:
    (statement,) = planned(constrained("x"), *MLP).statements
    assert statement["kind"] == "pin"
    assert "test_constraints_in_code.py:" in statement["source"]
    assert statement["source"].rsplit(":", 1)[1].isdigit()
    assert statement["pattern"].startswith("sharding_constraint:")


def test_only_what_flows_through_the_constraint_is_constrained() -> None:  # S4.5
    def f(w: Any, x: Any) -> Any:
        h = x @ w
        return jax.lax.with_sharding_constraint(h, named(None, None)), jnp.tanh(h)

    found = planned(f, f32(64, 128), f32(32, 64), constraints=[Pin("dot_general", '[{"x"}, {"y"}]')])
    program = found.program
    product = next(op.results[0] for op in program.body.ops if op.kind == "dot_general")
    assert forms(found) == ["[{}, {}]"]
    assert found[program.values[product].name] == '[{"x"}, {"y"}]'
    runs_as_written(found, f, f32(64, 128), f32(32, 64))


def test_a_spec_under_a_mesh_is_read_as_well() -> None:
    def f(w1: Any, w2: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w1, P("x", "y")) @ w2

    with jax.set_mesh(mesh()):
        found = planned(f, *MLP)
    assert forms(found) == ['[{"x"}, {"y"}]']


def test_device_put_and_shardings_of_an_inner_jit_are_constraints() -> None:
    def f(w: Any, x: Any) -> Any:
        x = jax.device_put(x, named("x"))
        inner = jax.jit(jnp.tanh, in_shardings=named(None, "y"), out_shardings=named("y"))
        return inner(x @ w)

    found = planned(f, f32(64, 128), f32(32, 64))
    assert forms(found) == ['[{"x"}, {}]', '[{}, {"y"}]', '[{"y"}, {}]']
    assert not found.program.warnings
    runs_as_written(found, f, f32(64, 128), f32(32, 64))


def test_propagation_starts_from_constraints_in_the_code() -> None:
    program = trace(constrained("x", P.UNCONSTRAINED), *MLP).program
    found = propagate(program, Mesh.from_dict(AXES), {})
    by_name = {program.values[v].name: str(s) for v, s in found.values.items()}
    assert by_name["x"] == '[{"x", ?}, {?}]'
    assert by_name[program.values[program.body.results[0]].name] == '[{"x", ?}, {?}]'
    assert [s for name, s in by_name.items() if name.startswith("sharding_constraint:")] == ['[{"x"}, {?}]']


def test_constraints_hold_in_loops_and_in_the_backward_pass() -> None:
    def loss(ws: Any, x: Any) -> Any:
        def layer(c: Any, w: Any) -> Any:
            return jnp.tanh(jax.lax.with_sharding_constraint(c, named("x", None)) @ w), None

        return jnp.square(jax.lax.scan(layer, x, ws)[0]).sum()

    f = jax.grad(loss)
    found = planned(f, f32(3, 64, 64), f32(32, 64))
    assert len(forms(found)) >= 2
    assert set(forms(found)) == {'[{"x"}, {}]'}
    runs_as_written(found, f, f32(3, 64, 64), f32(32, 64))


def test_a_constraint_ends_a_partial_sum() -> None:
    def f(w: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, named()) * 2.0

    found = planned(f, f32(64, 128), f32(32, 64), constraints=[Pin("x", '[{}, {"y"}]'), Pin("w", '[{"y"}, {}]')])
    (op,) = [op for op in found.program.body.ops if op.kind == "sharding_constraint"]
    assert op.rule is not None
    assert op.rule.linear == ()
    assert not found.schedule.definitions[op.results[0]].unreduced


def test_an_axis_that_the_planning_mesh_lacks_is_refused_by_name() -> None:
    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh(data=4), P("data")))

    with pytest.raises(UnsupportedError, match=r"test_constraints_in_code.py:\d+: .*mesh axes \['data'\]"):
        plan(f, f32(64, 64), mesh=AXES, hardware="tpu_v5e")


def test_an_axis_of_another_size_is_taken_by_name_and_noted() -> None:
    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh(x=4), P("x")))

    found = planned(f, f32(64, 64))
    assert forms(found) == ['[{"x"}, {}]']
    assert any("written for x=4; here the axis has size 2" in note for note in found.notes)


@has_shard_alike
def test_shard_alike_ties_its_results_as_a_sharding_group() -> None:  # S4.8
    def f(a: Any, b: Any) -> Any:
        a, b = shard_alike(jnp.sin(a), jnp.cos(b))
        return a @ jnp.ones((32, 16)), b.T

    specs = (f32(64, 32), f32(64, 32))
    found = planned(f, *specs, constraints=[Pin("a", '[{"x"}, {}]'), Pin("out/1", '[{}, {"y"}]')])
    one, other = forms(found)
    assert one == other
    assert "no sharding rule" not in " ".join(found.notes)
    (group,) = [s for s in found.statements if s["kind"] == "same_sharding"]
    assert "test_constraints_in_code.py:" in group["source"] and len(group["values"]) == 2
    runs_as_written(found, f, *specs)
    data = found.to_dict()
    data["statements"] = [s for s in data["statements"] if s["kind"] != "same_sharding"]
    assert any("sharded alike" in str(it) for it in check_plan(data).findings)


@has_shard_alike
@pytest.mark.parametrize("x_before", [lambda x: x, jnp.cos])
def test_shard_alike_ties_a_value_whose_result_nothing_reads(x_before: Any) -> None:
    """As the documentation of JAX writes it: ``_, b = shard_alike(a, b)``."""

    def f(x: Any, y: Any) -> Any:
        x = x_before(x)
        _, z = shard_alike(x, jnp.sin(y))
        return jnp.tanh(z), x

    specs = (f32(64, 32), f32(64, 32))
    found = planned(f, *specs, constraints=[Pin("out/1", '[{"x"}, {}]'), Pin("y", '[{}, {"x"}]')])
    (tied,) = forms(found)
    assert tied == str(found["out/1"]) == '[{"x"}, {}]'
    assert check_plan(found.to_dict()).ok
    runs_as_written(found, f, *specs)


@has_shard_alike
def test_shard_alike_ties_values_though_nothing_reads_its_results() -> None:
    def f(x: Any, y: Any) -> Any:
        shard_alike(x, y)
        return x * 2, y.T

    found = planned(f, f32(64, 32), f32(64, 32), constraints=[Pin("x", '[{}, {"y"}]')])
    assert str(found["y"]) == '[{}, {"y"}]'


@has_shard_alike
def test_values_before_shard_alike_may_be_pinned_apart() -> None:
    """It ties its results: what goes into it may lie otherwise and be moved there."""

    def f(a: Any, b: Any) -> Any:
        a, b = shard_alike(checkpoint_name(jnp.sin(a), "a"), checkpoint_name(jnp.cos(b), "b"))
        return a * 2, b.T

    pins = [Pin("@a", '[{"x"}, {}]'), Pin("@b", '[{}, {"y"}]')]
    one, other = forms(planned(f, f32(64, 32), f32(64, 32), constraints=pins))
    assert one == other


def test_an_argument_of_a_shard_map_may_be_tied_to_a_value_that_is_pinned_otherwise() -> None:
    """It is moved to where the `shard_map` takes it."""

    def f(a: Any, b: Any) -> Any:
        halves = jax.shard_map(jnp.sin, mesh=mesh(), in_specs=P("x", None), out_specs=P("x", None), check_vma=False)
        return halves(a) + b

    stated = [SameSharding(["a", "b"]), Pin("b", '[{}, {"y"}]')]
    found = planned(f, f32(64, 32), f32(64, 32), constraints=stated)
    assert found["a"] == found["b"] == '[{}, {"y"}]'


@has_shard_alike
def test_a_group_of_which_one_value_is_left_is_told() -> None:
    def f(x: Any, y: Any) -> Any:
        _, z = shard_alike(jnp.cos(x), jnp.sin(y))
        return z

    found = planned(f, f32(64, 32), f32(64, 32))
    (told,) = [w for w in found.program.warnings if "shard_alike" in w]
    assert "test_constraints_in_code.py:" in told and "ties nothing" in told


@has_shard_alike
def test_shard_alike_against_pins_is_a_conflict_with_its_place() -> None:
    def f(a: Any, b: Any) -> Any:
        a, b = shard_alike(jnp.sin(a), jnp.cos(b))
        return checkpoint_name(a, "one") @ checkpoint_name(b, "other").T

    with pytest.raises(InfeasibleError, match="two pins contradict each other") as told:
        planned(f, f32(64, 32), f32(64, 32), constraints=[Pin("@one", '[{"x"}, {}]'), Pin("@other", '[{}, {"x"}]')])
    assert len(told.value.conflict) == 3
    assert any("test_constraints_in_code.py:" in c and "same sharding" in c for c in told.value.conflict)


def test_a_reshard_over_explicit_axes_is_a_constraint() -> None:
    explicit = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)

    def f(a: Any) -> Any:
        return jnp.cos(jax.sharding.reshard(jnp.sin(a), NamedSharding(explicit, P(None, "y"))))

    found = planned(f, f32(64, 32), constraints=[Pin("a", '[{"x", "y"}, {}]')])
    assert forms(found) == ['[{}, {"y"}]']
    assert [s["sharding"] for s in found.statements if "test_constraints_in_code" in s["source"]] == ['[{}, {"y"}]']


def test_a_pin_against_a_constraint_in_the_code_names_both() -> None:
    pin = Pin("sharding_constraint", '[{"y"}, {}]', source="a.yaml:1")
    with pytest.raises(InfeasibleError, match=r"a.yaml:1(.|\n)*test_constraints_in_code.py:\d+"):
        planned(constrained("x"), *MLP, constraints=[pin])


def test_the_checker_finds_a_constraint_that_does_not_hold() -> None:
    data = planned(constrained("x", "y"), *MLP).to_dict()
    data["statements"][0]["sharding"] = '[{"y"}, {"x"}]'
    assert any("is broken" in str(f) for f in check_plan(data).findings)


def test_the_checker_finds_a_constraint_that_the_plan_does_not_list() -> None:
    data = planned(constrained("x", "y"), *MLP).to_dict()
    data["statements"] = []
    assert any("sharding constraint in the code" in str(f) for f in check_plan(data).findings)


def of_one_device(*spec: Any) -> NamedSharding:
    return NamedSharding(mesh(x=2, one=1, y=2), P(*spec))


@pytest.mark.parametrize("spec", [(("x", "one"), "y"), (("one", "x"), "y"), (("one", "x", "one_more"), "y")], ids=str)
def test_an_axis_of_size_1_that_the_planning_mesh_lacks_cuts_nothing(spec: Any) -> None:
    there = NamedSharding(mesh(x=2, one=1, one_more=1, y=2), P(*spec))

    def f(w: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, there)

    assert forms(planned(f, f32(64, 128), f32(32, 64))) == ['[{"x"}, {"y"}]']


def test_an_argument_may_come_with_an_axis_of_size_1_that_the_planning_mesh_lacks() -> None:
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=of_one_device("one", "y"))
    assert planned(jnp.tanh, x)["x"] == '[{}, {"y"}]'


def test_an_axis_of_size_1_cuts_as_the_axis_of_that_name_on_the_planning_mesh() -> None:
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=of_one_device("one", "y"))
    assert plan(jnp.tanh, x, mesh={"one": 4, "y": 2}, hardware="tpu_v5e")["x"] == '[{"one"}, {"y"}]'
