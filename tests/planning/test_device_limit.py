"""Where no memory limit is stated the device's usable memory is the limit: a plan that is given fits."""

import json
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import f32, gradient

from autoshard import InfeasibleError, InputError, plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.config import load_config
from autoshard.costmodels import Machine, load_profile, place_mesh
from autoshard.costs.memory import HEADROOM, room
from autoshard.plan_record import ToldLimit
from autoshard.planning import relaxations
from autoshard.verify.plan.checker import check_plan
from autoshard.verify.plan.memory import room as checked_room

MESH = {"x": 2, "y": 2}
SPECS = (f32(64, 128), f32(128, 64), f32(32, 64))
GIVEN: dict[str, Any] = {"mesh": MESH, "argnames": ("w1", "w2", "x")}
USABLE = 140_000
"""Bytes of a device in which the quickest plan has no room: it holds 124,932, and compilers reserve more."""


def small(usable: int) -> Machine:
    """A TPU v5e that leaves so little memory to programs that small ones fill it."""
    machine = place_mesh(load_profile("tpu_v5e"), MESH, None)
    known = machine.profile.memory
    assert known.usable is not None
    held = known.model_copy(
        update={
            "bytes": known.bytes.model_copy(update={"value": 2.0**25}),
            "usable": known.usable.model_copy(update={"value": float(usable)}),
        }
    )
    return replace(machine, profile=machine.profile.model_copy(update={"memory": held}))


def planned(hardware: Any = "tpu_v5e", **options: Any) -> Plan:
    return plan(gradient, *SPECS, hardware=hardware, **{**GIVEN, **options})


@pytest.fixture(scope="module")
def free() -> Plan:
    return planned(memory_limit="none")


@pytest.mark.parametrize(("rules", "share"), [(None, HEADROOM), ("gpu", 0.25)])
@pytest.mark.parametrize("usable", [1, 2, 100, 115, 116, 140_000, 16 * 2**30 - 1, 80_000_000_000])
def test_the_room_of_a_device_is_the_largest_peak_that_fits(usable: int, rules: str | None, share: float) -> None:
    peak = room(usable, share)
    assert ceil(peak * (1 + share)) <= usable < ceil((peak + 1) * (1 + share))
    assert checked_room(usable, rules) == peak


def test_a_plan_without_a_stated_limit_fits_its_device_by_its_own_verdict(free: Plan) -> None:
    found = planned(small(USABLE), effort=0.1)
    assert free.memory.peak_bytes * (1 + HEADROOM) > USABLE
    assert found.to_dict()["memory"]["fits"] and check_plan(found.to_dict()).ok


def test_none_lifts_the_limit() -> None:
    found = planned(small(USABLE), memory_limit="none")
    assert not found.to_dict()["memory"]["fits"]
    assert found.memory_limit == ToldLimit(bytes=None, source="stated") and found.statements == ()


def test_none_is_a_word_for_device_memory_only() -> None:
    assert planned(memory_limit={"device": "none"}).memory_limit == ToldLimit(bytes=None, source="stated")
    with pytest.raises(InputError, match="pinned_host"):
        planned(memory_limit={"pinned_host": "none"})


def test_a_limit_on_the_host_alone_leaves_that_of_the_device() -> None:
    assert planned(memory_limit={"pinned_host": "1GiB"}).memory_limit == planned().memory_limit


def test_a_stated_limit_wins_over_that_of_the_device(free: Plan) -> None:
    found = planned(small(USABLE), memory_limit=free.memory.peak_bytes)
    assert found.objective_s == free.objective_s
    assert found.memory_limit == ToldLimit(bytes=free.memory.peak_bytes, source="stated")


def test_a_stated_limit_beyond_the_device_is_told() -> None:
    found = planned(small(USABLE), memory_limit=USABLE + 1)
    (note,) = [note for note in found.notes if "exceeds" in note]
    assert note == f"the stated memory limit of {USABLE + 1} bytes per device exceeds the {USABLE} bytes that " + (
        "tpu_v5e leaves to programs"
    )
    assert not any("exceeds" in note for note in planned(small(USABLE), memory_limit=USABLE).notes)


def test_the_plan_says_where_its_limit_comes_from() -> None:
    usable = load_profile("tpu_v5e").memory.usable
    assert usable is not None
    assert planned().to_dict()["memory_limit"] == {"bytes": room(usable.value), "from": "device"}
    assert "limit: the device's usable memory" in planned().summary()
    assert "limit: none" in planned(memory_limit="none").summary()
    assert "limit: stated, 1000000 bytes per device" in planned(memory_limit=10**6).summary()


def test_the_limit_of_the_device_is_no_statement() -> None:
    assert planned().statements == ()


def test_a_plan_that_fits_is_the_same_with_and_without_the_limit(free: Plan) -> None:
    one, two = planned().to_dict(), free.to_dict()
    assert one.pop("memory_limit") != two.pop("memory_limit")
    assert one == two


def test_a_machine_that_does_not_say_what_it_leaves_to_programs_has_all_its_memory() -> None:
    h100 = load_profile("h100").memory
    assert h100.usable is None
    assert planned("h100").memory_limit == ToldLimit(bytes=room(h100.bytes.value, 0.25), source="device")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan is looked for in what would make room."""
    monkeypatch.setattr(relaxations, "MOST_SEARCHED_VALUES", 0)


def test_a_program_too_large_for_the_device_is_told_what_the_device_has_and_how_to_lift_the_limit(short: None) -> None:
    with pytest.raises(InfeasibleError) as told:
        planned(small(20_000))
    text = str(told.value)
    assert text.startswith(
        f"no plan exists within the memory limit of {room(20_000)} bytes per device, which is the dev"
    )
    assert "no memory_limit is stated" in text and "it leaves 20000 bytes to programs" in text
    assert "lift it with memory_limit: none" in text
    assert told.value.facts["limit_from"] == "device"


def test_a_stated_limit_is_not_told_to_be_lifted(short: None) -> None:
    with pytest.raises(InfeasibleError) as told:
        planned(memory_limit=10_000)
    assert "memory_limit: none" not in str(told.value) and told.value.facts["limit_from"] == "stated"


def test_the_record_survives_the_file(tmp_path: Path) -> None:
    for given in (None, "none", 10**6):
        made = planned(memory_limit=given)
        made.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json").memory_limit == made.memory_limit


@pytest.mark.parametrize("wrong", [[], {"bytes": 5}, {"bytes": -1, "from": "device"}, {"bytes": 5, "from": "me"}])
def test_a_damaged_record_is_refused(tmp_path: Path, wrong: Any) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({**planned().to_dict(), "memory_limit": wrong}))
    with pytest.raises(InputError, match="memory_limit is"):
        Plan.load(tmp_path / "plan.json")


CONFIG = 'function: limit_program:f\nargs: {x: "float32[8,8]"}\nmesh: {a: 2}\nhardware: tpu_v5e\n'


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("", {"bytes": 14705594546, "from": "device"}),
        ("memory_limit: none\n", {"bytes": None, "from": "stated"}),
        ("memory_limit: {device: none, pinned_host: 1GiB}\n", {"bytes": None, "from": "stated"}),
        ("memory_limit: 1GiB\n", {"bytes": 2**30, "from": "stated"}),
    ],
)
def test_configs_say_the_same(tmp_path: Path, line: str, limit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limit_program.py").write_text("import jax.numpy as jnp\ndef f(x):\n    return jnp.tanh(x)\n")
    (tmp_path / "c.yaml").write_text(CONFIG + line)
    assert main(["solve", str(tmp_path / "c.yaml"), "--output", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_limit"] == limit
    assert check_plan(json.loads((tmp_path / "plan.json").read_text())).ok


def test_a_config_may_write_none_with_a_capital(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG + "memory_limit: None\n")
    assert load_config(tmp_path / "c.yaml").memory_limit == "none"


def test_sizes_of_a_mesh_are_searched_within_the_device() -> None:
    found = plan(
        lambda x, w: jnp.tanh(x @ w), f32(64, 64), f32(64, 64), mesh={"devices": 4, "axes": ["a", "b"]},
        hardware="tpu_v5e",
    )  # fmt: skip
    assert found.memory_limit is not None and found.memory_limit.source == "device"


def test_a_donated_cache_of_more_than_half_of_the_device_is_updated_in_place() -> None:
    def write(cache: Any, rows: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, rows, (at, 0))

    cache = ShapeDtypeStruct((5 * 2**20, 1024), jnp.bfloat16)  # 10 GiB of 15.75
    rows, at = ShapeDtypeStruct((1, 1024), jnp.bfloat16), ShapeDtypeStruct((), jnp.int32)
    found = plan(write, cache, rows, at, mesh={"x": 1}, hardware="tpu_v5e", donate_argnums=0)
    assert found.memory.fits and found.memory.peak_bytes < 1.01 * 10 * 2**30
    assert not check_plan(json.loads(json.dumps(found.to_dict()))).findings
