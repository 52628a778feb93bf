"""How much work of each kind a program has, and how fast each kind runs: a few numbers fitted to measured programs.

The numbers are those of `CompiledWork`. A program's seconds are the sum of its parts at the peak rates, each divided by
the share of the peak (or of the memory's rate) that such work reaches, or multiplied by the bytes that cross memory
over those that the fusion model counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.families import family_of
from autoshard.costmodels.machine import Machine
from autoshard.costs import fusion
from autoshard.costs.channels import share_of_unit
from autoshard.costs.kinds import work_kinds
from autoshard.costs.price import multiplicities
from autoshard.costs.roofline import exceeds_chip, local_bytes, result_bytes, spills
from autoshard.costs.through import READERS, read_through, through_bytes
from autoshard.costs.turned import read_again_bytes
from autoshard.costs.work import dtype_of_work, is_matmul, local_flops, local_sizes
from autoshard.program.program import Program

FLOP: Final[Sequence[str]] = (
    "bf16_flop", "f32_flop", "spilled_f32_flop", "updated_bf16_flop", "updated_f32_flop", "attention_flop",
    "attention_f32_flop", "convolution_flop", "f32_high_flop", "f32_highest_flop",
)  # fmt: skip
"""Of matmuls by type and precision, apart from float32 ones neither of whose operands stays on the chip and from those
where an update is fused with the gradient that they make; of attention's matmuls, whose bytes count too; of
convolutions.
"""
BYTES: Final[Sequence[str]] = ("attention_bytes", "scores_bytes", "elementwise_bytes", "reduced_bytes", "update_bytes")
SHARED_BYTES: Final = "matmul_memory_bytes"
"""Of matmuls that memory bounds."""
CACHED: Final = "cached_bytes"
"""Of the attention of few queries to caches that exceed the chip."""
SLICED: Final = "sliced_bytes"
"""Of matmuls that memory bounds, where their weights are slices of larger arrays."""
CONVOLVED: Final = "convolution_bytes"
"""Of convolutions that memory bounds, at the memory's rate."""
WRITTEN: Final = "f32_written_bytes"
"""Of the results of float32 matmuls that FLOP bound: on GPUs they are written when these are done."""
TURNED: Final = "turned_bytes"
"""Read again by transposes of short rows, on machines whose profile says so (`costs/turned.py`)."""
STARTS: Final = "matmuls"
"""How many matmuls and convolutions a step runs."""
BOUND: Final = 2.0
"""So many times as long as its FLOP at the peak do the bytes of such a matmul take, whatever its share."""
AMOUNTS: Final[Sequence[str]] = (*FLOP, *BYTES, SHARED_BYTES, SLICED, CACHED, CONVOLVED, WRITTEN, STARTS)
_BOUNDED: Final = frozenset({WorkKind.MATMUL, WorkKind.SLICED, WorkKind.UPDATED, WorkKind.CACHED})
_AS_IT_IS: Final = "turned"
"""A part without a number: what caches give again, and convolutions that memory bounds."""

SHARES: Final[Sequence[str]] = (
    "bf16", "f32", "spilled_f32", "updated_bf16", "updated_f32", "convolution", "attention_peak", "matmul_memory",
    "sliced_memory", "cached_memory", "f32_high", "f32_highest",
)  # fmt: skip
"""Numbers that divide; all others multiply."""
USUAL: Final[Mapping[str, float]] = {
    "bf16": 0.8, "f32": 0.6, "spilled_f32": 0.6, "updated_bf16": 0.8, "updated_f32": 0.6, "convolution": 0.9,
    "attention_peak": 0.2, "attention": 3.0, "scores": 1.0, "matmul_memory": 0.7, "sliced_memory": 0.7,
    "cached_memory": 0.7,
    "f32_high": 0.8, "f32_highest": 0.8, "elementwise": 0.2, "reduced": 0.7, "update": 0.7, "written": 1.0,
    "start": 1.0,
}  # fmt: skip
"""What a number is taken for where no program tells."""
START_S: Final = 4e-6
"""The seconds of `STARTS` that the number ``start`` multiplies."""
_WIDTH: Final = 0.4  # how far, in log, a number lies from its usual one where no program tells
_WIDTHS: Final[Mapping[str, float]] = {"updated_bf16": 1.0, "updated_f32": 1.0}
"""Of numbers whose usual one says little: what a fused update takes beside its matmul is nothing on one chip, and on
another most of it."""
_ERROR: Final = 0.1  # of a program, in log seconds


def amounts(program: Program, machine: Machine) -> dict[str, float]:
    """FLOP and bytes of a program on one device, by what the fit tells apart (`AMOUNTS`; `TURNED` where it counts)."""
    total: dict[str, float] = dict.fromkeys(AMOUNTS, 0.0)
    compiled = machine.profile.compiled_work
    sector = 0 if compiled is None else compiled.sector_bytes
    if sector:
        total[TURNED] = 0.0
    fused, times, kinds = fusion.analyse(program), multiplicities(program), work_kinds(program)
    through = read_through(program, fused)
    for op, _ in program.walk():
        if op.rule is None:
            continue
        sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
        kind = kinds[op.id]
        moved = float(local_bytes(op, program, sizes, fused)[0]) * times[op.id]
        if f"{kind}_bytes" in BYTES:
            total[f"{kind}_bytes"] += moved
        if kind in READERS:
            moved += float(through_bytes(op, program, sizes, through)[0]) * times[op.id]
        if sector and op.kind == "transpose":
            total[TURNED] += float(read_again_bytes(op, program, sizes, sector)[0]) * times[op.id]
        if not is_matmul(op):
            continue
        dtype = dtype_of_work(op, program)
        flop = float(local_flops(op, program, sizes)[0]) * times[op.id]
        total[STARTS] += times[op.id]
        if kind is WorkKind.CONVOLUTION and compiled is not None and compiled.pads_channels:
            flop /= float(share_of_unit(op.rule, sizes, machine.profile.matmul_tile)[0])
        if kind is WorkKind.ATTENTION:
            total["attention_flop" if family_of(dtype) != "f32" else "attention_f32_flop"] += flop
            continue
        family = "convolution" if kind is WorkKind.CONVOLUTION else family_of(dtype)
        at_peak, bytes_s = machine.compute_s(flop, 0.0, dtype), machine.compute_s(0.0, moved, dtype)
        if kind is WorkKind.CONVOLUTION and bytes_s > at_peak:
            total[CONVOLVED] += moved
        elif kind in _BOUNDED and bytes_s > BOUND * at_peak:
            large = kind is WorkKind.CACHED and exceeds_chip(op, program, sizes, machine.profile.memory)[0]
            total[CACHED if large else SLICED if kind is WorkKind.SLICED else SHARED_BYTES] += moved
        else:
            spilled = bool(spills(op, program, sizes, machine.profile.memory)[0])
            if kind is WorkKind.UPDATED and not spilled and f"updated_{family}_flop" in total:
                family = f"updated_{family}"
            elif spilled and f"spilled_{family}_flop" in total:
                family = f"spilled_{family}"
            total[f"{family}_flop"] += flop
            if family_of(dtype) == "f32" and kind is not WorkKind.CONVOLUTION:
                total[WRITTEN] += float(result_bytes(op, program, sizes)[0]) * times[op.id]
    return total


def parts(row: Mapping[str, float], machine: Machine, memory: float, *, fused_updates: bool = True) -> dict[str, float]:
    """Work -> its seconds at the peak rates, of the `amounts` of a program.

    memory: the share of the memory's rate that counts as its peak here. fused_updates: whether updates are fused to
    matmuls, as on TPUs; these, those whose operands do not stay on the chip, and the attention of few queries have
    numbers of their own then, and so have matmuls that memory bounds whose weights are slices.
    """
    rate = machine.profile.memory.bandwidth.value

    def at_peak(column: str, dtype: str) -> float:
        return row.get(column, 0.0) / machine.flops_per_s(dtype)

    out = {"bf16": at_peak("bf16_flop", "bfloat16"), "f32": at_peak("f32_flop", "float32")}
    out |= {f"f32_{asked}": at_peak(f"f32_{asked}_flop", f"float32_{asked}") for asked in ("high", "highest")}
    for family, dtype in (("bf16", "bfloat16"), ("f32", "float32")):
        for told_apart in (f"updated_{family}", f"spilled_{family}"):
            name = told_apart if fused_updates else family
            out[name] = out.get(name, 0.0) + at_peak(f"{told_apart}_flop", dtype)
    out["attention_peak"] = at_peak("attention_flop", "bfloat16") + at_peak("attention_f32_flop", "float32")
    out["convolution"] = at_peak("convolution_flop", "float32")
    out["matmul_memory"] = row[SHARED_BYTES] / rate
    for column, number in ((SLICED, "sliced_memory"), (CACHED, "cached_memory")):
        reads = number if fused_updates else "matmul_memory"
        out[reads] = out.get(reads, 0.0) + row.get(column, 0.0) / rate
    out["written"] = row.get(WRITTEN, 0.0) / rate / memory
    out[_AS_IT_IS] = row.get(TURNED, 0.0) / rate + row.get(CONVOLVED, 0.0) / rate / memory
    out["start"] = row.get(STARTS, 0.0) * START_S
    return {**out, **{column.removesuffix("_bytes"): row.get(column, 0.0) / rate / memory for column in BYTES}}


def seconds(at_peak: Mapping[str, float], numbers: Mapping[str, float]) -> float:
    """The sum of the parts: shares divide, traffic multiplies. Numbers that are not there count nothing."""
    numbers = {**numbers, _AS_IT_IS: 1.0}
    return sum(
        s / numbers[name] if name in SHARES else s * numbers[name] for name, s in at_peak.items() if name in numbers
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """A program's seconds on a chip, and its `parts` there."""

    chip: str
    seconds: float
    parts: Mapping[str, float]


def fit(
    programs: Sequence[Measured],
    own: Sequence[str],
    common: Sequence[str] = (),
    *,
    most: Mapping[str, float],
    usual: Mapping[str, float] = USUAL,
) -> dict[str, dict[str, float]]:
    """Chip -> the numbers that agree best with the programs, in log seconds.

    own: numbers that each chip has for itself; common: those of all chips of one compiler. most: the largest value of a
    number. usual: what numbers are taken for where no program tells.
    """
    from scipy.optimize import least_squares

    chips = sorted({one.chip for one in programs})
    names = [(chip, name) for chip in chips for name in own] + [("", name) for name in common]
    start = np.log([usual[name] for _, name in names])
    width = np.array([_WIDTHS.get(name, _WIDTH) for _, name in names])
    top = np.log([most.get(name, 20.0) for _, name in names])

    def numbers(x: np.ndarray, chip: str) -> dict[str, float]:
        return {name: float(np.exp(v)) for (of, name), v in zip(names, x, strict=True) if of in ("", chip)}

    def errors(x: np.ndarray) -> np.ndarray:
        by_chip = {chip: numbers(x, chip) for chip in chips}
        off = [np.log(seconds(one.parts, by_chip[one.chip]) / one.seconds) / _ERROR for one in programs]
        return np.array([*off, *((x - start) / width)])

    found = least_squares(errors, start, bounds=(np.full(len(names), np.log(0.02)), top + 1e-9)).x
    return {chip: numbers(found, chip) for chip in chips}
