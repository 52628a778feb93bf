"""Experiments are commands: they say how they are called, and refuse in a sentence."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = sorted((Path(__file__).resolve().parents[2] / "experiments").glob("*/run.py"))


def parses_arguments(text: str) -> bool:
    called = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return any(isinstance(f, ast.Attribute) and f.attr == "ArgumentParser" for f in called)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.parent.name)
def test_an_experiment_parses_its_arguments_so_that_help_is_given_and_wrong_ones_are_told(path):
    assert parses_arguments(path.read_text())


NO_PLUGIN = """
import runpy, sys
from autoshard.simulation import gpu
gpu.plugin = lambda: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs an experiment as if JAX's CUDA plugin were not installed."""


def refused(repository, *arguments, python=()):
    """What a command says on standard error, which ends with a code that is not 0. python: arguments of Python."""
    command = [sys.executable, *python, str(repository / "experiments" / arguments[0]), *arguments[1:]]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(repository)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == (2 if "usage: " in done.stderr else 1)
    return done.stderr


def test_memory_on_gpus_says_in_one_line_which_package_is_missing(repository):
    told = refused(repository, "memory/run.py", "gpu", python=("-c", NO_PLUGIN))
    assert told.splitlines() == [
        "the GPU compiler is not installed: pip install 'autoshard[gpu]' brings it, no GPU is needed"
    ]


def test_a_case_that_there_is_not_is_told_with_those_that_there_are(repository):
    assert "no case 'mpl'; there are: mlp, data;" in refused(repository, "train_equality/run.py", "mpl")


def test_soundness_refuses_a_folder_without_contest_files_since_a_kind_of_networks_would_be_left_out(
    repository, tmp_path
):
    told = refused(repository, "soundness/run.py", "--contest", str(tmp_path), "--output", str(tmp_path / "rows"))
    assert f"--contest {tmp_path}: there is no iopddl-*.json.gz in it" in told


LISTS = {
    "axes/run.py --meshes 2xtwo": "no mesh '2xtwo'; write sizes",
    "axes/run.py --layers 0": "'0' is no whole number",
    "communication/run.py --models mlp,mpl": "no model 'mpl'; there are mlp,",
    "compile_time/run.py --meshes 8,3x3": "no mesh '3x3'; there are 8, 2x4",
    "compiled_work/apart.py tpu_v9": "no chip 'tpu_v9'; there are tpu_v5e",
    "compiled_work/run.py --chips tpu_v9": "no chip 'tpu_v9'; there are tpu_v5e",
    "compiler_judge/run.py --forms implicit": "no form 'implicit'; there are constraints, explicit",
    "explicit_mode/run.py --programs mpl": "no program 'mpl'; there are",
    "fuzz/sweep.py --kinds plot": "no kind 'plot'; there are plan, config",
    "iopddl/run.py --seeds 0:x x.json": "'0:x' is no range of seeds",
    "layers/run.py --meshes 4": "no mesh '4'; there are 2, 3",
    "main_job/run.py --hardware tpu_v9": "no hardware profile named 'tpu_v9'; there are",
    "memory_limits/run.py --programs mpl": "no program 'mpl'; there are",
    "strategies/run.py --stated all": "no set of statements 'all'; there are none, batch, inputs",
    "third_party/run.py --meshes 3x3": "no mesh '3x3'; there are 8, 2x4",
}


@pytest.mark.parametrize("called", LISTS)
def test_a_name_that_a_list_of_an_experiment_lacks_is_told_with_those_that_it_has(repository, called):
    told = refused(repository, *called.split())
    assert LISTS[called] in told and "Traceback" not in told
