"""One calibration: measure work and collectives, fit rates and latencies, and put them into a profile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from autoshard.costmodels import Machine, Profile, ProfileError, load_profile, place_mesh
from autoshard.costmodels.calibration import CollectiveMeasurement, LineFit, calibrated_profile, fit_levels, fit_line
from autoshard.costmodels.devices import profile_of_device
from autoshard.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from autoshard.calibrate.compiled import ProgramPoint
    from autoshard.calibrate.programs import Built

    Program = Callable[[], Built]

DTYPES = {"f32": "float32", "bf16": "bfloat16"}
"""Families of a profile's rates, and the dtype that each is measured with."""


@dataclass(frozen=True)
class Calibration:
    """A profile with measured figures, and how well the fits hold.

    work: by name (``matmul f32``, ``memory``, ``vector``); levels: by link level; points: every timed collective.
    skipped: measurements that failed or could not be used, and why. programs: what was run for the speed of compiled
    work, beside what the fitted numbers say.
    """

    profile: Profile
    devices: int
    device_kind: str
    mesh: Mapping[str, int]
    work: Mapping[str, LineFit]
    levels: Mapping[str, LineFit]
    points: tuple[CollectiveMeasurement, ...]
    skipped: tuple[str, ...]
    programs: tuple["ProgramPoint", ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fits and timings as plain data, for ``--json``."""

        def fit(line: LineFit) -> dict[str, Any]:
            data = {name: getattr(line, name) for name in line.__slots__ if name != "kinds"}
            return {**data, "kinds": dict(line.kinds)} if line.kinds else data

        return {
            "devices": self.devices,
            "device_kind": self.device_kind,
            "mesh": dict(self.mesh),
            "work": {name: fit(line) for name, line in self.work.items()},
            "levels": {name: fit(line) for name, line in self.levels.items()},
            "collectives": [
                {
                    "kind": p.kind,
                    "axes": [part.axis for part in p.parts],
                    "bytes": p.bytes,
                    "seconds": p.seconds,
                }
                for p in self.points
            ],
            "programs": [point.to_dict() for point in self.programs],
            "skipped": list(self.skipped),
        }


def calibrate(
    *,
    base: str | Profile | None = None,
    mesh: Mapping[str, int] | None = None,
    quick: bool = False,
    name: str | None = None,
    date: str,
    progress: Callable[[str], None] | None = None,
    programs: bool | Mapping[str, "Program"] | None = None,
) -> Calibration:
    """Measure all devices that JAX sees.

    base: the profile whose structure is kept; by default chosen by device. mesh: axes over the devices; by default one
    axis over all. Collectives are timed over every set of axes. programs: whether whole programs are run on the first
    device and the profile gets the speed of compiled work (`CompiledWork`) from them, or which; by default they are
    on accelerators unless `quick`. Such a profile keeps the peak rates of its base. Raises `InputError` for a mesh of
    another size, `UnsupportedError` for a device without a known profile.
    """
    import jax

    from autoshard.calibrate import compiled, measure

    say = progress or (lambda text: None)
    devices = jax.devices()
    kind = devices[0].device_kind
    profile = base if isinstance(base, Profile) else load_profile(base or _base_of(kind))
    axes = dict(mesh) if mesh else {"x": len(devices)}
    if prod(axes.values()) != len(devices):
        raise InputError(f"the mesh {axes} has {prod(axes.values())} devices, JAX sees {len(devices)} ({kind})")
    machine = _placed(profile, axes)
    bench = measure.Bench.over(devices, axes, measure.effort_for(devices[0].platform, quick))
    work: dict[str, LineFit] = {}
    skipped: list[str] = []

    def fitted(what: str, points: list[measure.WorkPoint]) -> None:
        try:
            work[what] = fit_line([1.0] * len(points), [p.amount for p in points], [p.seconds for p in points])
        except ProfileError as error:
            skipped.append(f"{what}: {error}")

    for family, dtype in DTYPES.items():
        say(f"matmul {dtype}")
        fitted(f"matmul {family}", measure.matmuls(bench, dtype))
    say("memory")
    fitted("memory", measure.copies(bench))
    say("pointwise work")
    fitted("vector", measure.vector_work(bench))
    points: list[CollectiveMeasurement] = []
    cut = [axis for axis, size in axes.items() if size > 1]
    for count in range(1, len(cut) + 1):
        for group in combinations(cut, count):
            for collective in measure.KINDS:
                say(f"{collective} over {', '.join(group)}")
                points += measure.collectives(bench, collective, group)
    levels: dict[str, LineFit] = {}
    if not cut:
        skipped.append("links: there is one device; their figures are those of the base profile")
    else:
        try:
            levels = fit_levels(machine, points)
        except ProfileError as error:
            skipped.append(f"links: {error}")
    memory_rate = work["memory"].rate if "memory" in work else profile.memory.bandwidth.value
    for level, fit in list(levels.items()):
        if fit.rate > memory_rate:  # small arrays stay in caches, but large ones cannot be faster than memory
            skipped.append(
                f"link {level}: {fit.rate:.3g} bytes/s is more than the memory's rate, which is used instead"
            )
            slower = memory_rate / fit.rate  # factors of the other kinds change so that their times stay
            kinds = {kind: factor * slower for kind, factor in fit.kinds.items()}
            levels[level] = replace(fit, rate=memory_rate, kinds=kinds)
    families = {family: work[f"matmul {family}"].rate for family in DTYPES if f"matmul {family}" in work}

    def with_work(figures: Mapping[str, Any] | None) -> Profile:
        return calibrated_profile(
            profile,
            name=name or f"{profile.name}_calibrated",
            date=date,
            title=f"measured by autoshard calibrate on {len(devices)} x {kind}, mesh {axes}",
            levels=levels,
            matmul_flops_per_s=families,
            vector_flops_per_s=work["vector"].rate if "vector" in work else None,
            memory_bytes_per_s=work["memory"].rate if "memory" in work else None,
            compiled_work=figures,
        )

    run_which = (not quick and devices[0].platform != "cpu") if programs is None else programs
    chosen = compiled.usual_programs() if run_which is True else dict(run_which or {})
    result, told = with_work(None), []
    if chosen:
        times, failed = compiled.run_programs(chosen, progress=say)
        skipped += failed
        say("fitting the speed of compiled work")
        # its peak rates are those of the base, or what was measured above them
        at_peak = with_work(compiled.unfitted(profile.vendor))
        share = min(1.0, memory_rate / at_peak.memory.bandwidth.value)
        try:
            figures, told = compiled.fit_work(chosen, times, _placed(at_peak, axes), share)
            result = with_work(figures)
        except UnsupportedError as error:  # what else was measured is kept
            skipped.append(str(error))
    return Calibration(result, len(devices), kind, axes, work, levels, tuple(points), tuple(skipped), tuple(told))


def _base_of(kind: str) -> str:
    try:
        return profile_of_device(kind)
    except ProfileError as error:
        raise UnsupportedError(f"{error} to start from with --base") from None


def _placed(profile: Profile, axes: Mapping[str, int]) -> Machine:
    try:
        return place_mesh(profile, axes)
    except ProfileError as error:
        raise InputError(str(error)) from error
