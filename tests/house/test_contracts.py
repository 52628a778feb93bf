"""The import contracts of pyproject.toml: they hold, and an import that breaks one is found."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import grimp
import pytest
from importlinter import configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

configuration.configure()

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
KINDS = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "protected": ProtectedContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}
CONTRACTS = {contract["name"]: contract for contract in SETTINGS["contracts"]}

PLANTED = [
    # (who imports, what, words of the contract that must break)
    ("autoshard.sharding.mesh", "autoshard.api.verbs", "Rooms import"),
    ("autoshard.search.strategy", "autoshard.questions.again", "Rooms import"),
    ("autoshard.questions.compare", "autoshard.api.plans", "Rooms import"),
    ("autoshard.planning.decide", "autoshard.config.load", "Rooms import"),
    ("autoshard.units", "autoshard.files", ""),  # allowed: a floor beneath
    ("autoshard.costmodels.machine", "autoshard.errors", "Cost models"),
    ("autoshard.verify.plan.flow", "autoshard.costs.price", "Verification shares"),
    ("autoshard.verify.plan.flow", "autoshard.program.schedule", "The plan checker"),
    ("autoshard.verify.certificate.check", "numba", "Certificates are judged without"),
    ("autoshard.questions.compare", "jax", "JAX is"),
    ("autoshard.config.load", "jax", "JAX is"),
    ("autoshard.questions.explain", "jaxlib", "MLIR bindings"),
    ("autoshard.questions.explain", "ortools", "Every engine"),
    ("autoshard.frontends.draft", "autoshard.onnx.files", "Rooms import"),
    ("autoshard.config.load", "onnx", "The library onnx"),
    ("autoshard.planning.decide", "pytoulbar2", "toulbar2 is"),
    ("autoshard.costs.price", "numba", "numba is"),
    ("autoshard.solver.driver", "autoshard.program.program", "The solver sees"),
    ("autoshard.solver.dual.flat", "autoshard.solver.reductions.slots", "Parts of the solver"),
    ("autoshard.solver.solution", "autoshard.solver.judge", "Parts of the solver"),
    ("autoshard.solver.dual.arrays", "autoshard.solver.dual.passes", "No circles"),
    ("autoshard.solver.work", "autoshard.solver.local.search", "No circles"),
]


@pytest.fixture(scope="module")
def graph() -> Any:
    sys.path.insert(0, str(REPOSITORY))
    return grimp.build_graph(
        "autoshard", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def broken(graph: Any) -> list[str]:
    """The contracts that do not hold."""
    session = {"root_packages": ["autoshard"], "include_external_packages": "True"}
    out = []
    for name, options in CONTRACTS.items():
        words = {
            key: str(value) if isinstance(value, bool) else value
            for key, value in options.items()
            if key not in ("name", "type")
        }
        contract = KINDS[options["type"]](name=name, session_options=session, contract_options=words)
        if not contract.check(graph, verbose=False).kept:
            out.append(name)
    return out


def test_they_hold(graph: Any) -> None:
    assert broken(graph) == []


@pytest.mark.parametrize(("importer", "imported", "words"), PLANTED)
def test_an_import_that_should_not_be_is_found(graph: Any, importer: str, imported: str, words: str) -> None:
    assert importer in graph.modules
    assert imported in graph.modules
    found = graph.find_modules_directly_imported_by(importer)
    assert imported not in found, "planted nothing"
    graph.add_import(importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}")
    try:
        names = broken(graph)
    finally:
        graph.remove_import(importer=importer, imported=imported)
    assert any(words in name for name in names) if words else names == []


def test_a_new_room_must_choose_its_floor(graph: Any) -> None:
    graph.add_module("autoshard.attic")
    try:
        assert any("Rooms import" in name for name in broken(graph))
    finally:
        graph.remove_module("autoshard.attic")


def test_a_new_part_of_the_solver_must_choose_its_floor(graph: Any) -> None:
    graph.add_module("autoshard.solver.attic")
    try:
        assert any("Parts of the solver" in name for name in broken(graph))
    finally:
        graph.remove_module("autoshard.solver.attic")


def test_every_contract_has_a_planted_violation() -> None:
    missed = [name for name in CONTRACTS if not any(words and words in name for *_, words in PLANTED)]
    assert missed == []


def test_the_rooms_of_the_architecture_page_are_those_of_the_contracts() -> None:
    sys.path.insert(0, str(REPOSITORY / "docs"))
    try:
        import make_rooms
    finally:
        sys.path.pop(0)
    assert (
        make_rooms.BEGIN + make_rooms.rooms() + make_rooms.END in (REPOSITORY / "docs" / "architecture.md").read_text()
    )


class Stop(NamedTuple):
    """One row of the walk of a pin in docs/architecture.md."""

    file: str
    turn: int
    callers: tuple[str, ...]

    @property
    def module(self) -> str:
        return module_of(self.file)


def module_of(file: str) -> str:
    return "autoshard." + file.removesuffix(".py").replace("/", ".")


@pytest.fixture(scope="module")
def walk() -> list[Stop]:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    page = text.split("### A pin's walk")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\S+)` \| (\d+) \| (.*?) ?\| .+ \|$", page, re.MULTILINE)
    assert len(rows) == page.count("\n| `") > 10
    return [Stop(file, int(turn), tuple(re.findall(r"`(\S+)`", callers))) for file, turn, callers in rows]


def test_the_walk_of_a_pin_names_each_file_once_and_all_are_there(walk: list[Stop]) -> None:
    files = [stop.file for stop in walk]
    assert len(set(files)) == len(files)
    assert [file for file in files if not (REPOSITORY / "autoshard" / file).exists()] == []


def test_the_walk_of_a_pin_goes_from_the_top_of_the_house_to_its_cellar(walk: list[Stop]) -> None:
    rooms = next(contract["layers"] for contract in SETTINGS["contracts"] if contract["type"] == "layers")
    floors = [rooms.index(stop.file.split("/")[0]) for stop in walk]
    assert floors == sorted(floors)


def test_the_walk_of_a_pin_calls_only_what_is_further_down(walk: list[Stop]) -> None:
    above: list[str] = []
    for stop in walk:
        assert set(stop.callers) <= set(above), stop.file
        assert bool(stop.callers) is bool(above), "only the first is called by nobody of the list"
        above.append(stop.file)


def test_the_callers_in_the_walk_of_a_pin_import_what_they_call(walk: list[Stop], graph: Any) -> None:
    for stop in walk:
        for caller in stop.callers:
            imported = graph.find_modules_directly_imported_by(module_of(caller))
            room = ".".join(stop.module.split(".")[:2])  # which hands on what is in its files
            assert imported & {stop.module, room}, (caller, stop.file)


def test_the_turns_of_the_walk_of_a_pin_count_up_from_callers_to_what_they_call(walk: list[Stop]) -> None:
    turns = {stop.file: stop.turn for stop in walk}
    assert sorted(turns.values()) == list(range(1, len(walk) + 1))
    assert all(min(turns[caller] for caller in stop.callers) < stop.turn for stop in walk if stop.callers)
