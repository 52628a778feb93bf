"""Results that are no arrays: a run tells those that are."""

import sys
from pathlib import Path

import pytest

from autoshard.cli import main
from autoshard.running.local import run_setup
from autoshard.running.program import Job
from autoshard.running.result import RunSetup

CODE = """
import jax.numpy as jnp

def step(x):
    return {"y": x * 2, "act": jnp.tanh, "rate": 0.1}
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_tells_the_arrays_among_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"static_results_{processes}.py").write_text(CODE)
    config = f"""
function: static_results_{processes}:step
args: {{x: "float32[8,8]"}}
mesh: {{d: 4}}
hardware: cpu_sim
output: {tmp_path}/out
"""
    (tmp_path / "config.yaml").write_text(config)
    assert main(["solve", str(tmp_path / "config.yaml"), "-q"]) == 0
    found = run_setup(RunSetup(Job(str(tmp_path / "out" / "plan.json")), processes, 4 // processes))
    assert sorted(one["name"] for one in found.outputs) == ["out/rate", "out/y"]
