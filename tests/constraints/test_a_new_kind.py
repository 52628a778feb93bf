"""docs/extending.md, "A statement": a kind of its own, added without a change to any other module."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoshard.api.plans import Plan
from autoshard.api.session import plan_config
from autoshard.config import load_config
from autoshard.config.load import ConfigError
from autoshard.config.problem import build_problem
from autoshard.constraints import registry
from autoshard.errors import InfeasibleError, InputError
from autoshard.verify import check_plan

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
SECTION = TEXT[TEXT.index("## A statement") :].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.S)


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page's module, its kind registered for one test."""
    page = ModuleType("most_axes")
    monkeypatch.setitem(sys.modules, "most_axes", page)
    whole, entry, _ = blocks("python")
    exec(compile(whole, "docs/extending.md", "exec"), vars(page))
    exec(compile(entry, "docs/extending.md", "exec"), vars(page))
    try:
        yield page
    finally:
        registry.unregister(page.KIND)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's config, beside the function it names."""
    (tmp_path / "my_step.py").write_text("import jax.numpy as jnp\ndef step(x, w): return jnp.tanh(x @ w)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_step", raising=False)
    file = tmp_path / "c.yaml"
    file.write_text(blocks("yaml")[0])
    return file


def planned(file: Path) -> Plan:
    config = load_config(file)
    return plan_config(config, build_problem(config))


def test_the_python_example_plans(kind: Any) -> None:
    exec(compile(blocks("python")[2], "docs/extending.md", "exec"), vars(kind))


def test_a_config_holds_it_with_its_place(kind: Any, config: Path) -> None:
    assert load_config(config).statements[1] == kind.MostAxes("x", 1, f"{config}:7:5")


def test_it_restricts_the_plan_of_a_config(kind: Any, config: Path) -> None:
    held = planned(config)
    assert held["x"] == '[{"data"}, {}]'
    config.write_text(config.read_text().replace("limit: 1", "limit: 2").replace('"data", ?', '"data", "model"'))
    assert planned(config)["x"] == '[{"data", "model"}, {}]'


def test_at_odds_with_a_pin_both_are_told(kind: Any, config: Path) -> None:
    config.write_text(config.read_text().replace('"data", ?', '"data", "model"'))
    with pytest.raises(InfeasibleError) as caught:
        planned(config)
    assert caught.value.conflict == (
        f'{config}:5:8: pin x: [{{"data", "model"}}, {{?}}]',
        f"{config}:7:5: at most 1 axes for x",
    )


def test_plan_json_holds_it_and_gives_it_back(kind: Any, config: Path, tmp_path: Path) -> None:
    held = planned(config)
    held.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.stated == held.stated
    assert again.to_dict() == held.to_dict()
    (stated,) = again.stated_as(kind.MatchedMostAxes)
    assert (stated.limit, [again.program.values[v].name for v in stated.values]) == (1, ["x"])


def test_questions_asked_of_the_plan_heed_and_tell_it(kind: Any, config: Path) -> None:
    held = planned(config)
    assert f"{config}:7:5: at most 1 axes for x" in str(held.explain("x"))
    with pytest.raises(InfeasibleError, match="at most 1 axes for x"):
        held.instead("x", '[{"data", "model"}, {}]')


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{patern: x}", r"c\.yaml:7:6: most_axes\[0\]\.patern: unknown key 'patern'; did you mean 'pattern'\?"),
        ("{pattern: ''}", r"c\.yaml:7:5: most_axes\[0\]: expected a pattern"),
        ("{pattern: x, limit: -1}", r"c\.yaml:7:5: most_axes\[0\]: most_axes x: the limit is 0 or more, found -1"),
    ],
)
def test_wrong_entries_are_told_with_their_places(kind: Any, config: Path, entry: str, message: str) -> None:
    config.write_text(config.read_text().replace("{pattern: x, limit: 1}", entry))
    with pytest.raises(ConfigError, match=message):
        load_config(config)


def test_the_checker_says_that_it_does_not_know_the_kind(kind: Any, config: Path) -> None:
    findings = [str(f) for f in check_plan(planned(config).to_dict()).findings]
    assert any("there is no statement of kind 'most_axes'" in text for text in findings)


def test_unregistered_it_is_an_unknown_key_and_an_unknown_kind(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"most_axes: unknown key 'most_axes'"):
        load_config(config)
    with pytest.raises(InputError, match=r"there is no kind of statement 'most_axes'; .*Choices: pin, same_sharding"):
        registry.read({"kind": "most_axes"})


def test_no_two_kinds_have_one_name(kind: Any) -> None:
    with pytest.raises(InputError, match=r"'most_axes'.* already"):
        registry.register(kind.KIND)
