"""Calibration on simulated devices: what is measured, what is written, and what is refused."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from autoshard.api import verbs as api
from autoshard.calibrate import compiled, measure, programs, run
from autoshard.cli import main
from autoshard.costmodels import ProfileError, load_profile, place_mesh
from autoshard.costmodels.devices import profile_of_device
from autoshard.errors import InputError, UnsupportedError
from autoshard.report.calibration import show_calibration

TINY = measure.Effort(repeats=2, longest_s=0.002, factor=4, most_bytes=2**20)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "QUICK", TINY)


OVERHEAD_S, PER_UNIT_S = 1e-4, 1e-9
WORK = {"matmul f32", "matmul bf16", "memory", "vector"}
LINKS = {(kind, axes) for kind in measure.KINDS for axes in (("x",), ("y",), ("x", "y"))}


def _quick() -> run.Calibration:
    return run.calibrate(mesh={"x": 2, "y": 4}, quick=True, name="here", date="2026-11-21")


def _clocked(
    bench: measure.Bench, first: int, make: Callable[[int], tuple[Callable[[], Any], float, float]]
) -> list[tuple[float, float]]:
    """A series whose programs run, on a clock that no other process disturbs."""
    points = []
    for size in (first, first * bench.effort.factor):
        program, amount, _ = make(size)
        jax.block_until_ready(program())
        points.append((amount, OVERHEAD_S + PER_UNIT_S * amount))
    return points


@pytest.fixture(scope="module")
def calibration() -> run.Calibration:
    """What a calibration gives on a machine without noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "QUICK", TINY)
        patch.setattr(measure.Bench, "series", _clocked)
        return _quick()


def test_work_memory_and_links_are_measured(calibration: run.Calibration) -> None:
    assert set(calibration.work) == WORK
    assert {(p.kind, tuple(part.axis for part in p.parts)) for p in calibration.points} == LINKS


def test_what_a_noisy_machine_does_not_show_is_told() -> None:
    """Timed for real, and too briefly: points may fit no line, and then a remark says so."""
    measured = _quick()
    assert WORK - set(measured.work) <= {remark.split(":")[0] for remark in measured.skipped}
    assert {(p.kind, tuple(part.axis for part in p.parts)) for p in measured.points} <= LINKS
    assert all(p.seconds > 0 for p in measured.points)


def test_measured_figures_replace_those_of_the_base_and_say_so(calibration: run.Calibration) -> None:
    base = load_profile("cpu_sim")
    for family in ("f32", "bf16"):
        rate = calibration.profile.peak_flops[family]
        assert (rate.value, rate.source) == (calibration.work[f"matmul {family}"].rate, "calibration")
    assert calibration.profile.peak_flops["f64"] == base.peak_flops["f64"]
    level = calibration.profile.levels[0]
    assert level.egress.value == calibration.levels["host"].rate
    assert "rms error" in (level.egress.note or "")
    assert "8 x cpu" in calibration.profile.sources["calibration"].title


def test_rates_are_those_of_the_clock(calibration: run.Calibration) -> None:
    assert calibration.work["memory"].rate == pytest.approx(1 / PER_UNIT_S)
    assert calibration.work["memory"].latency_s == pytest.approx(OVERHEAD_S)


def test_a_calibration_is_plain_data(calibration: run.Calibration) -> None:
    data = json.loads(json.dumps(calibration.to_dict()))
    assert data["mesh"] == {"x": 2, "y": 4} and data["devices"] == 8
    assert {"rate", "latency_s", "rms_relative_error", "worst_relative_error", "points"} == set(
        next(iter(data["work"].values()))
    )


def test_the_written_profile_is_one_to_plan_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    assert main(["calibrate", "--quick", "--output", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["profile"] == str(path) and answer["mesh"] == {"x": 8}
    profile = load_profile(path)
    assert profile.name == "mine"
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    assert api.plan(lambda a, b: a @ b, x, x, mesh={"x": 8}, hardware=path).cost.step_s > 0


def test_the_table_shows_rates_and_residuals(calibration: run.Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    show_calibration(calibration.to_dict())
    text = capsys.readouterr().out
    assert "8 x cpu, mesh x=2 x y=4" in text
    assert "rates of one device while all are busy" in text and "rms error" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mesh", "x=3"], "the mesh {'x': 3} has 3 devices, JAX sees 8"),
        (["--mesh", "x"], "--mesh: cannot read 'x'"),
        (["--base", "cpu_simm"], "no hardware profile named 'cpu_simm'"),
    ],
)
def test_wrong_arguments_exit_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--quick", "--output", str(tmp_path / "p.yaml"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "p.yaml").exists()


def test_a_profile_is_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--output", str(tmp_path / "p.json")]) == 2
    assert "a profile is a YAML file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v5 lite", "tpu_v5e"), ("TPU v5p", "tpu_v5p"), ("TPU v6 lite", "tpu_v6e"), ("TPU v4", "tpu_v4"),
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-40GB", "a100_40"), ("NVIDIA GB200", "gb200_nvl72"),
        ("AMD Instinct MI300X", "mi300x"), ("cpu", "cpu_sim"), ("NVIDIA A100-PCIE-40GB", "a100_40"),
        ("NVIDIA A100 80GB PCIe", "a100_80"),
    ],
)  # fmt: skip
def test_devices_are_known_by_the_name_jax_has_for_them(kind: str, name: str) -> None:
    assert profile_of_device(kind) == name
    load_profile(name)


@pytest.mark.parametrize("kind", ["NVIDIA RTX A1000", "NVIDIA GH200 480GB", "TPU v4i"])
def test_a_device_whose_name_has_that_of_another_inside_is_not_taken_for_it(kind: str) -> None:
    with pytest.raises(ProfileError, match="no profile is known for devices of kind"):
        profile_of_device(kind)


def test_an_unknown_device_needs_a_base() -> None:
    with pytest.raises(UnsupportedError, match="name the machine to start from with --base"):
        run._base_of("Graphcore IPU")


def test_the_mesh_must_hold_all_devices() -> None:
    with pytest.raises(InputError, match="has 4 devices, JAX sees 8"):
        run.calibrate(mesh={"x": 4}, quick=True, date="2026-11-21")


def test_amounts_are_those_of_the_cost_model() -> None:
    """V of a gather over 2 of 8 devices is what it returns; a permute's is the shard."""
    bench = measure.Bench.over(jax.devices(), {"x": 2, "y": 4}, TINY)
    for kind in measure.KINDS:
        sizes = [p.bytes for p in measure.collectives(bench, kind, ("x",))]
        assert sizes == sorted(sizes)
        assert all(size % (4 * 2) == 0 for size in sizes)


TINY_PROGRAMS = {
    "matmul": partial(programs.matmuls, 16, 16, 16, jnp.float32, 1),
    "attention": partial(programs.attention, 1, 32, 2, 8),
    "block": partial(programs.block, 16, 16, 32, 32),
}


@pytest.fixture(scope="module")
def with_programs() -> run.Calibration:
    """A calibration that runs small programs; its series are on a clock without noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "QUICK", TINY)
        patch.setattr(measure.Bench, "series", _clocked)
        return run.calibrate(quick=True, name="here", date="2026-11-26", programs=TINY_PROGRAMS)


def test_programs_that_were_run_give_the_speed_of_compiled_work(with_programs: run.Calibration) -> None:
    work = with_programs.profile.compiled_work
    assert work is not None and work.source == "calibration"
    assert [point.program for point in with_programs.programs] == list(TINY_PROGRAMS)
    assert all(point.seconds > 0 and point.fitted_s > 0 for point in with_programs.programs)


def test_the_matmuls_of_a_program_are_counted(with_programs: run.Calibration) -> None:
    counts = {point.program: point.amounts["matmuls"] for point in with_programs.programs}
    assert counts == {"matmul": 2, "attention": 6, "block": 10}


def test_shares_are_of_peak_rates_so_these_stay_those_of_the_base(with_programs: run.Calibration) -> None:
    base = load_profile("cpu_sim")
    peak = with_programs.profile.peak_flops["f32"].value
    assert peak == max(base.peak_flops["f32"].value, with_programs.work["matmul f32"].rate)


def test_the_chip_of_a_calibrated_profile_stays_known(with_programs: run.Calibration) -> None:
    assert with_programs.profile.name == "here"
    assert with_programs.profile.chip_name == "cpu_sim"


def test_without_programs_a_profile_has_no_compiled_work(calibration: run.Calibration) -> None:
    assert calibration.profile.compiled_work is None
    assert calibration.programs == ()


def test_a_program_that_does_not_run_is_told_and_the_others_count() -> None:
    def broken() -> programs.Built:
        raise ValueError("no such program")

    times, failed = compiled.run_programs({"broken": broken, "matmul": TINY_PROGRAMS["matmul"]}, seconds=0.001)
    assert set(times) == {"matmul"}
    assert failed == ["broken: no such program"]


def test_a_fit_needs_several_programs() -> None:
    machine = place_mesh(load_profile("h100"), {"x": 1})
    with pytest.raises(UnsupportedError, match="only 1 ran"):
        compiled.fit_work(TINY_PROGRAMS, {"matmul": 1e-3}, machine, 0.9)


def test_with_too_few_programs_the_rest_of_a_calibration_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.Bench, "series", _clocked)
    one = {"matmul": TINY_PROGRAMS["matmul"]}
    found = run.calibrate(mesh={"x": 8}, quick=True, name="here", date="2026-11-26", programs=one)
    assert found.profile.compiled_work is None and set(found.work) == WORK
    assert any("only 1 ran" in remark for remark in found.skipped)


def test_a_step_gets_its_own_results_where_it_overwrites_its_arguments() -> None:
    """An optimizer's state: what is given away comes back, so a step can follow the other."""
    step, specs, donated = programs.model("mlp", inputs=8, hidden=16, outputs=8, layers=1, batch=8)
    times, failed = compiled.run_programs({"mlp": lambda: (step, specs, donated)}, seconds=0.001)
    assert set(times) == {"mlp"} and not failed


def test_the_printed_calibration_has_every_program(
    with_programs: run.Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    show_calibration(with_programs.to_dict())
    out = capsys.readouterr().out
    assert all(name in out for name in TINY_PROGRAMS)
    assert "the speed of compiled work: 3 programs" in " ".join(out.split())
