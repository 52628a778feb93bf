"""A plan that tests of commands read and damage."""

from pathlib import Path

import pytest

from autoshard.cli import main


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "c.yaml").write_text(
        "model: {name: mlp, layers: 1, inputs: 8, hidden: 16, outputs: 8, batch: 8}\nmesh: {x: 2}\nhardware: cpu_sim\n"
    )
    assert main(["solve", str(folder / "c.yaml"), "-o", str(folder / "out"), "-q"]) == 0
    return folder / "out" / "plan.json"
