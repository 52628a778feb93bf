"""The shardings of a plan taken away: as PartitionSpecs and NamedShardings from its file, and as a Python file."""

import json
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.errors import InputError, UnsupportedError


class State(NamedTuple):
    weights: dict[str, Any]
    moments: list[Any]


def step(state: State, x: Any) -> tuple[State, Any]:
    hidden = jnp.tanh(x @ state.weights["up"])
    return State(state.weights, [m * 0.9 for m in state.moments]), (hidden @ state.weights["down"]).sum(0)


F32 = jnp.float32
STATE = State(
    {"up": jax.ShapeDtypeStruct((64, 256), F32), "down": jax.ShapeDtypeStruct((256, 64), F32)},
    [jax.ShapeDtypeStruct((256, 64), F32)],
)
PINS = [
    autoshard.Pin("state/weights/up", '[{}, {"model"}]'),
    autoshard.Pin("state/weights/down", '[{"model"}, {"data"}]'),
    autoshard.Pin("state/moments/0", '[{"data", "model"}, {}]'),
    autoshard.Pin("x", '[{"data"}, {}]'),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = autoshard.plan(
        step, STATE, jax.ShapeDtypeStruct((32, 64), F32), mesh={"data": 2, "model": 4}, hardware="cpu_sim",
        constraints=PINS,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("specs") / "plan.json"
    plan.save(path)
    return path


def test_specs_come_from_the_file_alone_as_dictionaries_by_path(file: Path) -> None:
    specs = Plan.load(file).partition_specs()
    assert specs["state"]["weights"] == {"up": P(None, "model"), "down": P("model", "data")}
    assert specs["state"]["moments"] == {"0": P(("data", "model"), None)}
    assert specs["x"] == P("data", None) and set(specs) == {"state", "x", "out"}


def test_a_tree_gives_its_structure_to_the_specs(file: Path) -> None:
    specs = Plan.load(file).partition_specs("state", like=STATE)
    assert specs == State({"up": P(None, "model"), "down": P("model", "data")}, [P(("data", "model"), None)])


@pytest.mark.smoke
def test_named_shardings_put_arrays_where_the_plan_has_them(file: Path) -> None:
    plan = Plan.load(file)
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    placed = jax.device_put(jnp.zeros((32, 64)), plan.named_shardings(mesh, "x"))
    assert placed.sharding == NamedSharding(mesh, P("data", None))
    assert plan.named_shardings(argument="x").mesh.shape == mesh.shape


@pytest.mark.smoke
def test_they_are_those_that_the_planned_function_takes(file: Path) -> None:
    plan = Plan.load(file).attach(step, STATE, jax.ShapeDtypeStruct((32, 64), F32))
    found = plan.named_shardings(argument="state", like=STATE)
    same = jax.tree.map(lambda a, b: a.is_equivalent_to(b, 2), found, plan.in_shardings[0])
    assert all(jax.tree.leaves(same))


def test_what_does_not_fit_is_told(file: Path) -> None:
    plan = Plan.load(file)
    with pytest.raises(InputError, match="no argument 'stat'; did you mean 'state'"):
        plan.partition_specs("stat")
    with pytest.raises(InputError, match="'state/moments/0' is in one of them only"):
        plan.partition_specs("state", like=State(STATE.weights, []))
    with pytest.raises(InputError, match="say which argument the tree is"):
        plan.partition_specs(like=STATE)
    with pytest.raises(InputError, match="the plan is for the mesh"):
        plan.named_shardings(jax.make_mesh((8,), ("x",)))


def test_a_sub_axis_has_no_partition_spec() -> None:
    plan = autoshard.plan(
        lambda x: x * 2, jax.ShapeDtypeStruct((2, 8), F32), mesh={"a": 4}, hardware="cpu_sim", sub_axes={"a": (2, 2)},
        constraints=autoshard.Pin("x", '[{"a":(1)2}, {}]'),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="cannot name the sub-axis"):
        plan.partition_specs("x")


def test_whole_axes_need_that_no_statement_names_a_part_and_the_advice_says_so() -> None:
    arrays, pin = jax.ShapeDtypeStruct((2, 8), F32), autoshard.Pin("x", '[{"a":(1)2}, {}]')
    plan = autoshard.plan(lambda x: x * 2, arrays, mesh={"a": 4}, hardware="cpu_sim", sub_axes={}, constraints=pin)
    with pytest.raises(UnsupportedError, match="no statement that names a part of an axis"):
        plan.partition_specs("x")


def test_the_python_file_stands_alone(file: Path, tmp_path: Path) -> None:
    assert main(["specs", str(file), "-o", str(tmp_path / "shardings.py")]) == 0
    names: dict[str, Any] = {}
    exec((tmp_path / "shardings.py").read_text(), names)
    found = names["shardings"](STATE, "state")
    assert found.weights["up"].spec == P(None, "model") and found.moments[0].spec == P(("data", "model"), None)


def test_the_mesh_of_the_python_file_lets_the_compiler_propagate(file: Path, tmp_path: Path) -> None:
    assert main(["specs", str(file), "-o", str(tmp_path / "shardings.py")]) == 0
    taken = runpy.run_path(str(tmp_path / "shardings.py"))["shardings"]
    state, x = jax.tree.map(lambda spec: jnp.ones(spec.shape, spec.dtype), (STATE, jax.ShapeDtypeStruct((32, 64), F32)))
    placed = jax.device_put(state, taken(state, "state")), jax.device_put(x, taken(x, "x"))
    assert jax.jit(step)(*placed)[1].shape == (64,)  # in explicit mode its second matmul is refused


def test_json_has_mesh_and_specs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["specs", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mesh"] == {"data": 2, "model": 4}
    assert told["specs"]["state/moments/0"] == [["data", "model"], None]


def test_an_output_that_is_a_number_of_the_code_is_whole(tmp_path: Path) -> None:
    plan = autoshard.plan(
        lambda x: (x * 2, 3), jax.ShapeDtypeStruct((8, 8), F32), mesh={"data": 2}, hardware="cpu_sim",
        constraints=[autoshard.Pin("out/0", '[{"data"}, {}]')],
    )  # fmt: skip
    plan.save(tmp_path / "plan.json")
    assert plan.partition_specs("out") == {"0": P("data", None), "1": P()}
    assert main(["specs", str(tmp_path / "plan.json")]) == 0


def planned(function: Any, tree: Any) -> Plan:
    return autoshard.plan(function, tree, mesh={"data": 2}, hardware="cpu_sim", argnames=("tree",))


def test_no_leaf_is_left_out_where_the_path_of_one_goes_on_from_another() -> None:
    row, other = jax.ShapeDtypeStruct((8,), F32), jax.ShapeDtypeStruct((6,), F32)
    specs = planned(lambda tree: None, {"a": {"x/y": row}, "a/x": other}).partition_specs()
    assert specs == {"tree/a/x/y": P("data"), "tree": {"a": {"x": P("data")}}}


def test_an_argument_named_as_results_are_has_specs_beside_theirs() -> None:
    plan = autoshard.plan(
        lambda out: out.T, jax.ShapeDtypeStruct((8, 6), F32), mesh={"data": 2}, hardware="cpu_sim",
        constraints=[autoshard.Pin("out~2", '[{"data"}, {}]')],
    )  # fmt: skip
    assert plan.partition_specs() == {"out~2": P("data", None), "out": P(None, "data")}
