"""Predicted memory of library models beside what the TPU compiler of libtpu reports for their lowered programs.

    python experiments/memory/run.py plan            # schedules to plans/NAME.json.xz (CPU, seconds each)
    python experiments/memory/run.py compile         # truths.csv; needs libtpu (pip install 'jax[tpu]'), no TPU
    python experiments/memory/run.py table           # predictions beside truths, as Markdown
    python experiments/memory/run.py gpu             # these and more, compiled for GPUs (pip install 'autoshard[gpu]')

Names of programs may follow. One program compiles at a time, each in a process of its own, behind a lock file. The
plan is
lowered to one shard_map and compiled ahead of time for a TPU topology; `peak` is
`memory_analysis().peak_memory_in_bytes`,
`allocation` what the compiler reserves: parameters, outputs that take no parameter's place, and the preallocated heap
of its buffer assignment (dumped with --xla_dump_to). A program that the compiler refuses has peak "refused".
"""

import argparse
import csv
import fcntl
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from programs import CASES, GPU_CASES, Case  # noqa: E402

PLANS, TRUTHS = HERE / "plans", HERE / "truths.csv"
COLUMNS = ("name", "topology", "jax", "libtpu", "peak", "allocation", "sum", "seconds")


def traced_case(case: Case):
    """The case's train step, traced."""
    from autoshard.frontends.jax.function import trace
    from autoshard.models import build

    model = build(case.model, **case.options)
    donate = model.donate_argnums if case.donate else ()
    return model, trace(model.step, *model.specs, donate_argnums=donate, argnames=model.argnames, name=case.name)


def save(case: Case) -> None:
    """Plan a case and store what the prediction needs: program, mesh, schedule, and the hardware's name."""
    from autoshard.program.as_json import mesh_to_json, plain, program_to_json, schedule_to_json

    began = time.monotonic()
    model, traced = traced_case(case)
    schedule = schedule_of(case, model, traced, case.hardware)
    data = {
        "program": plain(program_to_json(traced.program)), "mesh": mesh_to_json(schedule.mesh),
        "schedule": schedule_to_json(schedule), "hardware": {"name": case.hardware},
    }  # fmt: skip
    PLANS.mkdir(exist_ok=True)
    text = json.dumps(data, separators=(",", ":"))
    (PLANS / f"{case.name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{case.name}: {predict(case.name) / 2**20:.0f} MiB, {time.monotonic() - began:.1f} s", flush=True)


def schedule_of(case: Case, model, traced, hardware: str):
    """The case's strategy, or the optimum, on a machine."""
    from autoshard.api import verbs as api
    from autoshard.planning import Problem, build_model
    from autoshard.search.baselines import price_baselines

    if case.strategy == "plan":
        return api.plan_traced(traced, mesh=case.mesh, hardware=hardware, memory_limit="none").schedule
    mesh, machine = api.placed(case.mesh, hardware)
    network = build_model(Problem.make(traced.program, mesh, machine))
    (priced,) = price_baselines(network, [case.strategy], model.logical_axes)
    if priced.assignment is None:
        raise SystemExit(f"{case.name}: {priced.cost.reason}")
    return network.schedule(priced.assignment)


def load(name: str):
    """(program, schedule, tile of the memory) of a stored case."""
    from autoshard.costmodels import load_profile
    from autoshard.program.as_json import mesh_from_json, program_from_json, schedule_from_json

    data = json.loads(lzma.decompress((PLANS / f"{name}.json.xz").read_bytes()))
    program = program_from_json(data["program"])
    schedule = schedule_from_json(data["schedule"], mesh_from_json(data["mesh"]), program)
    return program, schedule, load_profile(data["hardware"]["name"]).memory_tile


def predict(name: str) -> int:
    """Predicted peak of a stored case, bytes per device."""
    return peak_of(*load(name))


def peak_of(program, schedule, tile, rules: str | None = None) -> int:
    """Predicted peak of a schedule, bytes per device. rules: `memory_rules` of the machine's profile."""
    from autoshard.costs import fusion, liveness
    from autoshard.costs.memory import simulate

    return simulate(program, schedule, liveness.analyse(program, fusion.analyse(program, rules)), tile).peak_bytes


def structure(program) -> list[object]:
    """Everything of a program that a schedule refers to."""
    types = [(v.id, v.type.shape, v.type.dtype) for v in program.values]
    return [types, [(op.id, op.kind, op.operands, op.results) for op, _ in program.walk()], program.donated]


def compile_one(case: Case) -> None:
    """In a process of its own: prints one row as JSON."""
    import jax
    from jax.experimental import topologies
    from libtpu import __version__ as libtpu

    from autoshard.lowering.lower import lower

    model, traced = traced_case(case)
    program, schedule, _ = load(case.name)
    if structure(program) != structure(traced.program):
        raise SystemExit(f"{case.name}: what is stored is of another program than the library's now; run 'plan' again")
    devices = topologies.get_topology_desc(platform="tpu", topology_name=case.topology).devices
    traced = replace(traced, program=program)  # with the rules that the schedule was made under
    lowered = lower(traced, schedule).jit(devices=list(devices)).lower(*model.specs)
    row = {"name": case.name, "topology": case.topology, "jax": jax.__version__, "libtpu": libtpu}
    began = time.monotonic()
    try:
        stats = lowered.compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(str(error)[:1500], file=sys.stderr)
        row |= {"peak": "refused"}
    else:
        row["peak"] = stats.peak_memory_in_bytes
        row["sum"] = (
            stats.argument_size_in_bytes
            + stats.output_size_in_bytes
            - stats.alias_size_in_bytes
            + stats.temp_size_in_bytes
        )
    print("ROW " + json.dumps({**row, "seconds": round(time.monotonic() - began)}))


def allocation(folder: Path) -> int:
    """Bytes of the buffer assignment in main memory: parameters, other outputs, and the preallocated heap."""
    files = [
        p for p in folder.glob("*buffer-assignment.txt") if "train_step" in p.name or len(list(folder.glob("*"))) < 9
    ]
    text = max(files or folder.glob("*buffer-assignment.txt"), key=lambda p: p.stat().st_size).read_text()
    total = 0
    for line in text.splitlines():
        found = re.match(r"allocation \d+: size (\d+)(.*):", line)
        if not found or ("color" in line and not re.search(r"color 0\b", line)):
            continue
        rest = found[2]
        if "parameter" in rest or "maybe-live-out" in rest or "preallocated-temp" in rest:
            total += int(found[1])
    return total


def compile_case(case: Case) -> dict[str, object]:
    with open("/tmp/autoshard_libtpu.lock", "w") as lock, tempfile.TemporaryDirectory() as dump:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {
            **os.environ, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_ACCELERATOR_TYPE": "v5litepod-8", "XLA_FLAGS": f"--xla_dump_to={dump} --xla_dump_hlo_as_text=true",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, __file__, "compile-one", case.name],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        keep = os.environ.get("KEEP_DUMPS")
        if keep:
            folder = Path(keep) / case.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stderr.txt").write_text(done.stderr[-20000:])
            for path in Path(dump).glob("*"):
                if "buffer-assignment" in path.name or "after_opt" in path.name or "memory-usage" in path.name:
                    path.rename(folder / path.name)
            dump = str(folder)
        if not rows:
            raise SystemExit(f"{case.name}: the compiler ended with {done.returncode}:\n{done.stderr[-3000:]}")
        row = json.loads(rows[0])
        if row["peak"] != "refused":
            row["allocation"] = allocation(Path(dump))
        return row


def truths() -> dict[str, dict[str, str]]:
    if not TRUTHS.exists():
        return {}
    with TRUTHS.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def store(row: dict[str, object]) -> None:
    rows = {**truths(), str(row["name"]): {c: row.get(c, "") for c in COLUMNS}}
    order = {case.name: k for k, case in enumerate(CASES)}
    with TRUTHS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda r: order.get(str(r["name"]), 999)))


def table(cases: list[Case]) -> None:
    known = truths()
    print(
        "| program | strategy, slice | predicted MiB | peak MiB | allocated MiB | error % |\n|---|---|---|---|---|---|"
    )
    for case in cases:
        if case.name not in known:
            continue
        truth = known[case.name]
        predicted = predict(case.name)
        line = f"| {case.name} | {case.strategy}, {case.topology} | {predicted / 2**20:.0f} |"
        if truth["peak"] == "refused":
            print(f"{line} refused | | |")
            continue
        peak, allocated = int(truth["peak"]), int(truth["allocation"])
        print(
            f"{line} {peak / 2**20:.0f} | {allocated / 2**20:.0f} | {100 * (predicted / peak - 1):+.1f} |", flush=True
        )


def gpu_table(cases: list[Case]) -> None:
    """Plans on described GPUs (H100s for cases of TPUs): predictions beside the peak that XLA for GPUs reports."""
    from statistics import mean, median

    from autoshard.api import verbs as api
    from autoshard.errors import UnsupportedError
    from autoshard.lowering.lower import lower
    from autoshard.simulation import ahead, gpu

    ahead.prepare()
    machine = api.placed({"x": 1}, "h100")[1]
    if (why := ahead.compiler_for(machine).missing(machine)) is not None:
        raise SystemExit(why)
    print("| program | strategy, GPUs | predicted MiB | peak MiB | error % |\n|---|---|---|---|---|")
    off: dict[bool, list[float]] = {False: [], True: []}
    for case in cases:
        model, traced = traced_case(case)
        hardware = "h100" if case.topology else case.hardware
        schedule, machine = schedule_of(case, model, traced, hardware), api.placed(case.mesh, hardware)[1]
        predicted = peak_of(traced.program, schedule, machine.profile.memory_tile, machine.profile.memory_rules)
        devices = gpu.devices_of(machine)
        staged = lower(traced, schedule).jit(devices=devices).lower(*model.specs)
        line = f"| {case.name} | {case.strategy}, {len(devices)} {hardware} | {predicted / 2**20:.0f} |"
        try:
            peak = gpu.compiled(staged).peak_bytes
        except UnsupportedError as error:
            print(f"{line} refused: {str(error)[:80]} | |", flush=True)
            continue
        assert peak, "this JAX has no such figure"
        error = predicted / peak - 1
        off[not case.topology].append(error)
        print(f"{line} {peak / 2**20:.0f} | {100 * error:+.1f} |", flush=True)
    for what, of in (("of the TPU table", off[False]), ("for GPUs only", off[True])):
        if of:
            within = sum(abs(x) <= 0.15 for x in of)
            print(f"{len(of)} programs {what}: {within} within 15%, median {100 * median(map(abs, of)):.1f}%, ", end="")
            print(f"mean {100 * mean(of):+.1f}%, from {100 * min(of):+.1f}% to {100 * max(of):+.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plan", "compile", "compile-one", "table", "gpu"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    cases = (*CASES, *GPU_CASES) if arguments.what == "gpu" else CASES
    if unknown := set(arguments.names) - {c.name for c in cases}:
        parser.error(f"no program {min(unknown)!r}; there are {', '.join(c.name for c in cases)}")
    chosen = [c for c in cases if not arguments.names or c.name in arguments.names]
    for case in chosen:
        if arguments.what == "plan":
            save(case)
        elif arguments.what == "compile-one":
            compile_one(case)
        elif arguments.what == "compile":
            row = compile_case(case)
            store(row)
            print(row, flush=True)
    if arguments.what == "table":
        table(chosen)
    elif arguments.what == "gpu":
        gpu_table(chosen)


if __name__ == "__main__":
    main()
