"""Timing on the devices JAX sees: the same work on all of them at once, minima over interleaved repetitions.

Every program is a `shard_map` over all devices, so that figures are those of one device while all are busy (simulated
devices share the cores of their host). The time of a program that does nothing is subtracted. Other processes may use
the machine: so minima are taken, and sizes take turns, so that a disturbance hits all of them alike.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from autoshard.costmodels.calibration import CollectiveMeasurement
from autoshard.costmodels.machine import AxisPart
from autoshard.interop.jax import auto_mesh

VECTOR_STEPS = 64
"""Multiply-adds per element of the vector program: so many that it does not wait for memory."""
FLOP_PER_VECTOR_STEP = 2
IN_A_ROW_S = 0.01
"""So long do runs follow each other on accelerators before the clock is read."""
_LARGER = 16
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


@dataclass(frozen=True)
class Effort:
    """How long to measure: a series of sizes grows by `factor` until a run takes `longest_s` or holds `most_bytes`.

    repeats: how often each run is timed.
    """

    repeats: int
    longest_s: float
    factor: int
    most_bytes: float


THOROUGH = Effort(repeats=20, longest_s=0.1, factor=2, most_bytes=2**30)
ON_ACCELERATORS = Effort(repeats=10, longest_s=0.1, factor=2, most_bytes=2**33)
QUICK_ON_ACCELERATORS = Effort(repeats=5, longest_s=0.02, factor=4, most_bytes=2**31)
QUICK = Effort(repeats=5, longest_s=0.02, factor=4, most_bytes=2**26)


def effort_for(platform: str, quick: bool) -> Effort:
    """How long to measure devices of a platform."""
    if platform == "cpu":
        return QUICK if quick else THOROUGH
    return QUICK_ON_ACCELERATORS if quick else ON_ACCELERATORS


@dataclass(frozen=True, slots=True)
class WorkPoint:
    """One size of a series: FLOP or bytes of one device, and seconds net of the empty program."""

    amount: float
    seconds: float


@dataclass(frozen=True)
class Bench:
    """The devices as a mesh, and the seconds of the empty program."""

    mesh: Mesh
    effort: Effort
    empty_s: float

    @staticmethod
    def over(devices: Sequence[Any], axes: dict[str, int], effort: Effort) -> "Bench":
        """A bench on these devices, in a mesh with these sizes by axis; it times the empty program."""
        mesh = auto_mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes))
        bench = Bench(mesh, effort, 0.0)
        empty = bench.program(lambda x: x + 1, P(mesh.axis_names))
        x = bench.array((mesh.size,), "float32", P(mesh.axis_names))
        return Bench(mesh, effort, min(bench.times([partial(empty, x)])[0], effort.longest_s))

    def program(self, body: Callable[..., Any], *specs: Any, out: Any = None) -> Callable[..., Any]:
        """`body` as a jitted `shard_map` over the mesh; specs of its arguments and result (by default the first
        argument's).
        """
        mapped = jax.shard_map(body, mesh=self.mesh, in_specs=specs, out_specs=out or specs[0], check_vma=False)
        return jax.jit(mapped)

    def array(self, shape: tuple[int, ...], dtype: str, spec: Any) -> jax.Array:
        """An array, cut by `spec`, made on the devices: of ones on simulated devices, random on accelerators, where a
        matmul of ones draws less power than a real one and runs faster.
        """
        cut = NamedSharding(self.mesh, spec)
        if self.simulated:
            return jax.jit(lambda: jnp.ones(shape, dtype), out_shardings=cut)()
        return jax.jit(lambda key: jax.random.normal(key, shape, dtype), out_shardings=cut)(jax.random.key(0))

    def times(self, runs: Sequence[Callable[[], Any]]) -> list[float]:
        """Least seconds of each run over all repetitions; the runs take turns.

        On accelerators a repetition is as many runs in a row as take `IN_A_ROW_S`, so that what the host does before
        each of them is hidden behind the one before, as in training. Simulated devices run one at a time.
        """
        counts = [self._in_a_row(run) for run in runs]
        best = [float("inf")] * len(runs)
        for _ in range(self.effort.repeats):
            for index, (run, count) in enumerate(zip(runs, counts, strict=True)):
                began = time.perf_counter()
                for _ in range(count):
                    out = run()
                jax.block_until_ready(out)
                best[index] = min(best[index], (time.perf_counter() - began) / count)
        return best

    def _in_a_row(self, run: Callable[[], Any]) -> int:
        jax.block_until_ready(run())
        if self.simulated:
            return 1
        began = time.perf_counter()
        jax.block_until_ready(run())
        return max(1, min(1000, int(IN_A_ROW_S / max(time.perf_counter() - began, 1e-6))))

    def series(
        self, first: int, make: Callable[[int], tuple[Callable[[], Any], float, float]]
    ) -> list[tuple[float, float]]:
        """(amount, net seconds) of growing sizes. `make(size)` returns a run, its amount, and its bytes on a device."""
        runs, amounts = [], []
        size = first
        while True:
            run, amount, held = make(size)
            if held > self.effort.most_bytes and runs:
                break
            jax.block_until_ready(run())
            began = time.perf_counter()
            jax.block_until_ready(run())
            took = time.perf_counter() - began
            runs.append(run)
            amounts.append(amount)
            if (took > self.effort.longest_s and len(runs) >= 3) or took > 10 * self.effort.longest_s:
                break
            size *= self.effort.factor
        seconds = self.times(runs)
        if not self.simulated:  # runs follow each other: those that outlast what the host does for them hide it
            return [(a, s) for a, s in zip(amounts, seconds, strict=True) if s > 2 * self.empty_s]
        net = [s - self.empty_s for s in seconds]
        return [(a, s) for a, s in zip(amounts, net, strict=True) if s > 0.1 * self.empty_s]

    @property
    def simulated(self) -> bool:
        """Whether the devices are those of a CPU, which run one program at a time and share its cores."""
        return self.mesh.devices.flat[0].platform == "cpu"

    def first(self, size: int) -> int:
        """The first size of a series; on accelerators, which small ones do not fill, a larger one."""
        return size if self.simulated else size * _LARGER


def matmuls(bench: Bench, dtype: str) -> list[WorkPoint]:
    """Square matmuls on every device, bfloat16 and float16 added up in float32 as training does."""
    axes = bench.mesh.axis_names
    element = jnp.dtype(dtype).itemsize
    accumulate = jnp.float32 if element < 4 else None
    body = partial(jnp.einsum, "nij,njk->nik", preferred_element_type=accumulate)
    multiply = bench.program(lambda a, b: body(a, b), P(axes), P(axes))

    def make(n: int) -> tuple[Callable[[], Any], float, float]:
        x = bench.array((bench.mesh.size, n, n), dtype, P(axes))
        return partial(multiply, x, x), 2.0 * n**3, 3.0 * element * n * n

    # sizes of a matmul grow by 2: their work grows by 8
    paced = Bench(
        bench.mesh, Effort(bench.effort.repeats, bench.effort.longest_s, 2, bench.effort.most_bytes), bench.empty_s
    )
    return [WorkPoint(*point) for point in paced.series(bench.first(128), make)]


def copies(bench: Bench) -> list[WorkPoint]:
    """Reading and writing memory: ``y = x + 1``; amounts are bytes read and written."""
    axes = bench.mesh.axis_names
    add = bench.program(lambda x: x + 1, P(axes))

    def make(n: int) -> tuple[Callable[[], Any], float, float]:
        x = bench.array((bench.mesh.size * n,), "float32", P(axes))
        return partial(add, x), 8.0 * n, 8.0 * n

    return [WorkPoint(*point) for point in bench.series(bench.first(2**16), make)]


def vector_work(bench: Bench) -> list[WorkPoint]:
    """Pointwise work that stays in registers; amounts are FLOP."""
    axes = bench.mesh.axis_names

    def polynomial(x: jax.Array) -> jax.Array:
        y = x
        for _ in range(VECTOR_STEPS):
            y = y * x + 0.5
        return y

    run = bench.program(polynomial, P(axes))

    def make(n: int) -> tuple[Callable[[], Any], float, float]:
        x = bench.array((bench.mesh.size * n,), "float32", P(axes))
        return partial(run, x), float(FLOP_PER_VECTOR_STEP * VECTOR_STEPS * n), 8.0 * n

    return [WorkPoint(*point) for point in bench.series(bench.first(2**13), make)]


def collectives(bench: Bench, kind: str, axes: tuple[str, ...]) -> list[CollectiveMeasurement]:
    """One collective over `axes` in float32; `bytes` is V, the array as seen in one group (the shard of a permute)."""
    sizes = dict(zip(bench.mesh.axis_names, bench.mesh.devices.shape, strict=True))
    group = int(np.prod([sizes[a] for a in axes]))
    every = bench.mesh.axis_names
    parts = tuple(AxisPart(axis, 1, sizes[axis]) for axis in axes)
    whole = kind in ("reduce_scatter", "all_reduce")
    body = _BODIES[kind](axes, group)
    run = bench.program(body, P(every))

    def make(n: int) -> tuple[Callable[[], Any], float, float]:
        # n elements are V / 4; for a reduction a device holds all of them, otherwise its shard
        local = n if whole or kind == "permute" else n // group
        x = bench.array((bench.mesh.size * local,), "float32", P(every))
        return partial(run, x), 4.0 * n, 8.0 * n

    first = 2**12 * group
    return [CollectiveMeasurement(kind, parts, v, s) for v, s in bench.series(first, make)]


def _gather(axes: tuple[str, ...], group: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.all_gather(x, axes, tiled=True)


def _scatter(axes: tuple[str, ...], group: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.psum_scatter(x, axes, tiled=True)


def _reduce(axes: tuple[str, ...], group: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.psum(x, axes)


def _exchange(axes: tuple[str, ...], group: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.all_to_all(x, axes, 0, 0, tiled=True)


def _permute(axes: tuple[str, ...], group: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.lax.ppermute(x, axes, [(i, (i + 1) % group) for i in range(group)])


_BODIES: dict[str, Callable[[tuple[str, ...], int], Callable[[jax.Array], jax.Array]]] = {
    "all_gather": _gather,
    "reduce_scatter": _scatter,
    "all_reduce": _reduce,
    "all_to_all": _exchange,
    "permute": _permute,
}
