"""Predicted peaks beside those of the TPU compiler (experiments/memory): stored truths, and one compiled anew."""

import csv
import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from autoshard.costmodels import load_profile, place_mesh
from autoshard.costs.memory import MemoryProfile, verdict

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "memory"


def _experiment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("memory_experiment", EXPERIMENT / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


run = _experiment()
TRUTHS = {row["name"]: row for row in csv.DictReader((EXPERIMENT / "truths.csv").read_text().splitlines())}
COMPILED = sorted(name for name, row in TRUTHS.items() if row["peak"] != "refused")
MISSES = {"tf_unroll_mixed_fsdp_v5e"}
"""Named in docs/memory.md: off by more than 15%."""
GIB = 2**30


@pytest.mark.parametrize("name", COMPILED)
def test_the_predicted_peak_is_within_15_percent_of_the_compilers(name: str) -> None:
    error = run.predict(name) / int(TRUTHS[name]["peak"]) - 1
    if name in MISSES:
        assert 0.15 < abs(error) <= 0.30  # named; remove it from MISSES where it gets better
    else:
        assert abs(error) <= 0.15


def test_there_are_enough_programs_above_one_gibibyte_and_few_misses() -> None:
    assert len(COMPILED) >= 20
    assert all(int(TRUTHS[name]["peak"]) > GIB for name in COMPILED)
    assert len(MISSES) <= 2 and len(COMPILED) - len(MISSES) >= 18


def test_the_headroom_covers_what_the_compiler_reserves() -> None:
    from autoshard.costs.memory import HEADROOM

    for name in COMPILED:
        assert run.predict(name) * (1 + HEADROOM) >= int(TRUTHS[name]["allocation"]), name


def profile_of(name: str) -> MemoryProfile:
    return MemoryProfile(run.predict(name), 0, "", ())


def test_a_program_that_the_compiler_refuses_is_never_said_to_fit() -> None:
    refused = {case.name: case for case in run.CASES if TRUTHS.get(case.name, {}).get("peak") == "refused"}
    assert refused
    for name, case in refused.items():
        machine = place_mesh(load_profile(case.hardware), case.mesh)
        said = verdict(profile_of(name), machine.hbm_bytes, machine.usable_bytes)
        assert said["fits"] is False


def test_programs_that_the_compiler_takes_with_room_are_said_to_fit() -> None:
    for name in (name for name in COMPILED if not name.startswith("border_")):
        (case,) = (case for case in run.CASES if case.name == name)
        machine = place_mesh(load_profile(case.hardware), case.mesh)
        assert verdict(profile_of(name), machine.hbm_bytes, machine.usable_bytes)["fits"] is True


def test_a_prediction_between_the_peak_and_its_headroom_does_not_fit() -> None:
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 4})
    usable = int(15.75 * GIB)  # "exceeds available HBM (15.75G)"
    assert machine.usable_bytes == usable
    for peak, fits in ((usable, False), (int(usable / 1.14), False), (int(usable / 1.16), True)):
        assert verdict(MemoryProfile(peak, 0, "", ()), machine.hbm_bytes, usable)["fits"] is fits


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1500)
def test_the_compiler_still_says_what_is_stored() -> None:
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed (pip install 'jax[tpu]' at this version of jax; no TPU is needed)")
    name = "mlp_f32_data_v5e"
    stored = {package: TRUTHS[name][package] for package in ("jax", "libtpu")}
    installed = {package: metadata.version(package) for package in stored}
    if installed != stored:  # another compiler has truths of its own
        pytest.skip(f"the stored peak is of {stored}, installed is {installed}")
    (case,) = (case for case in run.CASES if case.name == name)
    try:
        row = run.compile_case(case)
    except (SystemExit, subprocess.SubprocessError) as error:
        pytest.fail(str(error))
    assert abs(int(row["peak"]) / int(TRUTHS[name]["peak"]) - 1) < 0.05
    assert abs(run.predict(name) / int(row["peak"]) - 1) <= 0.15
