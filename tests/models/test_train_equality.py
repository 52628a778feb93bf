"""Twenty train steps sharded over eight devices have the losses of one device (experiments/train_equality)."""

import importlib.util
from functools import cache

import pytest


@cache
def experiment(repository):
    path = repository / "experiments" / "train_equality" / "run.py"
    spec = importlib.util.spec_from_file_location("train_equality_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(repository, case):
    row = experiment(repository).compared(case)
    assert row["collectives"] > 0
    assert row["largest_relative_difference"] <= row["tolerance"], row


def test_losses_of_twenty_sharded_steps_are_those_of_one_device(repository):
    check(repository, "mlp, fsdp+tensor")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["dense, fsdp", "dense, fsdp+tensor", "moe, expert", "moe, fsdp+tensor", "conv, data", "conv, fsdp+tensor",
     "dense bf16, fsdp+tensor", "conv bf16, data"],
)  # fmt: skip
def test_losses_of_twenty_sharded_steps_of_larger_models_are_those_of_one_device(repository, case):
    check(repository, case)
