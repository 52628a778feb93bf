"""How fast single kernels ran on an H100, beside what they do: the figures that `simulate` times GPU programs with.

    python experiments/gpu/kernels.py

`results/kernels.json.xz` has 18 programs as XLA compiled them on the card (jax 0.11.2, tuned there; without metadata),
and from JAX's profiler how often and how long (ns) each kernel ran. A kernel has the name of its fusion; calls of
cuBLAS and cuDNN have names of their own and count in the last table only, which has whole programs.
"""

import json
import lzma
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from autoshard.costmodels import load_profile, place_mesh  # noqa: E402
from autoshard.simulation.scheduled import Computation, Instruction, Module, read_module  # noqa: E402
from autoshard.simulation.timeline import timeline  # noqa: E402
from autoshard.simulation.work import GPU_KERNELS, Work, Worker, read_again  # noqa: E402

LARGE = 3e7
"""Bytes from which on a kernel's rate says little of its start."""


@dataclass(frozen=True)
class Kernel:
    """A fusion that ran. seconds: the median of its runs; kind: of fusion."""

    program: str
    name: str
    kind: str
    seconds: float
    work: Work


@cache
def programs() -> dict[str, Any]:
    """Name -> its seconds, kernels and compiled text."""
    return json.loads(lzma.decompress((HERE / "results" / "kernels.json.xz").read_bytes()))


@cache
def kernels() -> tuple[Kernel, ...]:
    """All fusions of all programs that ran under a name of their own."""
    machine = place_mesh(load_profile("h100"), {"x": 1})
    out: list[Kernel] = []
    for program, told in programs().items():
        module = read_module(told["text"])
        worker, named = Worker(module, machine), _fusions(module)
        for name, (_, median_ns, _) in told["kernels"].items():
            if name in named:
                instruction, within = named[name]
                kind = _kind(instruction, module)
                out.append(Kernel(program, name, kind, median_ns * 1e-9, worker.of(instruction, within)))
    return tuple(out)


def _fusions(module: Module) -> dict[str, tuple[Instruction, Computation]]:
    out: dict[str, tuple[Instruction, Computation]] = {}
    for computation in module.computations.values():
        for i in computation.instructions.values():
            if i.opcode == "fusion":
                out.setdefault(i.name.replace(".", "_").replace("-", "_"), (i, computation))
    return out


def _kind(instruction: Instruction, module: Module) -> str:
    inside = {i.opcode for i in module.computations[instruction.called[0]].instructions.values()}
    if "dot" in inside:
        return "matmul by Triton"
    if '"kind":"__triton"' in instruction.rest:
        return "Triton beside matmuls"
    if "scatter" in inside:
        return "scatter"
    if "transpose" in inside and instruction.attribute("kind") == "kLoop":
        turns = read_again(module.computations[instruction.called[0]], GPU_KERNELS.sector_bytes) > 0
        return "loop that turns rows" if turns else "loop with a transpose"
    return {"kLoop": "loop", "kInput": "reduction or transpose"}.get(instruction.attribute("kind") or "", "other")


def rates(kind: str) -> np.ndarray:
    """Of large kernels of a kind: bytes over seconds, as a share of the memory's rate."""
    rate = load_profile("h100").memory.bandwidth.value
    return np.array([k.work.bytes / k.seconds / rate for k in kernels() if k.kind == kind and k.work.bytes > LARGE])


def share(kind: str) -> float:
    """All bytes of the large kernels of a kind over all their seconds, as a share of the memory's rate."""
    large = [k for k in kernels() if k.kind == kind and k.work.bytes > LARGE]
    rate = load_profile("h100").memory.bandwidth.value
    return sum(k.work.bytes for k in large) / sum(k.seconds for k in large) / rate


def matmul_shares() -> np.ndarray:
    """Of Triton's matmuls in bfloat16 that their FLOP bound: the share of the peak, without their start."""
    machine = place_mesh(load_profile("h100"), {"x": 1})
    bound = [
        (k.work.flop / machine.flops_per_s("bfloat16"), k.seconds - 3.5e-6)
        for k in kernels()
        if k.kind == "matmul by Triton"
        and k.work.roofline_s > 1.5 * k.work.bytes / machine.profile.memory.bandwidth.value
    ]
    return np.array([at_peak / took for at_peak, took in bound])


def main() -> None:
    print("| kernels | all | large | share of the memory's rate: 10, 25, 50, 75, 90% of the large | of their sum |")
    print("|---|---|---|---|---|")
    for kind in sorted({k.kind for k in kernels()}):
        found, count = rates(kind), sum(k.kind == kind for k in kernels())
        told = " ".join(f"{x:.2f}" for x in np.quantile(found, [0.1, 0.25, 0.5, 0.75, 0.9]))
        print(f"| {kind} | {count} | {len(found)} | {told} | {share(kind):.2f} |")
    shares = matmul_shares()
    print(f"\nTriton's matmuls in bfloat16: {len(shares)}, {np.median(shares):.2f} of the peak in the median\n")
    machine = place_mesh(load_profile("h100"), {"x": 1})
    print("| program | measured | kernels | by the clock |\n|---|---|---|---|")
    off = []
    for name, told in programs().items():
        ran = sum(total for _, _, total in told["kernels"].values()) * 1e-9 / told["steps"]
        off.append(timeline(read_module(told["text"]), machine).seconds / told["seconds"] - 1)
        print(f"| {name} | {told['seconds'] * 1e3:.3f} ms | {ran * 1e3:.3f} ms | {off[-1]:+.0%} |")
    print(f"\n{len(off)} programs, {np.median(np.abs(off)):.1%} off in the median, at most {np.max(np.abs(off)):.0%}")


if __name__ == "__main__":
    main()
