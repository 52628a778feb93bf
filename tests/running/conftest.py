"""Plans to run, made once, and the helper module of this folder."""

from pathlib import Path

import pytest
from process_runs import FUNCTION, MLP, SUMS, solved


@pytest.fixture(scope="session")
def mlp_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved(tmp_path_factory.mktemp("mlp"), "mlp", MLP)


@pytest.fixture(scope="session")
def function_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("function")
    (directory / "running_sums.py").write_text(SUMS)
    return solved(directory, "sums", FUNCTION)
