"""Fits recover the rates that made the measurements, and the profile they make can be written and read."""

import pytest

from autoshard.costmodels import CollectiveKind, ProfileError, load_profile, place_mesh
from autoshard.costmodels.calibration import (
    CollectiveMeasurement,
    calibrated_profile,
    fit_levels,
    fit_line,
    profile_yaml,
)


def measured(machine, noise: float = 0.0):
    """Times of every kind on every axis of a machine, as if it had been measured."""
    sign = 1
    for kind in CollectiveKind:
        for axis, _ in machine.axes:
            for bytes_ in (1e3, 1e6, 1e8):
                sign = -sign
                parts = machine.whole(axis)
                seconds = machine.collective_s(kind, bytes_, parts) * (1 + sign * noise)
                yield CollectiveMeasurement(kind, parts, bytes_, seconds)


@pytest.mark.parametrize("hardware", ["cpu_sim", "tpu_v5e", "h100", "mi300x"])
def test_a_fit_recovers_latency_and_rate_of_each_level(hardware) -> None:
    real = place_mesh(load_profile(hardware), {"data": 4, "model": 8})
    guess = calibrated_profile(
        real.profile, name="guess", date="2026", title="a bad guess",
        levels={level.name: fit_line([1, 1], [0, 1e9], [1e-3, 2]) for level in real.profile.levels},
    )  # fmt: skip
    fits = fit_levels(place_mesh(guess, {"data": 4, "model": 8}), list(measured(real)))
    assert fits
    for name, fit in fits.items():
        level = real.profile.level(name)
        assert fit.latency_s == pytest.approx(level.latency.value)
        assert fit.rate == pytest.approx(level.egress.value if level.kind == "switch" else level.link.value)
        assert fit.worst_relative_error < 1e-6


def test_noise_shows_in_the_residuals() -> None:
    machine = place_mesh(load_profile("cpu_sim"), {"data": 2, "model": 4})
    (fit,) = fit_levels(machine, list(measured(machine, noise=0.1))).values()
    assert fit.rms_relative_error == pytest.approx(0.1, abs=0.02)
    assert fit.rate == pytest.approx(load_profile("cpu_sim").level("host").egress.value, rel=0.1)  # type: ignore


def test_a_calibrated_profile_is_written_and_read_back(tmp_path) -> None:
    base = load_profile("cpu_sim")
    profile = calibrated_profile(
        base, name="my_cpu", date="2026-11-21", title="measured here",
        levels={"host": fit_line([1, 1], [0, 1e6], [1e-4, 1e-3])},
        matmul_flops_per_s={"f32": 2.7e10}, vector_flops_per_s=1e9, memory_bytes_per_s=3e9,
    )  # fmt: skip
    path = tmp_path / "my_cpu.yaml"
    path.write_text(profile_yaml(profile))
    assert load_profile(path) == profile
    assert profile.peak_flops["f32"].source == "calibration"
    assert profile.peak_flops["bf16"] == base.peak_flops["bf16"]
    assert profile.memory.bandwidth.value == 3e9


def test_measurements_that_say_nothing_are_refused() -> None:
    with pytest.raises(ProfileError, match="at least two positive times"):
        fit_line([1], [1], [1])
    with pytest.raises(ProfileError, match="do not grow with the amount"):
        fit_line([1, 1, 1], [1e6, 2e6, 3e6], [3.0, 2.0, 1.0])


def test_a_kind_that_reaches_less_of_the_links_has_a_factor() -> None:
    machine = place_mesh(load_profile("cpu_sim"), {"data": 2, "model": 4})
    slow = {"all_to_all": 3.0, "all_reduce": 0.7}
    times = [
        CollectiveMeasurement(m.kind, m.parts, m.bytes, machine.collective(m.kind, m.bytes, m.parts).latency_s
                              + machine.collective(m.kind, m.bytes, m.parts).bandwidth_s * slow.get(m.kind, 1.0))
        for m in measured(machine)
    ]  # fmt: skip
    (fit,) = fit_levels(machine, times).values()
    assert fit.kinds == {"all_reduce": pytest.approx(0.7, rel=0.02), "all_to_all": pytest.approx(3.0, rel=0.02)}
    assert fit.worst_relative_error < 0.02
    profile = calibrated_profile(load_profile("cpu_sim"), name="mine", date="2026", title="t", levels={"host": fit})
    again = place_mesh(profile, {"data": 2, "model": 4})
    for one in times:
        assert again.collective_s(one.kind, one.bytes, one.parts) == pytest.approx(one.seconds, rel=0.02)


def test_a_calibrated_profile_is_not_called_uncalibrated() -> None:
    base = load_profile("cpu_sim")
    fit = next(iter(fit_levels(machine := place_mesh(base, {"data": 8}), measured(machine)).values()))
    once = calibrated_profile(base, name="mine", date="2026", title="t", levels={"host": fit})
    twice = calibrated_profile(once, name="mine", date="2026", title="t", levels={"host": fit})
    assert once.title == twice.title == base.title.removesuffix("uncalibrated") + "calibrated"
