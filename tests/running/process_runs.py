"""Plans and command lines that the tests of running share."""

import os
from pathlib import Path

import autoshard

MLP = """\
model: {name: mlp, batch: 32, inputs: 16, hidden: 32, outputs: 8}
mesh: {data: 2, model: 4}
hardware: cpu_sim
"""
FUNCTION = """\
function: "running_sums:step"
args: {w: "float32[16, 32]", x: "float32[8, 16]", n: "int32[8]"}
mesh: {data: 2, model: 4}
hardware: cpu_sim
pins: {"w": '[{}, {"model"}]', "x": '[{"data"}, {}]'}
"""
SUMS = """\
import jax.numpy as jnp


def step(w, x, n):
    return {"y": jnp.tanh(x @ w) * n[:, None], "total": (x @ w).sum()}
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent)}


def solved(directory: Path, name: str, config: str) -> Path:
    """A plan file of a config, made in this process."""
    from autoshard.api.session import solve_session
    from autoshard.config import load_config

    (directory / f"{name}.yaml").write_text(config)
    solve_session(load_config(directory / f"{name}.yaml"), output=directory / name, quiet=True)
    return directory / name / "plan.json"
