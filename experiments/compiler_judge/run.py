"""Plans and their rivals, compiled ahead of time for TPU slices and GPUs, and timed on the compiler's own schedule.

    python experiments/compiler_judge/run.py                  # every case that has no row yet; minutes a candidate
    python experiments/compiler_judge/run.py mlp_v5e_4x4 ...  # some of them
    python experiments/compiler_judge/run.py --report         # the tables of README.md from rows.csv
    python experiments/compiler_judge/run.py --prices         # the plans' own seconds again, nothing compiled
    python experiments/compiler_judge/run.py --rivals         # named strategies priced near ours, as constraints too
    python experiments/compiler_judge/run.py --again --keep DIR  # rows again, from compiled texts that DIR has
    python experiments/compiler_judge/run.py --gpu ...        # all of that on nodes of H100s, with rows_gpu.csv

Needs libtpu (``pip install 'autoshard[tpu]'``) and no TPU; for GPUs JAX's CUDA plugin (``autoshard[gpu]``), no GPU.
Candidates of a case: our plan under both objectives, as collectives written out, as constraints, and as nothing but
the shardings of its inputs and outputs; the plan that the calibrated machine (``tpu_v5e@compiler``, objective overlap)
chooses, the same three ways; named strategies written out; and XLA's partitioner with nothing but the shardings of
inputs and outputs of one of these (`Case.annotated`). Every candidate is priced on the plain and on the calibrated
machine. One candidate after another; rows are written as they come.
"""

import argparse
import csv
import hashlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cases import CASES, GPU_CASES, Case
from rivals import best_of_cases, near, with_rivals

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
ROWS = HERE / "rows.csv"
GPU_ROWS = HERE / "rows_gpu.csv"
COLUMNS: Sequence[str] = (
    "case", "candidate", "form", "apart", "serial_s", "overlap_s", "calibrated_s", "calibrated_overlap_s", "own_s",
    "expected_s", "cycles_s", "roofline_s", "matmul_s", "other_s", "exposed_s", "collectives_s", "links_by_kind",
    "waits_by_kind", "compile_s", "compiler", "reason",
)  # fmt: skip
OURS = ("ours (serial)", "ours (overlap)", "ours (calibrated)")
ENOUGH = 5
"""Candidates of a case, ours and rivals, from which on it says who is best."""
PRICES = ("serial_s", "overlap_s", "calibrated_s", "calibrated_overlap_s")
SAME = 1e-5
"""Plans whose prices on the plain machine differ by less are one plan; the table has six digits."""


def candidates(case: Case) -> Iterator[tuple[str, str]]:
    """(candidate, form) of a case."""
    for name in OURS:
        yield name, "explicit"
        yield name, "constraints"
        yield name, "shardings"
    for name in case.named:
        yield name, "explicit"
    yield case.annotated, "shardings"


def run(
    case: Case, wanted: list[tuple[str, str]], compiles: bool = True, keep: Path | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each candidate that is wanted. Equal schedules are compiled once; not compiles: prices only.

    keep: a folder of compiled texts by their programs; what is there is not compiled again.
    """
    from programs import program

    from autoshard.api import verbs as api
    from autoshard.api.targets import Target
    from autoshard.costs.apart import barriers
    from autoshard.costs.exposure import Exposure
    from autoshard.costs.price import price
    from autoshard.costs.pricing import StepPrices
    from autoshard.errors import AutoshardError
    from autoshard.frontends.jax.function import trace
    from autoshard.lowering.lower import lower
    from autoshard.plan_record import PLACED_FORMS
    from autoshard.planning import Problem, answer, build_model
    from autoshard.search.baselines import price_baselines
    from autoshard.simulation.ahead import compiler_for
    from autoshard.simulation.clock import COLLECTIVES, MATMUL, OTHER_WORK
    from autoshard.simulation.own import own_timeline
    from autoshard.simulation.scheduled import read_module
    from autoshard.simulation.timeline import timeline

    model = program(case.model, case.options)
    traced = trace(
        model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames, name=case.name
    )
    mesh, machine = api.placed(case.mesh, case.hardware)
    _, calibrated = api.placed(case.mesh, f"{case.hardware}@compiler")
    networks: dict[str, Any] = {}

    def network_of(name: str) -> Any:
        if name not in networks:
            on = calibrated if name == "ours (calibrated)" else machine
            objective = "serial" if name == "ours (serial)" else "overlap"
            networks[name] = build_model(Problem.make(traced.program, mesh, on).minimising(objective))
        return networks[name]

    def prices_of(schedule: Any, fusion: Any, form: str) -> dict[str, float]:
        """Seconds of a schedule, serial and waiting, on the plain and on the calibrated machine; on the latter also by
        our own scheduler, where it knows the form.
        """
        found: list[float] = []
        for on in (machine, calibrated):
            steps = StepPrices(on, schedule.mesh)
            cost = price(traced.program, schedule, fusion, steps)
            found += [cost.step_s, Exposure.of("overlap", traced.program, on).seconds(cost, steps)]
        prices: dict[str, float] = dict(zip(PRICES, found, strict=True))
        if form in PLACED_FORMS:
            plan: Any = SimpleNamespace(
                program=traced.program, schedule=schedule, machine=calibrated, cost=cost, trips=1
            )
            prices["own_s"] = own_timeline(plan, form).seconds
        return prices

    judge = compiler_for(machine)
    devices = judge.devices_of(machine) if compiles else []
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for name, form in wanted:
        row: dict[str, Any] = {"case": case.name, "candidate": name, "form": form}
        if compiles:
            row["compiler"] = judge.version()
        network = network_of(name if name in OURS else "ours (serial)")
        try:
            if name in OURS:
                schedule = answer(network).schedule
            else:
                (priced,) = price_baselines(network, [name], model.logical_axes)
                if priced.assignment is None:
                    yield {**row, "reason": priced.cost.reason}
                    continue
                schedule = network.schedule(priced.assignment)
            apart = barriers(traced.program, schedule, machine.profile) if form in PLACED_FORMS else frozenset[int]()
            row |= {"apart": len(apart), **prices_of(schedule, network.fusion, form)}
            if not compiles:
                yield row
                continue
            key = (repr((sorted(schedule.placements.items()), sorted(map(str, schedule.uses.items())))), form)
            if key not in known:
                began = time.monotonic()
                target = Target(form, lower(traced, schedule, apart=apart))
                text, kept = compiled_text(judge, target.staged(devices), keep)
                took: float | None = None if kept else time.monotonic() - began
                module = read_module(text)
                line = timeline(module, machine)
                known[key] = {
                    "expected_s": line.seconds,
                    "cycles_s": timeline(module, machine, "cycles").seconds if module.cycles_known else "",
                    "roofline_s": timeline(module, machine, "roofline").seconds,
                    "matmul_s": line.total(MATMUL), "other_s": line.total(OTHER_WORK), "exposed_s": line.exposed_s,
                    "collectives_s": sum(e.seconds * e.times for e in line.collectives()),
                    "links_by_kind": by_kind(
                        {k: sum(e.seconds * e.times for e in line.collectives() if e.kind == k) for k in COLLECTIVES}
                    ),
                    "waits_by_kind": by_kind(line.waits()), "compile_s": took,
                }  # fmt: skip
            yield {**row, **known[key]}
        except AutoshardError as error:
            yield {**row, "reason": str(error)[:200]}


def compiled_text(judge: Any, staged: Any, keep: Path | None) -> tuple[str, bool]:
    """What the compiler makes of a lowered program, and whether it made that before."""
    if keep is None:
        return judge.compiled(staged).text, False
    place = keep / f"{hashlib.sha256((judge.version() + staged.as_text()).encode()).hexdigest()[:32]}.txt"
    if kept := place.exists():
        return place.read_text(), kept
    text = judge.compiled(staged).text
    keep.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return text, kept


def by_kind(seconds: Mapping[str, float]) -> str:
    """Milliseconds by kind in a cell: ``all_gather=1.25 all_reduce=0.3``."""
    return " ".join(f"{kind}={1e3 * s:.4g}" for kind, s in sorted(seconds.items()) if s > 0)


def load(place: Path = ROWS) -> list[dict[str, str]]:
    """The rows so far."""
    if not place.exists():
        return []
    with place.open(newline="") as file:
        return [{**dict.fromkeys(COLUMNS, ""), **row} for row in csv.DictReader(file)]


def write(rows: Sequence[Mapping[str, Any]], place: Path = ROWS) -> None:
    """All rows, in the order of the cases."""
    order = {case.name: number for number, case in enumerate((*CASES, *GPU_CASES))}
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        for row in sorted(rows, key=lambda r: order.get(r["case"], len(order))):
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def with_row(rows: list[dict[str, str]], new: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows with another one: in the place of the former of this candidate, at the end where there is none."""
    mark = ("case", "candidate", "form")
    which = [n for n, row in enumerate(rows) if all(row[k] == new[k] for k in mark)]
    if which and new.get("compile_s", 0.0) is None:  # compiled before, in the time that the former row has
        new = {**new, "compile_s": rows[which[0]]["compile_s"]}
    return [new if n in which[:1] else row for n, row in enumerate(rows)] + ([] if which else [new])


def price_again(names: Sequence[str], place: Path = ROWS) -> None:
    """The plans' own seconds of the rows so far; a row goes whose candidate is another plan than was compiled."""
    for case in (*CASES, *GPU_CASES):
        wanted = [(r["candidate"], r["form"]) for r in load(place) if r["case"] == case.name]
        if not wanted or (names and case.name not in names):
            continue
        found = {(r["candidate"], r["form"]): r for r in run(case, wanted, compiles=False)}
        rows = []
        for row in load(place):  # another process may have added some meanwhile
            new = found.get((row["candidate"], row["form"])) if row["case"] == case.name else None
            if new and not is_of_the_same_plan(row, new):
                print(f"{case.name}: {row['candidate']} is another plan now; its {row['form']} is to be compiled again")
                continue
            row.update({k: f"{new[k]:.6g}" for k in (*PRICES, "apart", "own_s") if k in new} if new else {})
            rows.append(row)
        write(rows, place)
        print(case.name, flush=True)


def is_of_the_same_plan(row: Mapping[str, str], new: Mapping[str, Any]) -> bool:
    """Whether a plan found again is the one that was compiled: plain prices, which no calibration changes, and how many
    products are kept apart from their updates tell it.
    """
    if "apart" in new and int(row["apart"] or 0) != new["apart"]:
        return False
    return all(not row[k] or k not in new or abs(new[k] / float(row[k]) - 1) < SAME for k in ("serial_s", "overlap_s"))


def report(rows: list[dict[str, str]]) -> Iterator[str]:
    """Tables: every candidate, then how the plan's seconds agree with the compiler's timeline."""
    yield (
        "| case | candidate | form | plan, serial | plan, overlap | calibrated, serial | calibrated, overlap "
        "| timeline | cycles | roofline | waiting |"
    )
    yield "|---" * 11 + "|"
    for r in rows:
        if not r["expected_s"]:
            yield f"| {r['case']} | {r['candidate']} | {r['form']} | | | | | {r['reason'][:60]} | | | |"
            continue
        figures = [
            f"{float(r[k]) * 1e3:.2f}" if r[k] else "-"
            for k in (*PRICES, "expected_s", "cycles_s", "roofline_s", "exposed_s")
        ]
        yield "| " + " | ".join([r["case"], r["candidate"], r["form"], *figures]) + " |"
    yield ""
    done = [r for r in rows if r["expected_s"]]
    held_out = {case.name for case in CASES if case.held_out and not case.new}
    yield from agreement([r for r in done if r["form"] == "explicit"], "")
    yield from agreement([r for r in done if r["form"] == "explicit" and r["case"] in held_out], " of held-out cases")
    times = ((1, " of new held-out cases"), (2, " of newer held-out cases"), (3, " of the newest held-out cases"))
    for which, told in times:
        new = {case.name for case in CASES if case.new == which}
        yield from agreement([r for r in done if r["form"] == "explicit" and r["case"] in new], told)
    yield from forms(done)
    yield from of_calibration(done)
    yield from best_of_cases(done, OURS, ENOUGH)
    yield from with_rivals(done, OURS, ENOUGH)


def of_calibration(done: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The plan that the calibrated machine chooses beside those of the plain one, all written out."""
    found: dict[str, dict[str, float]] = {}
    for row in done:
        if row["candidate"] in OURS and row["form"] == "explicit":
            found.setdefault(row["case"], {})[row["candidate"]] = float(row["expected_s"])
    cases = {case: by for case, by in found.items() if len(by) == len(OURS)}
    for name in OURS[:2]:
        beside = {case: by[OURS[2]] / by[name] - 1 for case, by in cases.items()}
        quicker, slower = ([c for c, r in beside.items() if r < -0.02], [c for c, r in beside.items() if r > 0.02])
        told = ", ".join(f"{c} {beside[c]:+.0%}" for c in (*quicker, *slower))
        yield (
            f"- written out, {OURS[2]} beside {name}: of {len(cases)} cases {len(quicker)} quicker and {len(slower)} "
            f"slower by more than 2%{f' ({told})' if told else ''}"
        )


def agreement(rows: Sequence[Mapping[str, str]], which: str) -> Iterator[str]:
    """How the seconds of plans agree with the compiler's timeline."""
    if not rows:
        return
    for key, label in zip(PRICES, ("serial", "overlap", "calibrated serial", "calibrated overlap"), strict=True):
        off = [abs(float(r[key]) / float(r["expected_s"]) - 1) for r in rows]
        pairs = right = 0
        for case in {r["case"] for r in rows}:
            mine = [r for r in rows if r["case"] == case]
            for i, a in enumerate(mine):
                for b in mine[:i]:
                    found = float(a["expected_s"]) - float(b["expected_s"])
                    if abs(found) > 0.02 * float(a["expected_s"]):
                        pairs += 1
                        right += (float(a[key]) - float(b[key])) * found > 0
        near = sum(x <= 0.2 for x in off)
        yield (
            f"- plan's {label} seconds{which} against the timeline: {statistics.median(off):.0%} off in the median, "
            f"{max(off):.0%} at most, {near} of {len(off)} within 20%; {right} of {pairs} pairs of candidates of a "
            "case in the same order"
        )


def forms(done: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Plans of which written out and as constraints differ: which is quicker, and which our own scheduler takes."""
    plans: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
    for row in done:
        if row["own_s"]:
            plans.setdefault((row["case"], *(row[k] for k in PRICES)), {})[row["form"]] = row
    both = [(key[0], by) for key, by in plans.items() if len(by) == 2]
    differ = right = 0
    told: dict[str, list[str]] = {}
    for case, by in both:
        explicit, constraints = (float(by[form]["expected_s"]) for form in ("explicit", "constraints"))
        if abs(constraints / explicit - 1) <= 0.02:
            continue
        own = [float(by[form]["own_s"]) for form in ("explicit", "constraints")]
        takes = "constraints" if own[1] < 0.995 * own[0] else "explicit"
        differ += 1
        right += (takes == "constraints") == (constraints < explicit)
        name = by["explicit"]["candidate"]
        told.setdefault(case, []).append(f"{name} {1e3 * explicit:.2f} and {1e3 * constraints:.2f} ({takes})")
    for case, words in told.items():
        yield f"- {case}, ms written out and as constraints (what our own scheduler takes): {', '.join(words)}"
    yield (
        f"- of {len(both)} plans compiled in both forms {differ} differ by more than 2%; our own scheduler takes the "
        f"quicker form of {right} of these"
    )


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--prices", action="store_true")
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", help="some candidates: 'fsdp,ours (serial)'")
    parser.add_argument("--forms", help="some forms: 'explicit,constraints'")
    parser.add_argument("--keep", type=Path, help="a folder for compiled texts; those there are not compiled again")
    parser.add_argument("--again", action="store_true", help="time the rows that are there again")
    arguments = parser.parse_args()
    place = GPU_ROWS if arguments.gpu else ROWS
    cases = GPU_CASES if arguments.gpu else CASES
    known = {"case": {case.name for case in cases}}
    known["candidate"], known["form"] = map(set, zip(*(c for case in cases for c in candidates(case)), strict=True))
    asked_for = {"case": arguments.names, "candidate": _listed(arguments.only), "form": _listed(arguments.forms)}
    for what, names in asked_for.items():
        if unknown := [name for name in names if name not in known[what]]:
            parser.error(f"no {what} {unknown[0]!r}; there are {', '.join(sorted(known[what]))}")
    if arguments.report:
        print("\n".join(report(load(place))))
        return 0
    from autoshard.simulation.ahead import prepare

    prepare()
    if arguments.prices:
        price_again(arguments.names, place)
        return 0
    there = {(r["case"], r["candidate"], r["form"]) for r in load(place)}
    for case in cases:
        if arguments.names and case.name not in arguments.names:
            continue
        asked = candidates(case)
        if arguments.rivals:
            asked = ((name, "constraints") for name in near(load(place), case.name, OURS) if name in case.named)
        wanted = [c for c in asked if ((case.name, *c) in there) == arguments.again]
        if arguments.only:
            wanted = [c for c in wanted if c[0] in asked_for["candidate"]]
        if arguments.forms:
            wanted = [c for c in wanted if c[1] in asked_for["form"]]
        for row in run(case, wanted, keep=arguments.keep) if wanted else ():
            write(with_row(load(place), row), place)
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
