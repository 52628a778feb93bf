"""Seconds of compiled work on one device: the compiler's cycles, and a roofline beside them.

Cycles are good for matmuls. For work that memory bounds they are an upper figure (an add of two arrays of 512 MiB comes
out at a quarter of the rate of the memory on some chips); what its operands and results in HBM take at a usual share of
the memory's rate is put in their place where that is less.
"""

import re
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

import numpy as np

from autoshard.costmodels.machine import Machine
from autoshard.simulation.scheduled import HBM, KINDS, Array, Computation, Instruction, Module

Clock = Literal["expected", "cycles", "roofline"]
"""How work is timed: see `Work.seconds`."""

MATRIX_UNITS: Final[dict[str, int]] = {
    "tpu_v5e": 4 * 128 * 128,
    "tpu_v5p": 8 * 128 * 128,
    "tpu_v6e": 4 * 256 * 256,
}
"""Multipliers of the matrix units of a chip (cores x units x rows x columns). Clock = peak / (2 x multipliers)."""

MEMORY_SHARE: Final = 0.85
"""Share of the memory's rate that a copy or elementwise work usually reaches (assumed)."""

_MATRIX: Final = frozenset({"convolution", "dot"})


@dataclass(frozen=True, slots=True)
class Work:
    """What an instruction does on one device.

    cycles_s: seconds by the compiler's cycles, None where it does not say. flop: of matmuls. bytes: in HBM.
    roofline_s: the longer of FLOP at the peak and bytes at the memory's rate.
    """

    cycles_s: float | None
    flop: float
    bytes: float
    roofline_s: float

    @property
    def is_matmul(self) -> bool:
        """Whether the matrix unit works."""
        return self.flop > 0

    def seconds(self, clock: Clock) -> float:
        """``cycles``: as the compiler says, the roofline where it does not. ``roofline``: never more than that.

        ``expected``: cycles for matmuls; for other work cycles too, but no more than its bytes take at `MEMORY_SHARE`
        of the memory's rate, unless they lie on the chip.
        """
        if clock == "roofline" or self.cycles_s is None:
            return self.roofline_s
        if clock == "cycles" or self.is_matmul or not self.bytes:
            return max(self.cycles_s, self.roofline_s) if self.is_matmul else self.cycles_s
        return min(self.cycles_s, self.roofline_s / MEMORY_SHARE)


class Worker:
    """Works out `Work` for the instructions of a module on a machine."""

    def __init__(self, module: Module, machine: Machine) -> None:
        self.module, self.machine = module, machine
        units = MATRIX_UNITS.get(machine.profile.chip_name)
        dense = machine.flops_per_s("bfloat16")
        self.clock_hz = None if units is None else dense / (2 * units)
        self._flops: dict[str, dict[str, float]] = {}

    def of(self, instruction: Instruction, within: Computation) -> Work:
        """The work of an instruction that runs in `within`."""
        flops = self._matmuls_of(instruction, within)
        moved = self._bytes(instruction, within)
        rate = self.machine.profile.memory.bandwidth.value
        matrix_s = sum(flop / self.machine.flops_per_s(dtype) for dtype, flop in flops.items())
        cycles = instruction.cycles
        timed = None if cycles is None or self.clock_hz is None else cycles / self.clock_hz
        return Work(timed, sum(flops.values()), moved, max(matrix_s, moved / rate))

    def _matmuls_of(self, instruction: Instruction, within: Computation) -> dict[str, float]:
        """dtype -> FLOP of matmuls in it."""
        if instruction.opcode in _MATRIX:
            dtype, flop = matmul_flop(instruction, within)
            return {dtype: flop}
        total: dict[str, float] = {}
        if instruction.opcode in ("fusion", "call"):
            for name in instruction.called:
                for dtype, flop in self._matmuls(name).items():
                    total[dtype] = total.get(dtype, 0.0) + flop
        return total

    def _matmuls(self, name: str) -> dict[str, float]:
        if name not in self._flops:
            self._flops[name] = {}
            computation = self.module.computations.get(name)
            total: dict[str, float] = {}
            if computation is not None:
                for inner in computation.instructions.values():
                    for dtype, flop in self._matmuls_of(inner, computation).items():
                        total[dtype] = total.get(dtype, 0.0) + flop
            self._flops[name] = total
        return self._flops[name]

    def _bytes(self, instruction: Instruction, within: Computation) -> float:
        """Bytes in HBM that it reads and writes; of arrays of which only a slice is touched, that slice."""
        reads: list[float] = []
        fused = self.module.computations.get(instruction.called[0]) if instruction.opcode == "fusion" else None
        parameters = _parameters(fused) if fused else {}
        carried = _carried(fused) if fused else frozenset()
        for slot, name in enumerate(instruction.operands):
            if parameters.get(slot) in carried:
                continue
            operand = within.instructions.get(name)
            arrays = _in_hbm(operand.arrays if operand else ())
            if not arrays:
                continue
            whole = sum(a.bytes for a in arrays)
            part = None if fused is None else _sliced(fused, parameters.get(slot))
            if instruction.opcode in ("dynamic-slice", "slice", "gather") and slot == 0:
                part = sum(a.bytes for a in instruction.arrays)
            reads.append(whole if part is None else min(whole, part))
        results = instruction.arrays
        if fused and carried and len(fused.root.operands) == len(results):
            results = tuple(a for name, a in zip(fused.root.operands, results, strict=True) if name not in carried)
        written = float(sum(a.bytes for a in _in_hbm(results)))
        update = _updated(fused.root, fused) if fused else _updated(instruction, within)
        if update is not None:  # in place: the array itself is neither read nor written, only the part
            largest = max(reads, default=0.0)
            if largest >= written > 0:
                reads.remove(largest)
                written = min(written, update)
        return sum(reads) + written


def _in_hbm(arrays: tuple[Array, ...]) -> list[Array]:
    return [a for a in arrays if a.space == HBM]


def _parameters(computation: Computation) -> dict[int, str]:
    """Number of the parameter -> its name."""
    names: dict[int, str] = {}
    for i in computation.instructions.values():
        if i.opcode == "parameter" and i.operands and i.operands[0].isdigit():
            names[int(i.operands[0])] = i.name
    return names


def _carried(fused: Computation) -> frozenset[str]:
    """What a step of an asynchronous collective brings into a fusion beside its work: the collective's results, and
    parameters that only the collective uses or that are handed on. The links move these, not the core.
    """
    moving = {i.name for i in fused.instructions.values() if i.opcode in KINDS}
    if not moving or fused.root.opcode != "tuple":
        return frozenset()
    worked = {
        name for i in fused.instructions.values() if i.name not in moving and not i.is_root for name in i.operands
    }
    return frozenset((moving | set(_parameters(fused).values())) - worked)


def _sliced(fused: Computation, parameter: str | None) -> float | None:
    """Bytes of the slices that are all that the fusion reads of a parameter; None if it reads the whole."""
    total = 0.0
    if parameter is None:
        return None
    for i in fused.instructions.values():
        if parameter in i.operands:
            if i.opcode not in ("dynamic-slice", "slice", "gather") or i.operands[0] != parameter:
                return None
            total += sum(a.bytes for a in i.arrays)
    return total or None


def _updated(root: Instruction, within: Computation) -> float | None:
    """Bytes of the part that a dynamic-update-slice writes; None for other instructions."""
    seen = root
    while seen.opcode in ("bitcast", "copy") and seen.operands and seen.operands[0] in within.instructions:
        seen = within.instructions[seen.operands[0]]
    if seen.opcode != "dynamic-update-slice" or len(seen.operands) < 2:
        return None
    part = within.instructions.get(seen.operands[1])
    return None if part is None else float(sum(a.bytes for a in part.arrays))


def matmul_flop(instruction: Instruction, within: Computation) -> tuple[str, float]:
    """(element type of the operands, FLOP) of a dot or convolution; padding and dilation zeros do no work."""
    operands = [within.instructions[o].arrays[0] for o in instruction.operands if o in within.instructions]
    if len(operands) < 2 or not instruction.arrays:
        return "bfloat16", 0.0
    lhs, rhs, out = operands[0], operands[1], instruction.arrays[0]
    dtype = _DTYPES.get(lhs.dtype, "float32")
    if instruction.opcode == "dot":
        contracted = [int(n) for n in re.findall(r"\d+", instruction.attribute("lhs_contracting_dims") or "")]
        return dtype, 2.0 * out.elements * prod(lhs.shape[d] for d in contracted)
    labels = instruction.attribute("dim_labels") or ""
    left, _, rest = labels.partition("_")
    kernel, _, result = rest.partition("->")
    window = _window(instruction.attribute("window") or "")
    spatial = sum(c.isdigit() for c in kernel)
    pairs = 1.0
    for k in range(spatial):
        char = str(k)
        pairs *= _taps(
            lhs.shape[left.index(char)], rhs.shape[kernel.index(char)], out.shape[result.index(char)], window, k
        )
    batch, features = out.shape[result.index("b")], out.shape[result.index("f")]
    return dtype, 2.0 * pairs * batch * features * rhs.shape[kernel.index("i")]


_DTYPES: Final = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "s8": "int8", "u8": "uint8", "f64": "float64"}


def _window(text: str) -> dict[str, list[str]]:
    """``{size=2x1 pad=0_0x1_1}`` -> its fields, one entry for each dimension."""
    return {k: v.split("x") for k, v in re.findall(r"(\w+)=([\w\-x]+)", text)}


def _taps(size: int, taps: int, results: int, window: dict[str, list[str]], k: int) -> float:
    """Pairs of a result and a tap along one dimension that meet an element of the operand, not a zero.

    Result *o* and tap *t* meet position ``o * stride + t * far - low`` of the operand with zeros between its elements.
    """

    def number(field: str, default: int) -> int:
        return int(window[field][k]) if k < len(window.get(field, ())) else default

    stride, near, far = number("stride", 1), number("lhs_dilate", 1), number("rhs_dilate", 1)
    low = int(window["pad"][k].split("_")[0]) if k < len(window.get("pad", ())) else 0
    at = np.arange(results)[:, None] * stride + np.arange(taps) * far - low
    return float(((at >= 0) & (at <= (size - 1) * near) & (at % near == 0)).sum())
