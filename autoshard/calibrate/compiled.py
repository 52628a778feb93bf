"""The speed of compiled work, measured: programs are run on one device, and the numbers of `CompiledWork` fitted."""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp

from autoshard.calibrate import amounts
from autoshard.calibrate.programs import MATMULS, PROGRAMS, Built
from autoshard.costmodels.machine import Machine
from autoshard.errors import UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.simulation.compiled import first_lines

LEFT_OUT: Final = (
    "few_queries", "four_queries", "mlp_f32_short", "mlp_bf16_short", "convs_plain", "convs_strided", "mlp_grads_high",
    "mlp_grads_highest",
)  # fmt: skip
"""XLA turns whole caches around for the attention of a token on GPUs, six times the bytes that it has to read: that is
counted without a number (`costs/turned.py`). The short MLPs are about updates that are fused with matmuls; on GPUs none
are. The last four came after GPUs had been measured."""

OWN: Final = (
    "bf16", "f32", "convolution", "attention_peak", "attention", "scores", "matmul_memory", "elementwise", "reduced",
    "update", "written", "start",
)  # fmt: skip
USUAL: Final[Mapping[str, float]] = {**amounts.USUAL, "attention_peak": 0.5, "convolution": 0.5}
"""Matmuls of attention come about as near the peak as others; what they wait for is memory."""
UNFITTED: Final[Mapping[str, Any]] = {
    "matmul": {"bf16": 1.0}, "convolution": 1.0, "memory": 1.0, "elementwise": 1.0, "update": 1.0, "attention": 1.0,
}  # fmt: skip
"""Compiled work at the peak rates."""
KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "nvidia": {"sector_bytes": 32, "turns_caches": True}, "google": {"pads_channels": True}
}  # fmt: skip
"""By vendor, what needs no fit: the sectors of NVIDIA's caches (CUDA C++ Best Practices Guide, coalesced access to
global memory), and that XLA turns caches of keys and values around there (the program `few_queries`); that channels
fill whole tiles of a TPU's matrix unit (experiments/compiled_work)."""
_MOST: Final = 0.95  # the largest share that is believed
_ZERO: Final = frozenset({"m", "v", "mu", "nu", "opt"})  # what an optimizer begins with
_SPREAD: Final = 0.02  # of random inputs; matmuls of zeros or ones draw less power, and run faster than real ones
_IDS: Final = 1000  # integers are below


@dataclass(frozen=True, slots=True)
class ProgramPoint:
    """A program that was run: its seconds, those of the fitted numbers, and its amounts of work."""

    program: str
    seconds: float
    fitted_s: float
    amounts: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "program": self.program, "seconds": self.seconds, "fitted_s": self.fitted_s, "amounts": dict(self.amounts),
        }  # fmt: skip


def unfitted(vendor: str) -> dict[str, Any]:
    """`UNFITTED`, and what is known of a vendor's chips."""
    return {**UNFITTED, **KNOWN.get(vendor, {})}


def usual_programs() -> dict[str, Callable[[], Built]]:
    """Name -> program, of those that are run for a calibration."""
    return {**MATMULS, **{name: make for name, make in PROGRAMS.items() if name not in LEFT_OUT}}


def run_programs(
    programs: Mapping[str, Callable[[], Built]], *, seconds: float = 0.2, progress: Callable[[str], None] | None = None
) -> tuple[dict[str, float], list[str]]:
    """(Name -> seconds of a step on the first device, what failed and why).

    Nothing is timed while something is compiled. Steps follow each other without a pause for `seconds`, three times;
    the least mean counts. Arguments are random; those that a program overwrites are taken from its results.
    """
    say = progress or (lambda text: None)
    failed: list[str] = []
    compiled: dict[str, tuple[Any, Built]] = {}
    pool = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
    try:
        waiting = {name: pool.submit(_compiled, make) for name, make in programs.items()}
        for name, one in waiting.items():
            say(f"compiling {name}")
            try:
                compiled[name] = one.result()
            except Exception as error:  # a compiler's errors are of several types; the others are measured
                failed.append(f"{name}: {first_lines(error, 200)}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # interrupted, the rest is not compiled
    found: dict[str, float] = {}
    for name, (run, built) in compiled.items():
        say(f"running {name}")
        try:
            found[name] = _step_s(run, built, seconds)
        except Exception as error:  # not enough memory, for one
            failed.append(f"{name}: {first_lines(error, 200)}")
    return found, failed


def fit_work(
    programs: Mapping[str, Callable[[], Built]], times: Mapping[str, float], machine: Machine, memory: float
) -> tuple[dict[str, Any], list[ProgramPoint]]:
    """(The figures of ``compiled_work``, without a source; every program beside what they say of it).

    memory: the share of the memory's rate that copies reach. Raises `UnsupportedError` where too few programs ran.
    """
    if len(times) < 3:
        raise UnsupportedError(f"the speed of compiled work is fitted to programs; only {len(times)} ran")
    counted = {name: _amounts(name, programs[name], machine) for name in times}
    work = {name: amounts.parts(row, machine, memory, fused_updates=False) for name, row in counted.items()}
    measured = [amounts.Measured(machine.profile.name, times[name], work[name]) for name in times]
    most = {**dict.fromkeys(amounts.SHARES, _MOST), "matmul_memory": 1.0}
    (numbers,) = amounts.fit(measured, OWN, most=most, usual=USUAL).values()
    points = [ProgramPoint(n, times[n], amounts.seconds(work[n], numbers), counted[n]) for n in times]
    told = {name: float(f"{value:.3g}") for name, value in numbers.items()}
    figures = {
        "matmul": {"bf16": told["bf16"], "f32": told["f32"]},
        "matmul_start_s": float(f"{told['start'] * amounts.START_S:.3g}"),
        "matmul_written": {"f32": told["written"]},
        "memory": float(f"{min(memory, 1.0):.3g}"),
        **{name: told[name] for name in OWN if name not in ("bf16", "f32", "written", "start")},
        **KNOWN.get(machine.profile.vendor, {}),
    }
    return figures, points


def _compiled(make: Callable[[], Built]) -> tuple[Any, Built]:
    built = make()
    step, specs, donated = built
    for shape, dtype in {(tuple(leaf.shape), jnp.dtype(leaf.dtype)) for leaf in jax.tree.leaves(specs)}:
        _maker(shape, dtype)
    return jax.jit(step, donate_argnums=donated).lower(*specs).compile(), built


def _amounts(name: str, make: Callable[[], Built], machine: Machine) -> dict[str, float]:
    step, specs, donated = make()
    return amounts.amounts(trace(step, *specs, donate_argnums=donated, name=name).program, machine)


def _step_s(run: Any, built: Built, seconds: float) -> float:
    _, specs, donated = built
    args = tuple(_filled(spec) for spec in specs)
    for _ in range(2):  # the first call loads what was compiled
        began = time.perf_counter()
        args, out = _once(run, args, donated)
        jax.block_until_ready(out)
        took = time.perf_counter() - began
    count = max(3, min(5000, int(seconds / max(took, 1e-5))))
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(count):
            args, out = _once(run, args, donated)
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - began) / count)
    return best


def _once(run: Any, args: tuple[Any, ...], donated: tuple[int, ...]) -> tuple[tuple[Any, ...], Any]:
    """A step, and the arguments of the next one: what was given away comes from the results where types agree."""
    out = run(*args)
    if not donated:
        return args, out
    left = list(jax.tree.leaves(out))

    def again(old: jax.Array) -> jax.Array:
        for k, new in enumerate(left):
            if (new.shape, new.dtype) == (old.shape, old.dtype):
                return left.pop(k)
        return _random(jax.ShapeDtypeStruct(old.shape, old.dtype))

    return tuple(jax.tree.map(again, a) if k in donated else a for k, a in enumerate(args)), out


def _filled(tree: Any) -> Any:
    """Arrays for specs: random, and zeros for an optimizer's state and for scalars."""

    def leaf(path: Any, spec: Any) -> jax.Array:
        names = {str(getattr(p, "key", getattr(p, "name", ""))) for p in path}
        zero = spec.shape == () or bool(names & _ZERO)
        return jnp.zeros(spec.shape, spec.dtype) if zero else _random(spec)

    return jax.tree_util.tree_map_with_path(leaf, tree)


def _random(spec: Any) -> jax.Array:
    return _maker(tuple(spec.shape), jnp.dtype(spec.dtype))(jax.random.key(0))


@cache
def _maker(shape: tuple[int, ...], dtype: Any) -> Any:
    """What makes a random array on the device, compiled."""

    def make(key: jax.Array) -> jax.Array:
        if jnp.issubdtype(dtype, jnp.integer):
            return jax.random.randint(key, shape, 0, _IDS, dtype)
        return (jax.random.normal(key, shape, jnp.float32) * _SPREAD).astype(dtype)

    return jax.jit(make).lower(jax.random.key(0)).compile()
