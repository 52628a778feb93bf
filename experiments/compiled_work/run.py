"""How fast the TPU compiler's work runs beside the peak rates: a few numbers of each chip, fitted to its own cycles.

    python experiments/compiled_work/run.py --keep /tmp/texts     # compile what has no row yet; minutes each
    python experiments/compiled_work/run.py attn block --chips tpu_v5e
    python experiments/compiled_work/run.py --amounts             # FLOP and bytes of the rows again, nothing compiled
    python experiments/compiled_work/run.py --fit                 # the numbers of the profiles, from rows.csv

Needs libtpu (``pip install 'autoshard[tpu]'``) and no TPU. Programs run on one chip, so nothing waits for links.
A row has the seconds of the compiler's schedule (docs/simulation.md, clock ``expected``) and the amounts that plans
price: FLOP of matmuls by type, and bytes by the fusion model. The fit is of whole programs, in log seconds::

    seconds = sum of FLOP / (peak x share) + sum of bytes x traffic / (memory rate x 0.85)

A matmul that memory bounds counts with its bytes alone, at a share of the memory's rate. What is done to attention's
scores beside its matmuls counts with these.
"""

import argparse
import csv
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
ROWS = HERE / "rows.csv"
CHIPS = ("tpu_v5e", "tpu_v5p", "tpu_v6e")
TOPOLOGY = {"tpu_v5e": "v5e:2x2", "tpu_v5p": "v5p:2x2x1", "tpu_v6e": "v6e:2x2"}
"""The least slice that the compiler describes; the programs run on its first chip."""
MEMORY = 0.85
"""Share of the memory's rate, as the clock has it (`autoshard.simulation.work.MEMORY_SHARE`)."""
FAMILIES: Sequence[str] = ("bf16", "f32")
FLOP: Sequence[str] = (
    "bf16_flop", "f32_flop", "updated_bf16_flop", "updated_f32_flop", "attention_flop", "convolution_flop",
)  # fmt: skip
"""Of matmuls by type, apart from those where an update is fused with the gradient that they make; of attention's
matmuls, whose bytes count too; of convolutions.
"""
BYTES: Sequence[str] = ("attention_bytes", "elementwise_bytes", "reduced_bytes", "update_bytes")
SHARED_BYTES: Final = "matmul_memory_bytes"
"""Of matmuls that memory bounds."""
BOUND = 2.0
"""So many times as long as its FLOP at the peak do the bytes of such a matmul take, whatever its share."""
AMOUNTS: Sequence[str] = (*FLOP, *BYTES, SHARED_BYTES)
COLUMNS: Sequence[str] = ("program", "chip", "compiler", "seconds", "matmul_s", "cycles_s", "compile_s", *AMOUNTS)
OWN: Sequence[str] = (
    "bf16", "f32", "updated_bf16", "updated_f32", "convolution", "attention_peak", "attention", "matmul_memory",
)  # fmt: skip
"""Numbers that each chip has for itself; `COMMON` ones are facts of the compiler, whatever the chip."""
COMMON: Sequence[str] = ("elementwise", "reduced", "update")
USUAL = {
    "bf16": 0.8, "f32": 0.6, "updated_bf16": 0.5, "updated_f32": 0.3, "convolution": 0.5, "attention_peak": 0.2,
    "attention": 3.0, "matmul_memory": 0.7, "elementwise": 0.2, "reduced": 0.7, "update": 0.7,
}  # fmt: skip
MOST = 0.95
"""The largest share of the peak that any matmul of these schedules has."""
SHARES: Sequence[str] = tuple(name for name in OWN if name != "attention")
WIDTH = 0.4
"""How far, in log, a number lies from its usual one where no program tells (the chip has none of that work)."""
ERROR = 0.1
"""Of a program, in log seconds."""


def amounts(program: Any, machine: Any) -> dict[str, float]:
    """FLOP and bytes of a program on one device, by what the fit tells apart."""
    from autoshard.costmodels.compiled import WorkKind
    from autoshard.costmodels.families import family_of
    from autoshard.costs import fusion
    from autoshard.costs.kinds import work_kinds
    from autoshard.costs.price import multiplicities
    from autoshard.costs.roofline import local_bytes
    from autoshard.costs.work import dtype_of_work, is_matmul, local_flops, local_sizes

    total = dict.fromkeys(AMOUNTS, 0.0)
    fused, times, kinds = fusion.analyse(program), multiplicities(program), work_kinds(program)
    for op, _ in program.walk():
        if op.rule is None:
            continue
        sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
        kind = kinds[op.id]
        moved = float(local_bytes(op, program, sizes, fused)[0]) * times[op.id]
        if f"{kind}_bytes" in total:
            total[f"{kind}_bytes"] += moved
        if kind is WorkKind.ATTENTION:
            total["attention_flop"] += float(local_flops(op, program, sizes)[0]) * times[op.id]
        elif is_matmul(op):
            dtype = dtype_of_work(op, program)
            family = "convolution" if kind is WorkKind.CONVOLUTION else family_of(dtype)
            flop = float(local_flops(op, program, sizes)[0]) * times[op.id]
            at_peak, bytes_s = machine.compute_s(flop, 0.0, dtype), machine.compute_s(0.0, moved, dtype)
            if kind in (WorkKind.MATMUL, WorkKind.UPDATED) and bytes_s > BOUND * at_peak:
                total[SHARED_BYTES] += moved
            else:
                total[f"updated_{family}_flop" if kind is WorkKind.UPDATED else f"{family}_flop"] += flop
    return total


def measure(name: str, chip: str, keep: Path | None) -> dict[str, Any]:
    """A row: the program compiled for the chip, or read from the texts that were kept, and its amounts."""
    import jax
    from jax.experimental import topologies
    from programs import PROGRAMS

    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.frontends.jax.function import trace
    from autoshard.simulation import tpu
    from autoshard.simulation.clock import MATMUL
    from autoshard.simulation.scheduled import read_module
    from autoshard.simulation.timeline import timeline

    step, specs, donated = PROGRAMS[name]()
    text, place, began = (
        None,
        None if keep is None else keep / f"{chip.removeprefix('tpu_')}_{name}.txt",
        time.monotonic(),
    )
    if place is not None and place.exists():
        text = place.read_text()
    if text is None:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY[chip]).devices
        where = jax.sharding.SingleDeviceSharding(devices[0])
        placed = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), specs)
        text = tpu.scheduled_text(jax.jit(step, donate_argnums=donated).lower(*placed))
        if place is not None:
            place.write_text(text)
    took = time.monotonic() - began
    module, machine = read_module(text), place_mesh(load_profile(chip), {"x": 1})
    line = timeline(module, machine)
    program = trace(step, *specs, donate_argnums=donated, name=name).program
    return {
        "program": name, "chip": chip, "compiler": tpu.compiler_version(), "seconds": line.seconds,
        "matmul_s": line.total(MATMUL), "cycles_s": timeline(module, machine, "cycles").seconds, "compile_s": took,
        **amounts(program, machine),
    }  # fmt: skip


def load() -> list[dict[str, Any]]:
    """The rows so far, their numbers as numbers."""
    if not ROWS.exists():
        return []
    with ROWS.open(newline="") as file:
        return [
            {k: v if k in ("program", "chip", "compiler") else float(v or 0) for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def write(rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows, in the order in which they were measured."""
    with ROWS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def count_again() -> None:
    """The amounts of the rows so far."""
    from programs import PROGRAMS

    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.frontends.jax.function import trace

    rows, programs = load(), {}
    for row in rows:
        if row["program"] not in programs:
            step, specs, donated = PROGRAMS[row["program"]]()
            programs[row["program"]] = trace(step, *specs, donate_argnums=donated, name=row["program"]).program
        row |= amounts(programs[row["program"]], place_mesh(load_profile(row["chip"]), {"x": 1}))
    write([{k: row[k] for k in COLUMNS} for row in rows])


def parts(row: Mapping[str, Any]) -> dict[str, float]:
    """Work -> its seconds at the peak rates (the memory's at `MEMORY` of its rate)."""
    from autoshard.costmodels import load_profile

    profile = load_profile(row["chip"])
    memory = {"matmul_memory": row[SHARED_BYTES] / profile.memory.bandwidth.value}
    peak = {"bf16": "bfloat16", "f32": "float32", "attention": "bfloat16", "convolution": "float32"}
    peak |= {f"updated_{family}": peak[family] for family in FAMILIES}
    out = {name: row[f"{name}_flop"] / profile.matmul_flops_per_s(dtype) for name, dtype in peak.items()}
    out["attention_peak"] = out.pop("attention")
    rate = profile.memory.bandwidth.value * MEMORY
    return {**out, **memory, **{column.removesuffix("_bytes"): row[column] / rate for column in BYTES}}


def seconds(row: Mapping[str, Any], numbers: Mapping[str, float]) -> float:
    """Seconds of a program by the numbers."""
    return total(parts(row), numbers)


def total(at_peak: Mapping[str, float], numbers: Mapping[str, float]) -> float:
    """The sum of the parts: shares divide, traffic multiplies."""
    return sum(s / numbers[name] if name in SHARES else s * numbers[name] for name, s in at_peak.items())


def fit(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Chip -> its numbers, those that agree best with the rows."""
    from scipy.optimize import least_squares

    chips = sorted({row["chip"] for row in rows})
    names = [(chip, name) for chip in chips for name in OWN] + [("", name) for name in COMMON]
    usual = np.log([USUAL[name] for _, name in names])
    most = {**dict.fromkeys(SHARES, MOST), "matmul_memory": MEMORY}
    top = np.log([most.get(name, 20.0) for _, name in names])

    def numbers(x: np.ndarray, chip: str) -> dict[str, float]:
        return {name: float(np.exp(v)) for (of, name), v in zip(names, x, strict=True) if of in ("", chip)}

    at_peak = [parts(row) for row in rows]

    def errors(x: np.ndarray) -> np.ndarray:
        by_chip = {chip: numbers(x, chip) for chip in chips}
        off = [
            np.log(total(part, by_chip[row["chip"]]) / row["seconds"]) / ERROR
            for row, part in zip(rows, at_peak, strict=True)
        ]
        return np.array([*off, *((x - usual) / WIDTH)])

    found = least_squares(errors, usual, bounds=(np.full(len(names), np.log(0.02)), top + 1e-9)).x
    return {chip: numbers(found, chip) for chip in chips}


def report(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numbers, and how each program agrees with them."""
    fitted = fit(rows)
    lines = ["| chip | " + " | ".join((*OWN, *COMMON)) + " |", "|---" * (len((*OWN, *COMMON)) + 1) + "|"]
    lines += [f"| {c} | " + " | ".join(f"{n[k]:.2f}" for k in (*OWN, *COMMON)) + " |" for c, n in fitted.items()]
    lines += ["", "| program | chip | schedule, ms | by the numbers | at the peak rates |", "|---|---|---|---|---|"]
    for row in rows:
        mine, peak = seconds(row, fitted[row["chip"]]), seconds(row, dict.fromkeys((*OWN, *COMMON), 1.0))
        off, was = (f"{s / row['seconds'] - 1:+.0%}" for s in (mine, peak))
        lines.append(f"| {row['program']} | {row['chip']} | {row['seconds'] * 1e3:.2f} | {off} | {was} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--keep", type=Path, help="a folder for compiled texts; those there are not compiled again")
    parser.add_argument("--amounts", action="store_true")
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    if arguments.amounts:
        count_again()
        return 0
    if arguments.fit:
        print("\n".join(report(load())))
        return 0
    from autoshard.simulation import tpu

    tpu.prepare()
    from programs import PROGRAMS

    there = {(row["program"], row["chip"]) for row in load()}
    for name in arguments.names or PROGRAMS:
        for chip in arguments.chips.split(","):
            if (name, chip) in there:
                continue
            row = measure(name, chip, arguments.keep)
            write([*load(), row])
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
