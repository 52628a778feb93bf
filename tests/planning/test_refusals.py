"""A proof that there is no plan is kept in a file, and judged again by code that shares nothing with the search."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct

import autoshard
from autoshard.api.bound import NO_PLAN, check_refusal
from autoshard.cli import main
from autoshard.errors import InfeasibleError, InputError
from autoshard.plan_record import RefusalRecord
from autoshard.verify import Asked
from autoshard.verify.derived import check_derived
from autoshard.verify.report import Check, Status

CONFIG = """
function: two_products:f
args: {x: "float32[64,32]", w: "float32[32,128]", u: "float32[128,32]"}
mesh: {a: 2, b: 2}
hardware: cpu_sim
memory_limit: LIMIT
verify: false
output: out
"""


def two_products(x: Any, w: Any, u: Any) -> Any:
    return (x @ w) @ u


def refused(**words: Any) -> RefusalRecord:
    specs = [ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 128), (128, 32))]
    with pytest.raises(InfeasibleError) as caught:
        autoshard.plan(two_products, *specs, mesh={"a": 2, "b": 2}, hardware="cpu_sim", **words)
    return caught.value.refusal


def judged(record: RefusalRecord, change: Callable[[dict[str, Any]], None] | None = None) -> Check:
    data = json.loads(json.dumps(record.to_dict()))
    if change is not None:
        change(data)
    return check_refusal(data)


@pytest.fixture(scope="module")
def by_search() -> RefusalRecord:
    """Refused by a search, within a limit that has room for what is decided once and not for the copies beside it."""
    return refused(memory_limit=23_000)


def test_what_a_search_has_proved_is_judged_on_the_network_made_again(by_search: RefusalRecord) -> None:
    assert by_search.certificate is not None and by_search.certificate.moments is not None
    found = judged(by_search)
    assert found.status is Status.OK
    assert "no plan within 23000 bytes per device" in found.lines[0]


def test_what_has_no_room_from_the_beginning_has_a_certificate_too() -> None:
    record = refused(memory_limit=9_000)
    assert record.certificate is not None and record.certificate.moments is None
    assert judged(record).status is Status.OK


def test_statements_that_leave_no_layout_make_no_network_and_no_certificate() -> None:
    pins = [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("x", '[{"b"}, {}]')]
    record = refused(constraints=pins)
    assert record.certificate is None
    found = judged(record)
    assert found.status is Status.NOT_DONE
    assert any("two pins contradict each other on x" in line for line in found.lines)


def more_room(data: dict[str, Any]) -> None:
    data["memory_limit"]["bytes"] = 40_000
    (statement,) = (s for s in data["statements"] if s["kind"] == "memory_limit")
    statement["bytes"] = 40_000


def less_room(data: dict[str, Any]) -> None:
    more_room(data)
    data["certificate"]["limit"] = 40_000


def no_moments(data: dict[str, Any]) -> None:
    data["certificate"]["moments"] = None


def moments_of_another(data: dict[str, Any]) -> None:
    data["certificate"]["moments"] = {"900": [70]}


def cut_short(data: dict[str, Any]) -> None:
    data["certificate"]["data"] = data["certificate"]["data"][:-40]


def layers_apart(data: dict[str, Any]) -> None:
    data["certificate"]["shares"] = False


@pytest.mark.parametrize(
    "change", [more_room, less_room, no_moments, moments_of_another, cut_short, layers_apart], ids=lambda f: f.__name__
)
def test_a_refusal_that_was_changed_is_caught(by_search: RefusalRecord, change: Callable[..., None]) -> None:
    assert judged(by_search, change).status is Status.FAILED


def fact(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["facts"].update({key: value})


def conflict(*named: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update(conflict=list(named))


def a_change_that_does_not_fit(data: dict[str, Any]) -> None:
    assert data["facts"]["relaxations"]
    data["facts"]["relaxations"][0]["fits"] = False


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "proved": fact("proved", False),
    "limit": fact("limit_bytes", 24_000),
    "whose limit": fact("limit_from", "device"),
    "missed": fact("missed_bytes", 1),
    "achieved": fact("achieved_bytes", 22_000),
    "least": fact("least_bytes", 10**12),
    "where": fact("where", "dot_general:99"),
    "held": fact("held", []),
    "fits": a_change_that_does_not_fit,
    "bound": lambda data: data["certificate"].update(bound=1),
    "of": lambda data: data["certificate"].update(of="plan"),
    "a statement that nobody made": conflict("memory limit of 23000 bytes per device", "pin x: [{}, {}]"),
    "nothing": conflict(),
    "damage": fact("relaxations", [{}]),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_what_a_refusal_says_beside_its_proof_is_held_against_the_problem(
    by_search: RefusalRecord, change: Callable[..., None]
) -> None:
    assert judged(by_search, change).status is Status.FAILED


def test_what_of_a_refusal_nothing_checks_is_taken_on_trust(by_search: RefusalRecord) -> None:
    (line,) = (line for line in judged(by_search).lines if line.startswith("taken on trust: "))
    assert "reason, the words" in line and "facts.relaxations" in line and "(minimal)" in line


PINNED = [autoshard.Pin("x", "[{}, {}]"), autoshard.Pin("w", "[{}, {}]"), autoshard.Pin("u", '[{"a"}, {}]')]


@pytest.fixture(scope="module")
def by_pins() -> RefusalRecord:
    """Refused because of what one pin holds; the others have no part in it."""
    return refused(memory_limit=30_000, constraints=PINNED)


def test_statements_that_are_at_odds_are_found_so(by_pins: RefusalRecord) -> None:
    assert len(by_pins.conflict) == 2 and judged(by_pins).status is Status.OK


def test_an_innocent_statement_in_the_conflict_is_caught(by_pins: RefusalRecord) -> None:
    found = judged(by_pins, lambda data: data["conflict"].append('pin u: [{"a"}, {}]'))
    assert found.status is Status.FAILED and "said to be minimal" in found.lines[0]


def test_statements_that_can_hold_together_are_no_conflict(by_pins: RefusalRecord) -> None:
    found = judged(by_pins, lambda data: data["conflict"].pop())
    assert found.status is Status.FAILED and "can hold together" in found.lines[0]


def test_another_conflict_of_statements_that_leave_no_layout_is_caught() -> None:
    pins = [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("x", '[{"b"}, {}]'), autoshard.Pin("w", "[{}, {}]")]
    record = refused(constraints=pins)
    found = judged(record, lambda data: data["conflict"].append("pin w: [{}, {}]"))
    assert found.status is Status.FAILED and "conflict is said to be" in found.lines[0]


def test_a_refusal_that_calls_what_is_found_again_unproved_is_caught() -> None:
    record = refused(constraints=[autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("x", '[{"b"}, {}]')])
    found = judged(record, fact("proved", False))
    assert found.status is Status.FAILED and "facts.proved is False" in found.lines[0]


def test_a_refusal_without_its_certificate_proves_nothing(by_search: RefusalRecord) -> None:
    assert judged(by_search, lambda data: data.pop("certificate")).status is Status.NOT_DONE


def test_the_proof_of_a_bound_is_no_proof_that_there_is_no_plan(by_search: RefusalRecord) -> None:
    specs = [ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 128), (128, 32))]
    plan = autoshard.plan(two_products, *specs, mesh={"a": 2, "b": 2}, hardware="cpu_sim", memory_limit=40_000)
    assert plan.certificate is not None

    def of_a_bound(data: dict[str, Any]) -> None:
        more_room(data)
        assert plan.certificate is not None
        data["certificate"] = {**plan.certificate.to_dict(), "of": "refusal"}

    found = judged(by_search, of_a_bound)
    assert found.status is Status.FAILED
    assert "proves a bound" in found.lines[0]


def test_a_refusal_is_saved_and_read_back(by_search: RefusalRecord, tmp_path: Path) -> None:
    by_search.save(tmp_path / "refusal.json")
    assert RefusalRecord.load(tmp_path / "refusal.json").to_dict() == by_search.to_dict()


def test_a_plan_is_no_refusal_and_a_refusal_no_plan(by_search: RefusalRecord, tmp_path: Path) -> None:
    file = tmp_path / "refusal.json"
    by_search.save(file)
    with pytest.raises(InputError, match=r"a refusal: .*autoshard verify"):
        autoshard.Plan.load(file)
    file.write_text('{"format": "autoshard-plan", "version": 1}')
    with pytest.raises(InputError, match="is not a refusal"):
        RefusalRecord.load(file)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a function and a config whose limit has no room for it."""
    (tmp_path / "two_products.py").write_text("def f(x, w, u):\n    return (x @ w) @ u\n")
    (tmp_path / "config.yaml").write_text(CONFIG.replace("LIMIT", "23000"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_solve_keeps_the_refusal_and_verify_checks_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "config.yaml", "-q"]) == 3
    assert "kept in out/refusal.json" in capsys.readouterr().err
    assert not (project / "out" / "plan.json").exists()
    assert main(["verify", "out/refusal.json"]) == 0
    told = capsys.readouterr().out
    assert "all green" in told
    assert NO_PLAN in told


@pytest.mark.parametrize(
    ("at", "key", "value", "expected"),
    [
        ("hardware", "name", "h100", "hardware.name is 'h100', the machine's profile 'cpu_sim'"),
        ("hardware", "layout", {}, "hardware.layout does not describe hardware.machine"),
        ("mesh", "atoms", ["b", "a"], "not in the order of the mesh axes"),
    ],
)
def test_a_refusal_that_describes_another_machine_or_mesh_is_caught(
    by_search: RefusalRecord, at: str, key: str, value: Any, expected: str
) -> None:
    data = json.loads(json.dumps(by_search.to_dict()))
    data[at][key] = value
    found = check_derived(data, Asked(mesh={"a": 2, "b": 2}, hardware="cpu_sim", memory_limit=23_000), refused=True)
    assert found.status is Status.FAILED and any(expected in line for line in found.lines)


def test_a_config_that_asks_for_something_else_does_not_make_the_refusal(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", "config.yaml", "-q"]) == 3
    file = project / "out" / "refusal.json"
    data = json.loads(file.read_text())
    data["config"]["settings"]["memory_limit"] = 40_000
    file.write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["verify", "--trust", "out/refusal.json"]) == 1
    assert "asked: a limit of 40000 bytes per device" in capsys.readouterr().out


def damaged(project: Path, damage: Callable[[dict[str, Any]], Any]) -> int:
    """The exit code of ``autoshard verify`` for the refusal of a config, damaged."""
    assert main(["solve", "config.yaml", "-q"]) == 3
    file = project / "out" / "refusal.json"
    data = json.loads(file.read_text())
    damage(data)
    file.write_text(json.dumps(data))
    return main(["verify", "--trust", "out/refusal.json"])


def test_a_refusal_that_lacks_its_config_is_verified_by_itself(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended in a traceback."""
    assert damaged(project, lambda data: data.pop("config")) == 0
    assert "taken from the refusal itself: not derived" in capsys.readouterr().out


def test_a_refusal_that_lacks_the_name_of_an_argument_says_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended in a traceback."""
    assert damaged(project, lambda data: data["program"]["input_names"].pop()) == 1
    assert "u is not there in the plan" in capsys.readouterr().out


def test_a_plan_of_an_earlier_solve_stays_and_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "config.yaml", "memory_limit=40000", "-q"]) == 0
    plan = (project / "out" / "plan.json").read_bytes()
    capsys.readouterr()
    assert main(["solve", "config.yaml", "-q"]) == 3
    assert "out/plan.json is of an earlier solve, and no answer to this one" in capsys.readouterr().err
    assert (project / "out" / "plan.json").read_bytes() == plan


def test_without_an_earlier_plan_none_is_spoken_of(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "config.yaml", "-q"]) == 3
    assert "earlier" not in capsys.readouterr().err


def test_a_plan_takes_the_place_of_an_earlier_refusal(project: Path) -> None:
    assert main(["solve", "config.yaml", "-q"]) == 3
    (project / "config.yaml").write_text(CONFIG.replace("LIMIT", "40000"))
    assert main(["solve", "config.yaml", "-q"]) == 0
    assert not (project / "out" / "refusal.json").exists()


def test_a_refusal_on_axes_in_larger_parts_than_planning_makes_of_them_is_caught() -> None:
    specs = [ShapeDtypeStruct(shape, "float32") for shape in ((4, 32, 64), (64, 6, 16))]
    with pytest.raises(InfeasibleError) as caught:
        autoshard.plan(
            lambda x, w: jnp.einsum("bse,ehd->bshd", x, w), *specs, mesh={"x": 8}, hardware="cpu_sim",
            sub_axes={"x": [8]}, memory_limit=6_000,
        )  # fmt: skip
    found = judged(caught.value.refusal, lambda data: data["options"].update(sub_axes=None))
    assert found.status is Status.FAILED and "axis x is planned as 8" in found.lines[0]
