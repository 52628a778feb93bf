"""What tests of closed forms share."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

TRAINING_RUNS = Path(__file__).resolve().parents[2] / "experiments" / "training_runs"


@pytest.fixture(scope="module")
def training_runs() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the experiment on published training runs; these import one another by name."""
    before = list(sys.path)
    sys.path.insert(0, str(TRAINING_RUNS))
    try:
        yield importlib.import_module
    finally:
        sys.path[:] = before
