"""Inputs on which Shardy's own passes fail: ours goes on, or says what is wrong (see propagation_diff/faults)."""

import subprocess
import sys
from pathlib import Path

import pytest

from autoshard.errors import InputError
from autoshard.propagation.mlir.module import propagate_mlir

FAULTS = Path(__file__).parents[2] / "experiments" / "propagation_diff" / "faults"


def read(name: str) -> str:
    return (FAULTS / f"{name}.mlir").read_text()


def test_a_dead_op_with_a_later_priority_is_left_out() -> None:
    out = propagate_mlir(read("dead_op_with_priority"), strategy="user-priority")
    assert "negate" not in out
    assert "tanh" in out


def test_a_value_in_two_groups_is_named_or_united_by_the_pipeline() -> None:
    with pytest.raises(InputError, match="in sharding group 1 and in another one"):
        propagate_mlir(read("value_in_two_groups"), strategy="basic")
    assert "sharding_group" not in propagate_mlir(read("value_in_two_groups"))


def test_a_group_over_a_manual_computation_loses_the_manual_axis_as_in_shardy() -> None:
    out = propagate_mlir(read("group_on_manual_computation"), strategy="user-priority")
    assert 'stablehlo.negate %arg1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y", ?}]>]>}' in out


@pytest.mark.parametrize("command", [["propagate"], ["explain", "%0"]])
def test_a_module_that_ends_the_passes_is_an_error_of_the_command(command: list[str]) -> None:
    name, *more = command
    done = subprocess.run(
        [sys.executable, "-m", "autoshard", name, str(FAULTS / "known_call_with_one_result.mlir"), *more],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "ended the process (signal" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_pass_says_when_it_ends_the_process_is_the_error() -> None:
    file = FAULTS / "unreduced_over_two_meshes.mlir"
    command = [sys.executable, "-m", "autoshard", "propagate", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {file}: a pass of MLIR ended the process")
    assert "source and user shardings have different meshes for unreduced axes" in line


def test_a_manual_axis_behind_a_free_one_stays_outside_of_the_body() -> None:
    out = propagate_mlir(read("manual_axis_behind_a_free_one"), strategy="basic")
    assert 'in_shardings=[<@mesh, [{"f", ?}]>]' in out
    assert 'stablehlo.negate %arg1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"f", ?}]>]>}' in out
