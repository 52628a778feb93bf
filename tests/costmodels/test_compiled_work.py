"""Profiles with the speed of compiled work: read by name, and the numbers that schedules and measured programs give."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from autoshard.calibrate import amounts
from autoshard.calibrate.compiled import OWN, USUAL
from autoshard.costmodels import Machine, ProfileError, list_profiles, load_profile, place_mesh
from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.load import list_calibrated

FILE = Path(__file__).resolve().parents[2] / "experiments" / "compiled_work" / "run.py"
CHIPS: Sequence[str] = ("tpu_v5e", "tpu_v5p", "tpu_v6e")
RESULTS = FILE.parents[1] / "gpu" / "results"
MEASURED = {"h100": RESULTS / "nvidia_h100_80gb_hbm3", "h200": RESULTS / "nvidia_h200"}


@pytest.fixture(scope="module")
def experiment() -> ModuleType:
    """The experiment's `run`, which has the fit."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("compiled_work_run", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def fitted(experiment: ModuleType) -> dict[str, dict[str, float]]:
    return experiment.fit(experiment.load())


@pytest.fixture(scope="module")
def calibrated() -> Machine:
    return place_mesh(load_profile("tpu_v5e@compiler"), {"x": 4})


def test_a_calibrated_machine_is_asked_for_by_name_and_is_not_the_default() -> None:
    named = [name for name in list_calibrated() if name.endswith("@compiler")]
    assert named == [f"{chip}@compiler" for chip in (*MEASURED, *CHIPS)]
    assert not set(list_profiles()) & set(list_calibrated())
    for chip in CHIPS:
        plain, profile = load_profile(chip), load_profile(f"{chip.removeprefix('tpu_').upper()}@compiler")
        assert profile.name == f"{chip}_compiler" and profile.chip_name == plain.chip_name == chip
        assert plain.compiled_work is None and profile.compiled_work is not None
        assert (profile.memory, profile.levels) == (plain.memory, plain.levels)


def test_a_calibration_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ProfileError, match=r"no hardware profile named 'b200@compiler'.*tpu_v5e@compiler"):
        load_profile("b200@compiler")


@pytest.mark.parametrize("chip", MEASURED)
def test_the_profile_of_a_gpu_has_the_numbers_that_calibrate_wrote_on_one(chip: str) -> None:
    written = load_profile(MEASURED[chip].with_suffix(".yaml")).compiled_work
    packaged = load_profile(f"{chip}@compiler").compiled_work
    assert written is not None and packaged is not None
    names = set(type(written).model_fields) - {"source", "note"}
    assert packaged.model_dump(include=names) == written.model_dump(include=names)


@pytest.mark.parametrize("chip", MEASURED)
def test_the_numbers_of_a_gpu_follow_from_the_programs_that_ran_on_it(chip: str) -> None:
    machine = place_mesh(load_profile(chip), {"x": 1})
    work = load_profile(f"{chip}@compiler").compiled_work
    assert work is not None
    points = json.loads(MEASURED[chip].with_suffix(".json").read_text())["calibration"]["programs"]
    measured = [
        amounts.Measured(chip, p["seconds"], amounts.parts(p["amounts"], machine, work.memory, fused_updates=False))
        for p in points
    ]
    most = {**dict.fromkeys(amounts.SHARES, 0.95), "matmul_memory": 1.0}
    (numbers,) = amounts.fit(measured, OWN, most=most, usual=USUAL).values()
    told = {**work.matmul, "start": work.matmul_start_s / amounts.START_S, "written": work.matmul_written["f32"]}
    told |= {name: getattr(work, name) for name in OWN if name not in told}
    assert numbers == pytest.approx(told, rel=0.01)


def test_every_matmul_takes_its_start_beside_its_work() -> None:
    machine = place_mesh(load_profile("h100@compiler"), {"x": 8})
    work = machine.profile.compiled_work
    assert work is not None and work.matmul_start_s > 0
    for kind in (WorkKind.MATMUL, WorkKind.ATTENTION, WorkKind.CONVOLUTION):
        assert machine.work_s(kind, 0.0, 0.0, "bfloat16") == work.matmul_start_s
    assert machine.work_s(WorkKind.ELEMENTWISE, 0.0, 0.0, "bfloat16", "vector") == 0


def test_a_float32_matmul_writes_its_result_when_its_flop_are_done() -> None:
    machine = place_mesh(load_profile("h100@compiler"), {"x": 8})
    work = machine.profile.compiled_work
    assert work is not None
    flop, result = 1e12, 1e9
    writing = result * work.matmul_written["f32"] / work.memory / machine.profile.memory.bandwidth.value
    for kind, dtype, more in (
        (WorkKind.MATMUL, "float32", writing),
        (WorkKind.UPDATED, "float32", writing),
        (WorkKind.ATTENTION, "float32", 0.0),
        (WorkKind.MATMUL, "bfloat16", 0.0),
    ):
        without = machine.work_s(kind, flop, 0.0, dtype)
        assert machine.work_s(kind, flop, 0.0, dtype, result=result) == pytest.approx(without + more)


def test_what_is_written_is_part_of_the_bytes_of_a_matmul_that_memory_bounds() -> None:
    machine = place_mesh(load_profile("h100@compiler"), {"x": 8})
    without = machine.work_s(WorkKind.MATMUL, 1e6, 2e9, "float32")
    assert machine.work_s(WorkKind.MATMUL, 1e6, 2e9, "float32", result=1e9) == without


def test_profiles_have_the_numbers_that_the_fit_gives(
    experiment: ModuleType, fitted: dict[str, dict[str, float]]
) -> None:
    assert set(fitted) == set(CHIPS)
    for chip, numbers in fitted.items():
        work = load_profile(f"{chip}@compiler").compiled_work
        assert work is not None and work.memory == experiment.MEMORY
        names = (
            "convolution", "attention_peak", "attention", "matmul_memory", "sliced_memory", "cached_memory",
            "elementwise", "reduced", "update",
        )  # fmt: skip
        told = {**work.matmul, **{f"updated_{family}": share for family, share in work.updated.items()}}
        told |= {f"spilled_{family}": share for family, share in work.spilled.items()}
        told |= {name: getattr(work, name) for name in names}
        assert told == pytest.approx(numbers, abs=0.0051, rel=0.011)


def test_whole_programs_are_foretold_closer_than_by_the_peak_rates(
    experiment: ModuleType, fitted: dict[str, dict[str, float]]
) -> None:
    rows = experiment.load()
    peak = dict.fromkeys(CHIPS, dict.fromkeys((*experiment.OWN, *experiment.COMMON), 1.0))

    def off(numbers: dict[str, dict[str, float]]) -> float:
        errors = [np.log(experiment.seconds(row, numbers[row["chip"]]) / row["seconds"]) for row in rows]
        return float(np.sqrt(np.mean(np.square(errors))))

    assert off(fitted) < 0.2 < 0.5 < off(peak)


def test_the_price_of_work_without_a_calibration_is_the_roofline() -> None:
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 4})
    for kind in WorkKind:
        for flop, moved in ((1e12, 1e6), (1e6, 1e9)):
            assert machine.work_s(kind, flop, moved, "float32") == machine.compute_s(flop, moved, "float32")


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", "bf16"), ("float32", "f32")])
def test_a_matmul_runs_at_its_share_of_the_peak(calibrated: Machine, dtype: str, number: str) -> None:
    work = calibrated.profile.compiled_work
    assert work is not None
    at_peak = 1e12 / calibrated.flops_per_s(dtype)
    assert calibrated.work_s(WorkKind.MATMUL, 1e12, 0.0, dtype) == pytest.approx(at_peak / work.matmul[number])


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", "bf16"), ("float32", "f32")])
def test_a_matmul_with_an_update_fused_has_a_share_of_its_own(calibrated: Machine, dtype: str, number: str) -> None:
    work = calibrated.profile.compiled_work
    assert work is not None and work.updated[number] != work.matmul[number]
    at_peak = 1e12 / calibrated.flops_per_s(dtype)
    assert calibrated.work_s(WorkKind.UPDATED, 1e12, 0.0, dtype) == pytest.approx(at_peak / work.updated[number])


def test_flop_and_bytes_of_attention_take_turns(calibrated: Machine) -> None:
    work = calibrated.profile.compiled_work
    assert work is not None and work.attention_peak is not None
    of_flop = 1e12 / calibrated.flops_per_s("bfloat16") / work.attention_peak
    of_bytes = 1e9 / calibrated.profile.memory.bandwidth.value * work.attention / work.memory
    assert calibrated.work_s(WorkKind.ATTENTION, 1e12, 1e9, "bfloat16") == pytest.approx(of_flop + of_bytes)


def test_what_is_done_to_scores_beside_matmuls_costs_nothing_of_its_own(calibrated: Machine) -> None:
    assert calibrated.work_s(WorkKind.SCORES, 1e12, 1e9, "float32", "vector") == 0


def test_a_profile_of_earlier_numbers_prices_reductions_and_scores_as_elementwise_work(tmp_path: Path) -> None:
    file = tmp_path / "earlier.yaml"
    file.write_text(
        "base: tpu_v5e@compiler\nname: earlier\n"
        "compiled_work: {reduced: null, scores: null, attention_peak: null, updated: {}}\n"
    )
    machine = place_mesh(load_profile(file), {"x": 4})
    work = machine.profile.compiled_work
    assert work is not None
    for kind in (WorkKind.REDUCED, WorkKind.SCORES):
        assert work.traffic(kind) == work.elementwise
    assert work.share_of_peak(WorkKind.ATTENTION, "bf16") == work.matmul["bf16"]


@pytest.mark.parametrize("kind", [WorkKind.ELEMENTWISE, WorkKind.REDUCED, WorkKind.UPDATE, WorkKind.ATTENTION])
def test_bytes_cross_memory_as_often_as_the_calibration_says(calibrated: Machine, kind: WorkKind) -> None:
    work = calibrated.profile.compiled_work
    assert work is not None
    once = 1e9 / calibrated.profile.memory.bandwidth.value
    crossing = getattr(work, kind.value)
    assert calibrated.work_s(kind, 0.0, 1e9, "bfloat16") == pytest.approx(once * crossing / work.memory)


def test_a_matmul_of_few_rows_reads_memory_at_a_share_of_its_own(tmp_path: Path) -> None:
    rate = load_profile("tpu_v5p").memory.bandwidth.value
    machine = place_mesh(load_profile("tpu_v5p@compiler"), {"x": 4})
    work = machine.profile.compiled_work
    assert work is not None and work.matmul_memory is not None and work.matmul_memory < work.memory
    assert machine.work_s(WorkKind.MATMUL, 0.0, 1e9, "bfloat16") == pytest.approx(1e9 / rate / work.matmul_memory)
    file = tmp_path / "plain.yaml"
    file.write_text("base: tpu_v5p@compiler\nname: plain\ncompiled_work: {matmul_memory: null}\n")
    without = place_mesh(load_profile(file), {"x": 4})
    assert without.work_s(WorkKind.MATMUL, 0.0, 1e9, "bfloat16") == pytest.approx(1e9 / rate / work.memory)


def test_shares_above_one_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "fast.yaml"
    file.write_text("base: tpu_v5e@compiler\nname: fast\ncompiled_work: {convolution: 1.5}\n")
    with pytest.raises(ProfileError, match=r"compiled_work.convolution: .*less than or equal to 1"):
        load_profile(file)
