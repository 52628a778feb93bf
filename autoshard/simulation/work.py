"""Seconds of compiled work on one device: the compiler's cycles, and a roofline beside them.

Cycles are good for matmuls. For work that memory bounds they are an upper figure (an add of two arrays of 512 MiB comes
out at a quarter of the rate of the memory on some chips); what its operands and results in HBM take at a usual share of
the memory's rate is put in their place where that is less.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from autoshard.costmodels.families import family_of
from autoshard.costmodels.load import list_profiles, load_profile
from autoshard.costmodels.machine import Machine
from autoshard.simulation.convolutions import DTYPES, convolution_flop
from autoshard.simulation.gpu import VENDOR as GPU_VENDOR
from autoshard.simulation.libraries import library_flop, results_of
from autoshard.simulation.scheduled import FUSIONS, HBM, KINDS, Array, Computation, Instruction, Module

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


@dataclass(frozen=True, slots=True)
class Kernels:
    """How fast kernels run where the compiler says nothing of it, as on GPUs.

    matmul: share of the peak by family of the element type. matmul_memory, memory, tiled_memory: share of the memory's
    rate of matmuls, of everything else, and of what Triton makes beside matmuls (softmax, norms). sector_bytes, cache:
    what a read brings at least, and the rate at which a cache gives it again over the memory's rate, for loops whose
    neighbours lie far apart (`read_again`). matmul_start_s, start_s: what each of them takes beside its work.
    """

    matmul: Mapping[str, float]
    matmul_memory: float
    memory: float
    tiled_memory: float
    sector_bytes: int
    cache: float
    matmul_start_s: float
    start_s: float

    def seconds(self, flop_s: Mapping[str, float], bytes_s: float, share: float) -> float:
        """A kernel with matmuls of so many seconds at the peak by family, and bytes of so many at the memory's rate.

        share: of that rate, for work without matmuls.
        """
        if not flop_s:
            return bytes_s / share + self.start_s if bytes_s else 0.0
        busy = sum(s / self.matmul.get(family, self.matmul["bf16"]) for family, s in flop_s.items())
        return max(busy, bytes_s / self.matmul_memory) + self.matmul_start_s


GPU_KERNELS: Final = Kernels({"bf16": 0.77, "f32": 0.65}, 0.82, 0.90, 0.68, 32, 1.45, 3.5e-6, 1.4e-6)
"""As kernels of 18 programs ran on an H100 (experiments/gpu/kernels.py); for other GPUs that is an assumption. Sectors
of 32 bytes are those of NVIDIA's caches (CUDA C++ Best Practices Guide, coalesced access to global memory); that these
give them at 1.45 times the memory's rate is what both large loops that turned rows say."""

_TILED: Final = '"kind":"__triton"'
_MATRIX: Final = frozenset({"convolution", "dot"})


@dataclass(frozen=True, slots=True)
class Work:
    """What an instruction does on one device.

    cycles_s: seconds by the compiler's cycles, None where it does not say. flop: of matmuls. bytes: in HBM.
    roofline_s: the longer of FLOP at the peak and bytes at the memory's rate. kernel_s: as such kernels ran (GPUs).
    touched_s: what its bytes take at the memory's rate or, where all of them lie on the chip, would take there.
    """

    cycles_s: float | None
    flop: float
    bytes: float
    roofline_s: float
    kernel_s: float | None = None
    touched_s: float = 0.0

    @property
    def is_matmul(self) -> bool:
        """Whether the matrix unit works."""
        return self.flop > 0

    def seconds(self, clock: Clock) -> float:
        """``cycles``: as the compiler says, the roofline where it does not. ``roofline``: never more than that.

        ``expected``: cycles for matmuls; for other work cycles too, but no more than its bytes take at `MEMORY_SHARE`
        of the memory's rate: what lies on the chip is worked on no slower. On GPUs: as such kernels were measured.
        """
        if clock == "expected" and self.kernel_s is not None:
            return self.kernel_s
        if clock == "roofline" or self.cycles_s is None:
            return self.roofline_s
        if self.is_matmul:
            return max(self.cycles_s, self.roofline_s)
        if clock == "cycles" or not self.touched_s:
            return self.cycles_s
        return min(self.cycles_s, self.touched_s / MEMORY_SHARE)


class Worker:
    """Works out `Work` for the instructions of a module on a machine."""

    def __init__(self, module: Module, machine: Machine) -> None:
        self.module, self.machine = module, machine
        units = MATRIX_UNITS.get(machine.profile.chip_name)
        dense = machine.flops_per_s("bfloat16")
        self.clock_hz = None if units is None else dense / (2 * units)
        self.kernels = GPU_KERNELS if machine.profile.vendor == GPU_VENDOR else None
        name = machine.profile.chip_name  # shares are of the chip's peak rates, not of what a calibration measured
        self.peak = load_profile(name) if self.kernels and name in list_profiles() else machine.profile
        self._flops: dict[str, dict[str, float]] = {}

    def of(self, instruction: Instruction, within: Computation) -> Work:
        """The work of an instruction that runs in `within`."""
        flops = self._matmuls_of(instruction, within)
        moved = self._bytes(instruction, within)
        touched = moved or self._bytes(instruction, within, everywhere=True)
        rate = self.machine.profile.memory.bandwidth.value
        matrix_s = sum(flop / self.machine.flops_per_s(dtype) for dtype, flop in flops.items())
        cycles = instruction.cycles
        timed = None if cycles is None or self.clock_hz is None else cycles / self.clock_hz
        kernel_s = None
        if self.kernels is not None:
            at_peak = {family_of(d): flop / self.peak.matmul_flops_per_s(d) for d, flop in flops.items() if flop}
            peak_rate = self.peak.memory.bandwidth.value
            kernel_s = self.kernels.seconds(at_peak, moved / peak_rate, self._share(instruction, self.kernels))
            kernel_s += self._again(instruction, self.kernels) / (self.kernels.cache * peak_rate)
        return Work(timed, sum(flops.values()), moved, max(matrix_s, moved / rate), kernel_s, touched / rate)

    def _share(self, instruction: Instruction, kernels: Kernels) -> float:
        """The share of the memory's rate that a kernel without matmuls reaches."""
        return kernels.tiled_memory if _TILED in instruction.rest else kernels.memory

    def _again(self, instruction: Instruction, kernels: Kernels) -> float:
        """Bytes that a loop reads more than once."""
        if instruction.opcode != "fusion" or instruction.attribute("kind") != "kLoop":
            return 0.0
        fused = self.module.computations.get(instruction.called[0])
        return 0.0 if fused is None else read_again(fused, kernels.sector_bytes)

    def _matmuls_of(self, instruction: Instruction, within: Computation) -> dict[str, float]:
        """dtype -> FLOP of matmuls in it."""
        if instruction.opcode in _MATRIX:
            dtype, flop = matmul_flop(instruction, within)
            return {at_precision(dtype, instruction): flop}
        if instruction.opcode == "custom-call":
            dtype, flop = library_flop(instruction, within)
            return {at_precision(dtype, instruction): flop} if flop else {}
        total: dict[str, float] = {}
        if instruction.opcode in (*FUSIONS, "call"):
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

    def _bytes(self, instruction: Instruction, within: Computation, everywhere: bool = False) -> float:
        """Bytes in HBM that it reads and writes; of arrays of which only a slice is touched, that slice.

        everywhere: bytes on the chip, too.
        """
        reads: list[float] = []
        fused = self.module.computations.get(instruction.called[0]) if instruction.opcode in FUSIONS else None
        parameters = _parameters(fused) if fused else {}
        carried = _carried(fused) if fused else frozenset()
        for slot, name in enumerate(instruction.operands):
            if parameters.get(slot) in carried:
                continue
            operand = within.instructions.get(name)
            arrays = _in_memory(operand.arrays if operand else (), everywhere)
            if not arrays:
                continue
            whole = sum(a.bytes for a in arrays)
            part = None if fused is None else self._sliced(fused, parameters.get(slot))
            if instruction.opcode in ("dynamic-slice", "slice", "gather") and slot == 0:
                part = sum(a.bytes for a in instruction.arrays)
            reads.append(whole if part is None else min(whole, part))
        results = fused.root.arrays if fused and instruction.opcode == "fusion-start" else results_of(instruction)
        if fused and carried and len(fused.root.operands) == len(results):
            results = tuple(a for name, a in zip(fused.root.operands, results, strict=True) if name not in carried)
        written = float(sum(a.bytes for a in _in_memory(results, everywhere)))
        update = self._updated(fused.root, fused) if fused else self._updated(instruction, within)
        if update is not None:  # in place: the array itself is neither read nor written, only the part
            largest = max(reads, default=0.0)
            if largest >= written > 0:
                reads.remove(largest)
                written = min(written, update)
        return sum(reads) + written

    def _sliced(self, fused: Computation, parameter: str | None) -> float | None:
        """Bytes of the slices that are all that a fusion, or fusions in it, reads of a parameter; None for the whole.

        A bitcast of the parameter counts as the parameter on GPUs, whose fusions are full of them; of TPU fusions the
        compiler's cycles say more than bytes.
        """
        total = 0.0
        if parameter is None:
            return None
        names = {parameter}
        for i in fused.instructions.values():
            if names.isdisjoint(i.operands):
                continue
            if self.kernels is not None and i.opcode in ("bitcast", "reshape") and not i.is_root:
                names.add(i.name)
                continue
            if i.opcode == "fusion" and (inner := self.module.computations.get(i.called[0])) is not None:
                slots = [slot for slot, name in enumerate(i.operands) if name in names]
                parts = [self._sliced(inner, _parameters(inner).get(slot)) for slot in slots]
            elif i.opcode in ("dynamic-slice", "slice", "gather") and i.operands[0] in names:
                parts = [float(sum(a.bytes for a in i.arrays))]
            else:
                return None
            if None in parts:
                return None
            total += sum(part for part in parts if part is not None)
        return total or None

    def _updated(self, root: Instruction, within: Computation) -> float | None:
        """Bytes that a dynamic-update-slice or a scatter of one array writes; None for other instructions."""
        seen = root
        while True:
            if seen.opcode in ("bitcast", "copy") and seen.operands and seen.operands[0] in within.instructions:
                seen = within.instructions[seen.operands[0]]
            elif seen.opcode == "fusion" and (inner := self.module.computations.get(seen.called[0])) is not None:
                seen, within = inner.root, inner
            else:
                break
        at = {"dynamic-update-slice": 1, "scatter": len(seen.operands) - 1}.get(seen.opcode)
        if at is None or len(seen.operands) < 2:
            return None
        part = within.instructions.get(seen.operands[at])
        return None if part is None else float(sum(a.bytes for a in part.arrays))


def read_again(fused: Computation, sector_bytes: int) -> float:
    """Bytes that a loop reads beside those of its arrays, where it turns rows: neighbours of its result lie apart in
    the operand, and each read brings a whole sector. A loop with two results reads for each of them.

    The GPU compiler tiles such transposes through shared memory (``kind=kInput``) where it can; as loops they are slow.
    """
    again = 0.0
    for i in fused.instructions.values():
        if i.arrays and _apart(i) > 1:
            read = _read_of(i, fused).arrays[0]
            again += (min(_apart(i), sector_bytes * read.elements / read.bytes) - 1) * read.bytes
    return again


def _read_of(i: Instruction, fused: Computation) -> Instruction:
    """The array that an instruction is computed from element by element: what is converted is read as it was."""
    while True:
        before = (fused.instructions.get(name) for name in i.operands if i.opcode != "parameter")
        like = next((o for o in before if o and o.arrays and o.arrays[0].elements == i.arrays[0].elements), None)
        if like is None:
            return i
        i = like


def _apart(transpose: Instruction) -> int:
    """How far apart neighbours of a transpose's result lie in its operand, in elements; 1 for other instructions."""
    if transpose.opcode != "transpose":
        return 1
    order = [int(n) for n in re.findall(r"\d+", transpose.attribute("dimensions") or "")]
    sizes = dict(zip(order, transpose.arrays[0].shape, strict=True))  # of the operand
    last = next((d for d in reversed(order) if sizes[d] > 1), None)
    return 1 if last is None else prod(size for d, size in sizes.items() if d > last)


def _in_memory(arrays: tuple[Array, ...], everywhere: bool) -> list[Array]:
    """Those in HBM. everywhere: those on the chip, too."""
    return [a for a in arrays if everywhere or a.space == HBM]


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


def at_precision(dtype: str, instruction: Instruction) -> str:
    """The type whose rate a matmul runs at: float32 with the higher precision that its operands ask for."""
    told = re.search(r'operand_precision"?[=:][{\[]([^}\]]*)', instruction.rest)
    asked = re.findall(r"highest|high", told[1].lower()) if told and dtype == "float32" else []
    return f"{dtype}_{max(asked, key=len)}" if asked else dtype


def matmul_flop(instruction: Instruction, within: Computation) -> tuple[str, float]:
    """(element type of the operands, FLOP) of a dot or convolution; padding and dilation zeros do no work."""
    operands = [within.instructions[o].arrays[0] for o in instruction.operands if o in within.instructions]
    if len(operands) < 2 or not instruction.arrays:
        return "bfloat16", 0.0
    lhs, rhs, out = operands[0], operands[1], instruction.arrays[0]
    dtype = DTYPES.get(lhs.dtype, "float32")
    if instruction.opcode == "dot":
        contracted = [int(n) for n in re.findall(r"\d+", instruction.attribute("lhs_contracting_dims") or "")]
        return dtype, 2.0 * out.elements * prod(lhs.shape[d] for d in contracted)
    return dtype, convolution_flop(lhs, rhs, out, instruction)
