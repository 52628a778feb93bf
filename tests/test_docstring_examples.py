"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import autoshard

MODULES = sorted(
    module.name
    for name in ("autoshard", "autoshard.costmodels")
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, prefix=f"{name}.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", [autoshard.__name__, *MODULES])
def test_docstring_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
