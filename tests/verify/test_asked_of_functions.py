"""With the function at hand: what it donates, which shardings its arguments come with, meshes of other orders."""

import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asked_cases import NAMED, Json, plain, planned_from

import autoshard
from autoshard import Pin
from autoshard.config.load import Config
from autoshard.frontends.jax.function import trace
from autoshard.trust import Trust
from autoshard.verify import Asked, verify_plan
from autoshard.verify.derived import ASKED, check_derived
from autoshard.verify.report import Check, Status

MESH = {"x": 2, "y": 4}


def asked_of(found: Any) -> Check:
    return next(check for check in found.checks if check.name == ASKED)


@pytest.fixture(scope="module")
def from_config(tmp_path_factory: pytest.TempPathFactory) -> Json:
    plan = planned_from(NAMED, tmp_path_factory.mktemp("named"))
    plan["config"]["trusted"] = Trust.GIVEN  # as it is read from the file that was made here
    return plan


def test_a_verification_without_mesh_and_hardware_says_what_it_compares_with() -> None:
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    found = autoshard.plan(jnp.tanh, x, mesh=MESH, hardware="tpu_v5e")
    with pytest.raises(autoshard.InputError, match=r"give mesh and hardware as to autoshard\.plan"):
        found.verify(jnp.tanh, x)


def test_the_config_says_what_is_donated(from_config: Json) -> None:
    plan = copy.deepcopy(from_config)
    assert asked_of(verify_plan(plan)).status is Status.OK
    del plan["config"]["settings"]["donate"]
    found = asked_of(verify_plan(plan))
    assert any(
        line.startswith("donation: asked: donated nothing; found in the plan: state/m/w1") for line in found.lines
    )


def test_a_config_that_was_changed_with_the_plan_is_caught_by_ones_own(from_config: Json) -> None:
    plan = copy.deepcopy(from_config)
    own = Asked.of_config(Config.from_dict(from_config["config"]))
    plan["config"]["settings"]["logical_axes"]["x"] = plan["priorities"]["roles"]["x"] = ["batch", "columns"]
    assert check_derived(plan).status is Status.OK
    found = verify_plan(plan, asked=own)
    assert "priorities: asked: roles x[1] embed; found in the plan: columns" in str(asked_of(found))


def test_the_config_says_which_program_it_is(from_config: Json) -> None:
    plan = copy.deepcopy(from_config)
    plan["program"]["name"] = "another"
    assert "program: asked: asked_step:step; found in the plan: another" in str(verify_plan(plan))


def test_a_config_whose_function_is_gone_leaves_donation_on_trust(from_config: Json) -> None:
    plan = copy.deepcopy(from_config)
    plan["config"]["settings"]["function"] = "asked_step:gone"
    found = asked_of(verify_plan(plan))
    assert found.status is Status.OK
    assert "taken on trust: the program itself and what it donates: there is no function" in found.lines


def f(a: Any, b: Any) -> Any:
    return jnp.tanh(a @ b)


def mesh_of(order: list[int]) -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.array(jax.devices())[order].reshape(2, 4), ("x", "y"))


def spec(shape: tuple[int, ...], order: list[int] | None, *axes: str | None) -> jax.ShapeDtypeStruct:
    sharding = None
    if order is not None:
        sharding = jax.sharding.NamedSharding(mesh_of(order), jax.sharding.PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


TURNED = [4, 5, 6, 7, 0, 1, 2, 3]


def words(**more: Any) -> dict[str, Any]:
    return {"mesh": MESH, "hardware": "cpu_sim", **more}


def test_shardings_that_arguments_come_with_are_asked_for() -> None:
    specs = spec((16, 32), TURNED, "x"), spec((32, 64), None)
    plan = autoshard.plan(f, *specs, **words())
    data = plain(plan.to_dict())
    traced = trace(f, *specs)
    assert data["mesh"]["device_ids"] == TURNED
    assert check_derived(data, Asked(**words()), traced).status is Status.OK
    data["mesh"]["device_ids"] = None
    found = str(check_derived(data, Asked(**words()), traced))
    assert "asked: devices in the order [4, 5, 6, 7, 0, 1, 2, 3]; found in the plan: 0 to 7" in found
    data["statements"] = []
    assert "asked: pin a: " in str(check_derived(data, Asked(**words()), traced))


def test_without_the_function_such_shardings_are_taken_on_trust() -> None:
    data = plain(autoshard.plan(f, spec((16, 32), TURNED, "x"), spec((32, 64), None), **words()).to_dict())
    found = check_derived(data, Asked(**words()))
    assert found.status is Status.OK
    assert any("the sharding that an argument came with" in line for line in found.lines)
    assert any("the order of devices that these name" in line for line in found.lines)


def test_values_in_another_order_of_the_devices_are_asked_for() -> None:
    other = jax.sharding.NamedSharding(mesh_of([0, 1, 2, 3, 4, 5, 7, 6]), jax.sharding.PartitionSpec("x", "y"))
    asked = words(constraints=[Pin("a", other)], mesh=autoshard.Mesh.from_dict(MESH))
    specs = spec((16, 32), None), spec((32, 64), None)
    data = plain(autoshard.plan(f, *specs, **asked).to_dict())
    traced = trace(f, *specs)
    assert data["program"]["orders"]
    assert check_derived(data, Asked(**asked), traced).status is Status.OK
    none = Asked(**words(mesh=autoshard.Mesh.from_dict(MESH)))
    found = str(check_derived(data, none, traced))
    assert "asked: 0 values in another order of the devices; found in the plan: 1 of them" in found
    moved = copy.deepcopy(data)
    next(s for s in moved["statements"] if "stated" in s)["stated"] = '[{"y"}, {}]'
    assert 'asked: pin a: [{"x"}, {"y"}] on' in str(check_derived(moved, Asked(**asked), traced))


@pytest.mark.parametrize(
    "asked",
    [
        {"strategy": "basic:first-factor"},
        {"strategy": "staged"},
        {"strategy": "joint"},
        {"mesh": {"devices": 8, "axes": ["x", "y"]}},
        {"mesh": {"x": {"size": 2, "link": None}, "y": 4}},
        {"sub_axes": {"y": (2, 2)}, "constraints": [Pin("a", '[{"y":(1)2}, {"x"}]')]},
        {"constraints": Pin("b", '[{?}, {"y", ?}p1]')},
        {"constraints": [Pin("a", '[{"x"}, {}]'), Pin("b", '[{}, {"y"}]', priority=2)]},
        {"memory_limit": {"device": "90%", "pinned_host": "1GiB"}},
        {"memory_limit": "1GiB", "share_repeats": False},
    ],
    ids=str,
)
def test_whatever_was_asked_for_is_found_again(asked: dict[str, Any]) -> None:
    given = words(**asked)
    specs = spec((16, 32), None), spec((32, 64), None)
    data = plain(autoshard.plan(f, *specs, **given).to_dict())
    found = check_derived(data, Asked(**given), trace(f, *specs))
    assert found.status is Status.OK, str(found)


def test_parts_of_axes_that_were_asked_for_are_those_of_the_plan() -> None:
    specs = spec((16, 32), None), spec((32, 64), None)
    data = plain(autoshard.plan(f, *specs, **words()).to_dict())
    found = str(check_derived(data, Asked(**words(sub_axes={"y": (2, 2)})), trace(f, *specs)))
    assert "mesh: asked: y in parts of 2, 2; found in the plan: 4" in found


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(TypeError, match="pins"):
        Asked(mesh=MESH, hardware="cpu_sim", pins=())  # type: ignore[call-arg]


def test_plans_of_files_are_verified_without_other_words(from_config: Json, tmp_path: Path) -> None:
    import json

    file = tmp_path / "plan.json"
    config = {key: value for key, value in from_config["config"].items() if key != "trusted"}
    file.write_text(json.dumps({**from_config, "config": config}))
    found = autoshard.verify.verify_file(file)
    assert asked_of(found).status is Status.OK and found.ok


def test_a_statement_about_a_line_holds_however_its_file_is_written() -> None:
    here = Path(__file__)
    line = twice.__code__.co_firstlineno + 1
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    stated = [
        autoshard.NoCollective("x", f"{folder}{here.name}:{line}") for folder in ("", "verify/", f"{here.parent}/")
    ]
    found = autoshard.plan(twice, x, mesh=MESH, hardware="tpu_v5e", constraints=stated)
    assert found.verify(twice, x, mesh=MESH, hardware="tpu_v5e", constraints=stated).ok


def twice(x: Any) -> Any:
    return x @ x
