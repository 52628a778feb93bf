"""What `autoshard.plan` may be given, and what it makes of it: limits, meshes, statements, arguments, results."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from plan_cases import Pin, f32, mlp

from autoshard import InputError, MaxReshards, Plan, UnsupportedError, plan
from autoshard.program.differing import program_difference

MLP = (f32(64, 128), f32(128, 64), f32(32, 64))
AXES = {"data": 2, "model": 4}
solve = partial(plan, mesh=AXES, hardware="tpu_v5e")


def double(x: Any) -> Any:
    return x * 2


# -- limits --------------------------------------------------------------------------------------------------------


def test_a_key_that_is_null_is_another_one_than_a_key_that_is_not_there() -> None:
    program = {"values": [], "body": {"args": []}, "input_names": [], "donated": []}
    other = {**program, "body": {"args": [], "trips": None}}
    assert program_difference(program, other) == "program.body.trips is None in the plan, not there now"
    assert program_difference(other, program) == "program.body.trips is not there in the plan, None now"


@pytest.mark.parametrize(
    ("given", "limit"), [(10**6, 10**6), (1e6, 10**6), ("1MB", 10**6), ("50%", 8 * 1024**3), (0.5, 8 * 1024**3)]
)
def test_memory_limits_are_bytes_or_text_as_in_configs(given: Any, limit: int) -> None:
    assert solve(double, f32(8), memory_limit=given).statements[-1]["bytes"] == limit


@pytest.mark.parametrize("given", [0, -1, float("nan"), True, "plenty", [1]])
def test_what_is_no_amount_of_memory_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"memory_limit is .*give a positive number of bytes per device"):
        solve(double, f32(8), memory_limit=given)


@pytest.mark.parametrize("given", [0, -1, float("nan"), True, "soon", [1]])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="time_limit: "):
        solve(double, f32(8), time_limit=given)


@pytest.mark.parametrize("option", ["time_limit", "memory_limit", "effort", "accepted_gap"])
def test_an_integer_that_is_no_floating_point_number_is_refused(option: str) -> None:
    with pytest.raises(InputError, match=f"{option}.* an integer of 16610 bits"):
        solve(double, f32(8), **{option: 10**5000})


def test_a_time_limit_may_have_a_unit() -> None:
    assert solve(double, f32(8), time_limit="2min").status == "optimal"


# -- meshes --------------------------------------------------------------------------------------------------------


def test_a_mesh_of_jax_is_a_mesh() -> None:
    found = solve(mlp, *MLP, mesh=jax.make_mesh((2, 4), ("data", "model")))
    assert found.to_dict() == solve(mlp, *MLP).to_dict()
    abstract = solve(mlp, *MLP, mesh=AbstractMesh((2, 4), ("data", "model")))
    assert abstract.objective_s == found.objective_s


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (None, "mesh: give a Mesh or sizes by axis"),
        ([("x", 2)], "mesh: give a Mesh or sizes by axis"),
        ({1: 2}, "mesh: names of axes are text, found 1"),
        ({'a"b': 2}, "is no name for an axis"),
        ({"a:(1)2": 2}, "is no name for an axis"),
    ],
)
def test_what_is_no_mesh_is_refused(mesh: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(double, f32(8), mesh=mesh, hardware="tpu_v5e")


# -- statements ----------------------------------------------------------------------------------------------------


def test_one_statement_needs_no_list() -> None:
    pin: Any = Pin("x", '[{"data"}]')
    assert solve(double, f32(8), constraints=pin)["x"] == '[{"data"}]'


@pytest.mark.parametrize("given", ["x", {"x": '[{"data"}]'}, 3])
def test_what_is_no_list_of_statements_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="constraints takes a list of Pin, SameSharding"):
        solve(double, f32(8), constraints=given)


def placed_spec(
    shape: tuple[int, ...], *entries: Any, axes: tuple[str, ...] = ("data", "model"), sizes: tuple[int, ...] = (2, 4)
) -> Any:
    mesh = jax.make_mesh(sizes, axes)
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*entries)))


def test_the_sharding_that_an_argument_comes_with_is_a_statement() -> None:
    found = solve(double, placed_spec((8, 8), None, "data"))
    assert found["x"] == '[{}, {"data"}]'
    (statement,) = found.statements
    assert (statement["pattern"], statement["source"], statement["values"]) == ("x", "argument x", [0])


def test_arrays_say_their_type_only() -> None:
    free = solve(double, f32(8, 8))
    assert solve(double, jax.device_put(np.ones((8, 8), np.float32))).to_dict() == free.to_dict()


def test_an_argument_on_a_mesh_of_fewer_devices_and_other_axes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"argument x comes with a sharding over mesh axes \['rows'\]"):
        solve(double, placed_spec((8,), "rows", axes=("rows", "columns"), sizes=(2, 2)))


# -- arguments -----------------------------------------------------------------------------------------------------


def test_donation_is_a_position_or_several() -> None:
    assert solve(double, f32(8), donate_argnums=0).program.donated == {0}
    assert solve(double, f32(8), donate_argnums=(-1,)).program.donated == {0}


@pytest.mark.parametrize("given", ["x", ["x"], [True], 1.5])
def test_donation_by_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="give positions of arguments"):
        solve(double, f32(8), donate_argnums=given)


def test_a_loaded_plan_is_attached_with_its_own_donation(tmp_path: Path) -> None:
    found = solve(lambda x, y: (x + y, y.sum()), f32(8), f32(8), donate_argnums=0)
    found.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json").attach(lambda x, y: (x + y, y.sum()), f32(8), f32(8))
    assert again.lowered.donate_argnums == (0,)


@pytest.mark.parametrize("donated", [0, [0], (0,)])
def test_a_plan_is_attached_with_its_donation_stated_again(donated: Any) -> None:
    found = solve(double, f32(8), donate_argnums=0)
    assert found.attach(double, f32(8), donate_argnums=donated).lowered.donate_argnums == (0,)


@pytest.mark.parametrize(
    ("f", "x", "donated", "told"),
    [
        (double, f32(8), (), "donated are x in the plan, no arguments now"),
        (double, f32(16), 0, r"x is float32\[8\] in the plan, float32\[16\] now"),
        (lambda x: x + 1, f32(8), 0, r"ops\[0\].* is mul in the plan, add now"),
    ],
    ids=["donation", "an argument", "an op"],
)
def test_a_function_that_is_not_the_planned_one_is_refused_with_the_difference(
    f: Any, x: Any, donated: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        solve(double, f32(8), donate_argnums=0).attach(f, x, donate_argnums=donated)


@pytest.mark.parametrize("size", [2**53, 10**30])
def test_arrays_that_no_machine_could_count_are_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"x is float32\[\d+,8\], .* bytes; no more than 2\^53 can be planned"):
        solve(lambda x: x.sum(0), f32(size, 8))


@pytest.mark.parametrize("limit", [10**9, 10**30])
def test_a_limit_on_reshards_beyond_the_program_is_no_limit(limit: int) -> None:
    assert solve(mlp, *MLP, constraints=MaxReshards(limit)).objective_s == solve(mlp, *MLP).objective_s


# -- results -------------------------------------------------------------------------------------------------------


def typed(tree: Any) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(str(x.dtype), x.shape, x.weak_type) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("target", ["explicit", "constraints", "shardings"])
def test_results_keep_their_weak_types(target: str) -> None:
    def f(s: Any) -> Any:
        return s * 2, s, 3, 2.5, True, jnp.sin(s), jnp.float32(1)

    got = solve(f, 2.0).lower(target).jit()(2.0)
    assert typed(got) == typed(jax.jit(f)(2.0))
    assert [float(x) for x in got] == [float(x) for x in jax.jit(f)(2.0)]


def test_a_program_of_empty_arguments_alone_runs() -> None:
    found = solve(lambda x, y: x @ y, f32(8, 0), f32(0, 8), constraints=[Pin("out", '[{"data", "model"}, {}]')])
    x, y = np.zeros((8, 0), np.float32), np.zeros((0, 8), np.float32)
    np.testing.assert_array_equal(np.asarray(found.jit()(x, y)), np.zeros((8, 8)))


def test_a_program_that_does_nothing_has_no_gap() -> None:
    found = solve(lambda x: x, f32(8))
    assert (found.status, found.gap, found.bound_s) == ("optimal", 0.0, found.objective_s)


def test_the_form_of_a_plan_in_a_notebook_is_short() -> None:
    text = repr(solve(mlp, *MLP))
    assert text.startswith("Plan(mlp on tpu_v5e, mesh <") and "optimal" in text and len(text) < 300


def test_a_loaded_plan_does_not_mind_lines_that_moved(tmp_path: Path) -> None:
    def written(lines: str) -> Any:
        names: dict[str, Any] = {}
        exec(compile(lines + "def f(x):\n    return x * 2 + 1\n", str(tmp_path / "model.py"), "exec"), names)
        return names["f"]

    solve(written(""), f32(8)).save(tmp_path / "plan.json")
    Plan.load(tmp_path / "plan.json").attach(written("\n\n# a comment\n"), f32(8))
    with pytest.raises(InputError, match="does not trace to the program of this plan"):
        Plan.load(tmp_path / "plan.json").attach(lambda x: x * 3 + 1, f32(8))
