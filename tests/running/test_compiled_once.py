"""The train steps that a config asks for: the step is compiled for the first of them, and for no other."""

from pathlib import Path

import jax
import pytest
from process_runs import MLP, solved

from autoshard.api.plans import Plan
from autoshard.api.session import train
from autoshard.config import load_config
from autoshard.config.problem import build_problem


def test_a_train_step_is_compiled_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan.load(solved(tmp_path, "mlp", MLP))
    problem = build_problem(load_config(tmp_path / "mlp.yaml"))
    plan = plan.attach(problem.function, *problem.specs, argnames=problem.argnames)
    jax.clear_caches()
    with jax.log_compiles():
        losses = train(plan, problem, 3, 0, lambda text: None)
    compiled = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Finished XLA compilation")]
    assert len(losses) == 3
    assert sum(f"jit({plan.program.name})" in text for text in compiled) == 1
