"""What the TPU compiler makes of the planned collectives: kinds, counts and bytes before and after.

    python experiments/tpu_collectives/run.py            # needs libtpu (pip install 'jax[tpu]'), no TPU; minutes
    python experiments/tpu_collectives/run.py NAME ...   # some programs, and the compiled text with --keep DIR

Each program is planned under a named strategy, lowered to its `shard_map` and compiled ahead of time for a TPU slice,
in a process of its own. Planned and lowered (StableHLO) collectives must be the same, one to one; the compiled text is
read for what remains. See README.md for how it is counted.
"""

import argparse
import csv
import fcntl
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]
TABLE = HERE / "collectives.csv"
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute")


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    options: dict[str, Any]
    mesh: dict[str, int]
    hardware: str
    topology: str
    strategy: str


_TF = {"layers": 2, "d_model": 1024, "d_ff": 4096, "heads": 8, "kv_heads": 8, "seq": 512, "vocab": 8192, "batch": 16}
_MOE = {**_TF, "d_ff": 2048, "experts": 8}
_MLP = {"inputs": 2048, "hidden": 4096, "outputs": 1024, "layers": 4, "batch": 8192}
_EIGHT, _GRID = {"data": 8}, {"data": 2, "model": 4}
CASES = (
    Case("mlp_data_v5e", "mlp", _MLP, _EIGHT, "tpu_v5e", "v5e:2x4", "data"),
    Case("mlp_fsdp_v5e", "mlp", _MLP, _EIGHT, "tpu_v5e", "v5e:2x4", "fsdp"),
    Case("mlp_fsdp_v5p", "mlp", _MLP, _EIGHT, "tpu_v5p", "v5p:2x2x2", "fsdp"),
    Case("mlp_tensor_v5e", "mlp", _MLP, {"model": 8}, "tpu_v5e", "v5e:2x4", "tensor"),
    Case("mlp_grid_v6e", "mlp", _MLP, _GRID, "tpu_v6e", "v6e:2x4", "fsdp+tensor"),
    Case("tf_scan_data_v5e", "transformer", _TF, _EIGHT, "tpu_v5e", "v5e:2x4", "data"),
    Case("tf_scan_fsdp_v5e", "transformer", _TF, _EIGHT, "tpu_v5e", "v5e:2x4", "fsdp"),
    Case("tf_unroll_grid_v5e", "transformer", {**_TF, "scan": False}, _GRID, "tpu_v5e", "v5e:2x4", "fsdp+tensor"),
    Case("moe_expert_v5e", "moe", _MOE, {"data": 2, "expert": 4}, "tpu_v5e", "v5e:2x4", "data+expert"),
)


def compile_one(case: Case, keep: str | None) -> None:
    """In a process of its own: prints one row as JSON."""
    from jax.experimental import topologies
    from libtpu import __version__ as libtpu

    from autoshard.api import verbs as api
    from autoshard.frontends.jax.function import trace
    from autoshard.lowering.collectives import planned_collectives
    from autoshard.lowering.lower import lower
    from autoshard.models import build
    from autoshard.planning import Problem, build_model
    from autoshard.search.baselines import price_baselines
    from autoshard.verify.runs.collectives import compare
    from autoshard.verify.runs.stablehlo import stablehlo_collectives

    model = build(case.model, **case.options)
    traced = trace(
        model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames, name=case.name
    )
    mesh, machine = api.placed(case.mesh, case.hardware)
    network = build_model(Problem.make(traced.program, mesh, machine))
    (priced,) = price_baselines(network, [case.strategy], model.logical_axes)
    if priced.assignment is None:
        raise SystemExit(f"{case.name}: {priced.cost.reason}")
    lowering = lower(traced, network.schedule(priced.assignment))
    devices = topologies.get_topology_desc(platform="tpu", topology_name=case.topology).devices
    lowered = lowering.jit(devices=list(devices)).lower(*model.specs)
    text = lowered.as_text()
    found = stablehlo_collectives(text)
    differences = compare(planned_collectives(traced.program, lowering.schedule), found, lowering.schedule.mesh)
    compiled = lowered.compile().as_text()
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        (Path(keep) / f"{case.name}.hlo").write_text(compiled)
    before: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for one in found:
        before[one.kind][0] += 1
        before[one.kind][1] += one.local_bytes
    row = {
        "name": case.name, "libtpu": libtpu, "differences": [str(d) for d in differences],
        "lowered": {kind: list(sums) for kind, sums in before.items()}, "compiled": tpu_collectives(compiled),
    }  # fmt: skip
    print("ROW " + json.dumps(row))


_OPCODE = re.compile(r" (all-reduce|reduce-scatter|all-gather|all-to-all|collective-permute)(?:-start)?\(([^)]*)\)")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_RESULT = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"(?P<type>pred|[a-z]+\d+\w*)\[(?P<shape>[\d,]*)\]")
_BITS = re.compile(r"\d+")


def tpu_collectives(text: str) -> dict[str, list[float]]:
    """kind -> operations, arrays they move, and bytes that one device gives to them; loop bodies once.

    A collective that is fused with work is printed in up to three computations (its start, the work, its done): those
    called by a fusion count only where they start one, or where they are the compiler's own all-reduce-scatter.
    """
    computations: dict[str, list[str]] = {}
    current = ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head and " = " not in line.split("{")[0]:
            current = head[1]
        computations.setdefault(current, []).append(line)
    fused = set(re.findall(r" fusion\(.*?calls=%?([\w.\-]+)", text))
    sums: dict[str, list[float]] = {}
    for name, lines in computations.items():
        scatters = "all-reduce-scatter" in name
        if name in fused and not scatters and not any("AsyncCollectiveStart" in line for line in lines):
            continue
        types = {m[1]: m[2].split(" ", 1)[0] for m in map(_RESULT.match, lines) if m}
        for line in lines:
            match = _OPCODE.search(line)
            if match is None:
                continue
            operands = re.sub(r"/\*.*?\*/", "", match[2]).split(",")
            given = [types.get(operand.strip().lstrip("%"), "") for operand in operands]
            arrays = [a for a in map(_ARRAY.match, given) if a]
            item = sums.setdefault(kind_of(match[1], scatters, 'op_name="' in line), [0, 0, 0.0])
            item[0] += 1
            item[1] += len(arrays)
            item[2] += sum(map(array_bytes, arrays))
    return sums


def kind_of(opcode: str, scatters: bool, labelled: bool) -> str:
    if opcode == "collective-permute":
        return "permute" if labelled else "permute (of the compiler)"
    if opcode == "all-reduce" and scatters:
        return "reduce_scatter"
    return opcode.replace("-", "_")


def array_bytes(array: re.Match[str]) -> float:
    bits = _BITS.search(array["type"])
    width = 1.0 if array["type"] == "pred" else int(bits[0]) / 8 if bits else 0.0
    return width * prod(int(n) for n in array["shape"].split(",") if n)


def compile_case(case: Case, keep: str | None) -> dict[str, Any]:
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    }  # fmt: skip
    with open("/tmp/autoshard_libtpu.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, __file__, "--one", case.name, *(["--keep", keep] if keep else [])],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        raise SystemExit(f"{case.name}: ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(rows[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", help="a folder for the compiled text")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = [c for c in CASES if not arguments.names or c.name in arguments.names]
    if arguments.one:
        compile_one(next(c for c in CASES if c.name == arguments.one), arguments.keep)
        return 0
    rows: list[dict[str, Any]] = []
    wrong = Counter[str]()
    for case in chosen:
        row = compile_case(case, arguments.keep)
        for text in row["differences"]:
            wrong[case.name] += 1
            print(f"{case.name}: {text}")
        for kind in sorted({*row["lowered"], *row["compiled"]}):
            count, sent = row["lowered"].get(kind, (0, 0.0))
            ops, arrays, after = row["compiled"].get(kind, (0, 0, 0.0))
            rows.append(
                {"program": case.name, "slice": case.topology, "kind": kind, "planned": count, "planned_MB": sent / 1e6}
                | {"compiled_ops": ops, "compiled_arrays": arrays, "compiled_MB": after / 1e6}
            )
            print("| " + " | ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in rows[-1].values()) + " |")
        sys.stdout.flush()
    if not arguments.names:
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
