"""The examples of docs/statements.md run as they stand."""

import re
from pathlib import Path

from autoshard.config import load_config
from autoshard.verify import check_plan

TEXT = (Path(__file__).parents[2] / "docs" / "statements.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


def test_the_python_example_plans(capsys) -> None:  # type: ignore[no-untyped-def]
    names: dict = {}
    for code in blocks("python"):
        exec(compile(code, "docs/statements.md", "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 3
    checked = check_plan(names["found"].to_dict())
    assert checked.ok, checked.findings
    assert [s["kind"] for s in names["found"].statements] == ["manual_computation"]
    checked = check_plan(names["offloaded"].to_dict())
    assert checked.ok, checked.findings
    assert names["offloaded"].memory.host_bytes <= 64_000


def test_the_config_plans_and_every_statement_is_in_the_plan(tmp_path: Path) -> None:
    from autoshard.api.session import plan_config
    from autoshard.config.problem import build_problem

    text, manual = blocks("yaml")
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
    (tmp_path / "with_a_region.py").write_text(
        "import jax, jax.numpy as jnp\n\n@jax.jit\ndef ffn(x, w1, w2):\n    return jnp.tanh(x @ w1) @ w2\n\n"
        "def model(x, w1, w2, w3):\n    return jnp.sin(ffn(x, w1, w2)) @ w3\n"
    )
    file.write_text(
        "function: with_a_region:model\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\n"
        "args: {x: 'float32[64,32]', w1: 'float32[32,64]', w2: 'float32[64,32]', w3: 'float32[32,16]'}\n" + manual
    )
    config = load_config(file)
    found = plan_config(config, build_problem(config))
    (statement,) = found.statements
    assert statement["kind"] == "manual_computation" and statement["source"] == f"{file}:6:5"
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
