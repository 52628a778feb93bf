"""The examples of docs/statements.md run as they stand."""

import re
from pathlib import Path

from autoshard.config import load_config

TEXT = (Path(__file__).parents[2] / "docs" / "statements.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


def test_the_python_example_plans(capsys) -> None:  # type: ignore[no-untyped-def]
    (code,) = blocks("python")
    exec(compile(code, "docs/statements.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_config_plans_and_every_statement_is_in_the_plan(tmp_path: Path) -> None:
    from autoshard.config.problem import build_problem
    from autoshard.session import plan_config
    from autoshard.verify import check_plan

    (text,) = blocks("yaml")
    file = tmp_path / "c.yaml"
    file.write_text(text)
    config = load_config(file)
    found = plan_config(config, build_problem(config))
    kinds = {s["kind"] for s in found.statements}
    assert kinds == {
        *("pin", "same_sharding", "replicated", "axis_only", "max_reshards", "no_collective", "barrier"),
        "memory_limit",
    }
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
