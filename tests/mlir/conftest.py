"""The generators and the comparisons of experiments/propagation_diff, for seeded checks here."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "propagation_diff"


def load(file: str, name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{file}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def random_module() -> ModuleType:
    for name in ("module_parts", "plain_ops"):
        load(name, name)
    return load("random_module", "random_module")


@pytest.fixture(scope="session")
def comparison(random_module: ModuleType) -> ModuleType:
    load("cases", "cases")
    load("stated_regions", "stated_regions")
    load("random_wide", "random_wide")
    return load("run", "propagation_diff_run")


@pytest.fixture(scope="session")
def check_comparison() -> ModuleType:
    load("cases", "cases")
    load("random_check", "random_check")
    return load("check", "propagation_diff_check")


@pytest.fixture(scope="session")
def origins(comparison: ModuleType) -> ModuleType:
    return load("origins", "propagation_diff_origins")
