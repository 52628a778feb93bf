"""Programs by others, unmodified: planned, verified in all respects, and run for three steps of a loop on eight
simulated devices.

Their packages are no dependencies of autoshard: install them beside it, see the README of this folder.

    python experiments/third_party/run.py [NAME ...] [--meshes 8,2x4] [--seconds 900]
    python experiments/third_party/run.py --report       # the table of the README, from results.json

The programs of a file share a process, and so do those that are named. Writes results.json; exits with 1 if a program
could not be planned, a check of it failed, or was not done for another reason than outputs which the program itself
does not determine. Programs whose package is missing are named.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
MESHES = {"8": {"data": 8}, "2x4": {"data": 2, "model": 4}}
ENVIRONMENT = {
    # programs this small take longer to compile than to run: no optimization by LLVM, and what is compiled is kept
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
    "JAX_COMPILATION_CACHE_DIR": tempfile.gettempdir() + "/autoshard-third-party",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "DECOUPLE_GCLOUD": "TRUE",  # MaxText without Google Cloud
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "EQX_ON_ERROR": "nan",  # docs/programs.md: checks of equinox are effects
}


def several(names: list[str], meshes: list[str], out: Path) -> int:
    """In a process of its own: a line for each program and mesh, written to a file as they end."""
    import jax
    from judge import judge
    from programs import PROGRAMS

    with out.open("w") as lines:
        for name in names:
            made = None
            jax.clear_caches()
            for mesh in meshes:
                row: dict[str, Any] = {"program": name, "mesh": MESHES[mesh]}
                try:
                    made = made or PROGRAMS[name].make()
                    row = judge(PROGRAMS[name], made, MESHES[mesh])
                except ImportError as error:
                    row["missing"] = str(error)
                except Exception as error:  # a row for whatever goes wrong: that is what is looked for
                    place = "".join(traceback.format_exception(error)[-2:])[-1200:]
                    row["error"] = f"{type(error).__name__}: {str(error)[:1200]}"
                    row["place"] = place
                print(json.dumps(row), file=lines, flush=True)
    return 0


def rows_of(names: list[str], meshes: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of programs that share a process, as they end."""
    expected = [(name, mesh) for name in names for mesh in meshes]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [sys.executable, str(HERE / "run.py"), "--several", str(out), *names, "--meshes", ",".join(meshes)]
        with (Path(folder) / "said").open("w+") as said:
            process = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=said, stderr=said)
            began, given = time.monotonic(), 0
            while given < len(expected):
                ended = process.poll() is not None
                lines = out.read_text().splitlines() if out.exists() else []
                for line in lines[given:]:
                    yield json.loads(line)
                    given, began = given + 1, time.monotonic()
                late = time.monotonic() - began > seconds
                if given < len(expected) and (ended or late):
                    process.kill()
                    status = f"stopped after {seconds:g} s" if late else f"ended with status {process.wait()}"
                    name, mesh = expected[given]
                    tail = (Path(folder) / "said").read_text()[-800:]
                    yield {"program": name, "mesh": MESHES[mesh], "error": f"the process {status}: {tail}"}
                    rest = [n for n, _ in expected[given + 1 :] if n != name]
                    yield from rows_of(list(dict.fromkeys(rest)), meshes, seconds) if rest else ()
                    return
                time.sleep(1)
            process.wait()


def is_right(row: dict[str, Any]) -> bool:
    """Planned, all checks green and three steps equal, but for values that the program itself does not determine."""
    if "error" in row:
        return False
    wrong = {name: status for name, status in row["checks"].items() if status != "ok"}
    vague = all(status == "not done" for status in wrong.values()) and "not determined" in " ".join(row["lines"])
    return (not wrong or (vague and len(wrong) == 1)) and not row["three_steps"]["wrong"]


def kept_rows() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def _by_file(names: list[str], programs: Any) -> list[list[str]]:
    return [list(group) for _, group in groupby(names, key=lambda name: programs[name].make.__module__)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of programs/; all if none is given")
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--seconds", type=float, default=900.0, help="limit of one row")
    parser.add_argument("--report", action="store_true", help="write the tables of the README, run nothing")
    parser.add_argument("--several", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    meshes = asked.meshes
    if asked.several:
        return several(asked.names, meshes, asked.several)
    from programs import PROGRAMS

    if asked.report:
        from report import report, written

        words = {name: listed.words for name, listed in PROGRAMS.items()}
        written(HERE / "README.md", report(kept_rows(), words, is_right))
        return 0

    if unknown := [name for name in asked.names if name not in PROGRAMS]:
        parser.error(f"no program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    order, bad = list(PROGRAMS), 0
    groups = [asked.names] if asked.names else _by_file(order, PROGRAMS)
    for group in groups:
        for row in rows_of(group, meshes, asked.seconds):
            if "missing" in row:
                print(f"{row['program']}: not run, {row['missing']}", flush=True)
                continue
            bad += not is_right(row)
            kept = {(r["program"], str(r["mesh"])): r for r in kept_rows() if r["program"] in PROGRAMS}
            kept[row["program"], str(row["mesh"])] = row
            ordered = sorted(kept.values(), key=lambda r: (order.index(r["program"]), len(r["mesh"])))
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
            print(json.dumps(row), "" if is_right(row) else "<-- WRONG", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
