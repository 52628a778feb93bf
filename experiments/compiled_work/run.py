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
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

from autoshard.calibrate import amounts as amounts_of
from autoshard.calibrate.amounts import AMOUNTS

HERE = Path(__file__).resolve().parent

ROWS = HERE / "rows.csv"
CHIPS = ("tpu_v5e", "tpu_v5p", "tpu_v6e")
TOPOLOGY = {"tpu_v5e": "v5e:2x2", "tpu_v5p": "v5p:2x2x1", "tpu_v6e": "v6e:2x2"}
"""The least slice that the compiler describes; the programs run on its first chip."""
MEMORY = 0.85
"""Share of the memory's rate, as the clock has it (`autoshard.simulation.work.MEMORY_SHARE`)."""
COLUMNS: Sequence[str] = ("program", "chip", "compiler", "seconds", "matmul_s", "cycles_s", "compile_s", *AMOUNTS)
OWN: Sequence[str] = (
    "bf16", "f32", "spilled_f32", "updated_bf16", "updated_f32", "convolution", "attention_peak", "attention",
    "matmul_memory", "sliced_memory", "cached_memory", "f32_high", "f32_highest",
)  # fmt: skip
"""Numbers that each chip has for itself; `COMMON` ones are facts of the compiler, whatever the chip. What is done to
attention's scores beside its matmuls counts with these, and matmuls take no time to start.
"""
LAST = ("convolution", "sliced_memory", "f32_high", "f32_highest")
"""Numbers that are fitted after all others: of convolutions, of slices of weights, of float32 matmuls in passes."""
ALONE = (
    "convs_plain", "convs_strided", "mlp_grads_high", "mlp_grads_highest", "few_rows_scanned", "few_rows_scanned_2k",
)  # fmt: skip
"""Programs that no other number is fitted to."""
COMMON: Sequence[str] = ("elementwise", "reduced", "update")
MOST = 0.95
"""The largest share of the peak that any matmul of these schedules has."""


def measure(name: str, chip: str, keep: Path | None) -> dict[str, Any]:
    """A row: the program compiled for the chip, or read from the texts that were kept, and its amounts."""
    from jax.experimental import topologies

    import autoshard
    from autoshard.calibrate.programs import PROGRAMS
    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.frontends.jax.function import trace
    from autoshard.simulation import tpu
    from autoshard.simulation.clock import MATMUL
    from autoshard.simulation.scheduled import read_module
    from autoshard.simulation.timeline import timeline

    step, specs, donated = PROGRAMS[name]()
    place, began = None if keep is None else keep / f"{chip.removeprefix('tpu_')}_{name}.txt", time.monotonic()
    if place is not None and place.exists():
        text = place.read_text()
    else:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY[chip]).devices
        plan = autoshard.plan(step, *specs, mesh={"x": 1}, hardware=chip, donate_argnums=donated, memory_limit="none")
        text = tpu.compiled(plan.lower().staged(devices[:1])).text  # as plans run, updates kept apart where they are
        if place is not None:
            place.write_text(text)
    took = time.monotonic() - began
    module, machine = read_module(text), place_mesh(load_profile(chip), {"x": 1})
    line = timeline(module, machine)
    program = trace(step, *specs, donate_argnums=donated, name=name).program
    counted = place_mesh(load_profile(f"{chip}@compiler"), {"x": 1})
    return {
        "program": name, "chip": chip, "compiler": tpu.compiler_version(), "seconds": line.seconds,
        "matmul_s": line.total(MATMUL), "cycles_s": timeline(module, machine, "cycles").seconds, "compile_s": took,
        **amounts_of.amounts(program, counted),
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
    from autoshard.calibrate.programs import PROGRAMS
    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.frontends.jax.function import trace

    rows, programs = load(), {}
    for row in rows:
        if row["program"] not in programs:
            step, specs, donated = PROGRAMS[row["program"]]()
            programs[row["program"]] = trace(step, *specs, donate_argnums=donated, name=row["program"]).program
        machine = place_mesh(load_profile(f"{row['chip']}@compiler"), {"x": 1})
        row |= amounts_of.amounts(programs[row["program"]], machine)
    write([{k: row[k] for k in COLUMNS} for row in rows])


def parts(row: Mapping[str, Any]) -> dict[str, float]:
    """Work -> its seconds at the peak rates (the memory's at `MEMORY` of its rate)."""
    from autoshard.costmodels import load_profile, place_mesh

    return amounts_of.parts(row, place_mesh(load_profile(row["chip"]), {"x": 1}), MEMORY)


def seconds(row: Mapping[str, Any], numbers: Mapping[str, float]) -> float:
    """Seconds of a program by the numbers."""
    return amounts_of.seconds(parts(row), numbers)


def fit(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Chip -> its numbers, those that agree best with the rows.

    Convolutions have theirs last, of all programs with convolutions; those with nothing else count there alone, since
    what is fused to convolutions would weigh more than in all other programs. One that is far off counts little.
    Matmuls of a higher precision have theirs last, too.
    """
    of_memory = ("matmul_memory", "sliced_memory", "cached_memory")
    most = {**dict.fromkeys(amounts_of.SHARES, MOST), **dict.fromkeys(of_memory, MEMORY)}
    measured = {
        (row["program"], row["chip"]): amounts_of.Measured(row["chip"], row["seconds"], parts(row)) for row in rows
    }
    whole = [one for (program, _), one in measured.items() if program not in ALONE]
    numbers = amounts_of.fit(whole, OWN, COMMON, most=most)
    for chip, known in numbers.items():
        for number in LAST:
            bearing = [one for one in measured.values() if one.chip == chip and one.parts[number] > 0]
            known[number] = _share_alone(number, bearing, known) if bearing else amounts_of.USUAL[number]
    return numbers


def _share_alone(number: str, programs: Sequence[amounts_of.Measured], known: Mapping[str, float]) -> float:
    from scipy.optimize import least_squares

    def errors(x: np.ndarray) -> np.ndarray:
        numbers = {**known, number: float(np.exp(x[0]))}
        return np.array([np.log(amounts_of.seconds(one.parts, numbers) / one.seconds) / 0.1 for one in programs])

    bounds = (np.log(0.02), np.log(MOST))
    return float(np.exp(least_squares(errors, [np.log(0.8)], bounds=bounds, loss="soft_l1", f_scale=0.5).x[0]))


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
    parser.add_argument("--chips", type=names_of(CHIPS, "chip"), default=",".join(CHIPS))
    parser.add_argument("--keep", type=Path, help="a folder for compiled texts; those there are not compiled again")
    parser.add_argument("--again", action="store_true", help="measure the rows that are there again")
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
    from autoshard.calibrate.programs import PROGRAMS

    if unknown := [name for name in arguments.names if name not in PROGRAMS]:
        parser.error(f"no program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    there = {(row["program"], row["chip"]) for row in load()}
    for name in arguments.names or PROGRAMS:
        for chip in arguments.chips:
            if ((name, chip) in there) != arguments.again:
                continue
            row, rows = measure(name, chip, arguments.keep), load()
            which = next((n for n, r in enumerate(rows) if (r["program"], r["chip"]) == (name, chip)), len(rows))
            rows[which : which + 1] = [row]
            write(rows)
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
