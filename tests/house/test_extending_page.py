"""docs/extending.md: every recipe is followed as it stands, and the files that it names exist.

"A statement" has its own test, in tests/constraints/test_a_new_kind.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from autoshard.rules.custom import unregister_rule

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text()
SECTIONS = {part.split("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
RECIPES = sorted(set(SECTIONS) - {"A statement"})


def followed(section: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the Python of a section leaves, run in a folder with its files."""
    monkeypatch.chdir(folder)
    for text in re.findall(r"```yaml\n(.*?)```", SECTIONS[section], re.S):
        (folder / "my_pod.yaml").write_text(text)
    names: dict[str, Any] = {"__name__": "recipe"}
    if section == "A collective":
        exec("from autoshard.costmodels import load_profile, place_mesh", names)
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", SECTIONS[section], re.S)):
        exec(compile(text, f"docs/extending.md, {section}, {number}", "exec"), names)
    return names


@pytest.mark.parametrize("section", RECIPES)
def test_a_recipe_runs_as_it_stands(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        assert followed(section, tmp_path, monkeypatch)
    finally:
        unregister_rule("gated_product")


def test_the_op_of_the_page_is_cut_along_what_its_rule_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    try:
        plan = followed("An op", tmp_path, monkeypatch)["plan"]
        assert capsys.readouterr().out.strip() == "['reduce_scatter']"
        rng = np.random.default_rng(0)
        x, w = rng.normal(size=(64, 256)).astype("f"), rng.normal(size=(256, 32)).astype("f")
        np.testing.assert_allclose(plan.jit()(x, w), np.tanh(x) @ w, rtol=1e-4, atol=1e-4)
    finally:
        unregister_rule("gated_product")


def test_the_machine_of_the_page_has_the_time_of_its_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    gather = followed("A machine", tmp_path, monkeypatch)["gather"]
    assert gather.seconds == pytest.approx(8e9 * 7 / 8 / 1e11, rel=1e-3)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:autoshard|tests|[a-z_]+)/[a-z_/]*(?:\.py)?)`", TEXT))))
def test_a_file_that_a_recipe_names_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "autoshard" / path).exists()
