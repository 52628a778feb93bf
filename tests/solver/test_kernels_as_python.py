"""Compiled functions say what the same functions say as Python runs them, on small networks, to the last digit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import kernel_results
import pytest


@pytest.fixture(scope="module")
def both() -> tuple[dict, dict]:
    script = Path(kernel_results.__file__)
    plain = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(json.dumps(kernel_results.results())), json.loads(plain.stdout)


def test_both_say_the_same(both):
    compiled, plain = both
    assert [name for name in plain if plain[name] != compiled.get(name)] == []
    assert compiled.keys() == plain.keys()


def test_the_networks_are_no_empty_ones(both):
    compiled, _ = both
    assert sum(len(found) > 10 for name, found in compiled.items() if found is not None) >= 12
