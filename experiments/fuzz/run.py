"""Bad inputs of every kind: no traceback, no hang, no half-written file, exit codes as documented.

    nice -n 10 python experiments/fuzz/run.py [--seconds 3600] [--seed 0]
    python experiments/fuzz/run.py --again plan:123 --seed 0     # one case again; its files stay in fuzz_case/

Good inputs (corpus.py) are changed at random (mutate.py, readers.py, artifacts.py) and handed to the command line,
mostly within one process, some as processes that are interrupted or killed while they write (killed.py). A case is
known by its family, its number and the seed. Faults are printed as they are found, and the table of README.md at the
end; exit code 1 where there is one.
"""

import argparse
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from judge import environment
from killed import killed_while_writing

HERE = Path(__file__).resolve().parent

BATCH = {True: 250, False: 400}
"""Cases of a process, with and without JAX: then a new one begins."""
HANG_S, HANG_CPU_S = 400.0, 120.0
"""Seconds, and CPU seconds, of one case after which its process is ended: a hang."""
LONG_S = 60.0
"""Seconds of a case from which on it is printed, with its CPU seconds: what waited, what worked?"""
KILLED_EVERY = 3
"""After so many batches a few processes are killed while they write."""


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+")


class Tally:
    """What was run, and every kind of fault with the first case that has it."""

    def __init__(self) -> None:
        self.codes: dict[str, Counter[int]] = defaultdict(Counter)
        self.faults: dict[str, list[str]] = {}
        self.longest: tuple[float, str] = (0.0, "")

    def fault(self, name: str, fault: str, args: list[str]) -> None:
        """Print a fault that is the first of its kind."""
        kind = _QUOTED.sub("'...'", fault.splitlines()[0])[:200]
        self.faults.setdefault(kind, []).append(name)
        if len(self.faults[kind]) == 1:
            print(f"FAULT {name} {args}\n{fault}\n", flush=True)

    def table(self, seconds: float) -> str:
        """The table of README.md."""
        lines = ["| family | inputs | exit 0 | 1 | 2 | 3 | 4 |", "| --- | --- | --- | --- | --- | --- | --- |"]
        for family in sorted(self.codes):
            codes = self.codes[family]
            lines.append(f"| {family} | {codes.total():,} | " + " | ".join(f"{codes[c]:,}" for c in range(5)) + " |")
        total = sum(codes.total() for codes in self.codes.values())
        lines += ["", f"inputs: {total:,} in {seconds:.0f} s; the longest took {self.longest[0]} s ({self.longest[1]})"]
        lines += [f"kinds of faults: {len(self.faults)}"]
        lines += [f"- {len(names)} times, first {names[0]}: {kind}" for kind, names in self.faults.items()]
        return "\n".join(lines)


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used, with its children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def batch(arguments: list[str], home: Path, until: float, tally: Tally) -> int:
    """Run a batch of cases in a process of its own; the number of the case after the last."""
    log = (home / "log").open("a+")
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "worker.py"), str(home / "corpus"), *arguments],
        stdout=subprocess.PIPE, stderr=log, env=environment(home), cwd=home, text=True,
    )  # fmt: skip
    assert worker.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(worker.stdout, selectors.EVENT_READ)
    now: dict[str, Any] = {}
    began, cpu, last = time.monotonic(), 0.0, int(arguments[arguments.index("--first") + 1])
    while True:
        if not selector.select(timeout=1.0):
            if worker.poll() is not None:
                break
            if now and (time.monotonic() - began > HANG_S or cpu_seconds(worker.pid) - cpu > HANG_CPU_S):
                worker.send_signal(signal.SIGUSR1)  # where it hangs goes to the log
                time.sleep(1.0)
                worker.kill()
                tally.fault(f"{now['family']}:{now['begin']}", f"hang: {now['args']}", now["args"])
                last = now["begin"] + 1
                now = {}
            continue
        line = worker.stdout.readline()
        if not line:
            break
        said = json.loads(line)
        if "begin" in said:
            now, began, cpu = said, time.monotonic(), cpu_seconds(worker.pid)
            continue
        name = f"{now['family']}:{now['begin']}"
        tally.codes[now["family"]][said["code"]] += 1
        tally.longest = max(tally.longest, (said["seconds"], name))
        if said["seconds"] > LONG_S:
            used = cpu_seconds(worker.pid) - cpu
            print(f"LONG {name} {said['seconds']} s, {used:.0f} of CPU, exit {said['code']}: {now['args']}", flush=True)
        for fault in said["faults"]:
            tally.fault(name, fault, now["args"])
        last, now = said["end"] + 1, {}
        if time.monotonic() > until:
            worker.kill()
            break
    code = worker.wait()
    if now and time.monotonic() <= until:
        log.seek(max(0, log.tell() - 3000))
        tally.fault(f"{now['family']}:{now['begin']}", f"the process ended ({code})\n{log.read()}", now["args"])
        last = now["begin"] + 1
    log.close()
    return last


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", help="A case by family and number, plan:123.")
    parser.add_argument("--only", help="A family.")
    asked = parser.parse_args()
    if asked.only:
        from readers import FAMILIES  # which the workers import

        if asked.only not in FAMILIES:
            parser.error(f"no family {asked.only!r}; there are {', '.join(sorted(FAMILIES))}")
    with tempfile.TemporaryDirectory(prefix="autoshard-fuzz.") as folder:
        home = Path(folder)
        subprocess.run(
            [sys.executable, str(HERE / "corpus.py"), str(home / "corpus")], env=environment(home), check=True
        )
        if asked.again:
            family, _, number = asked.again.partition(":")
            again = [
                "--seed",
                str(asked.seed),
                "--only",
                family,
                "--first",
                number,
                "--keep",
                str(Path("fuzz_case").resolve()),
            ]
            return subprocess.run(
                [sys.executable, str(HERE / "worker.py"), str(home / "corpus"), *again], env=environment(home), cwd=home
            ).returncode
        tally, began, turn = Tally(), time.monotonic(), 0
        until = began + asked.seconds
        first = {True: 0, False: 0}
        while time.monotonic() < until:
            heavy = turn % 2 == 0
            more = ["--only", asked.only] if asked.only else ["--heavy"] * heavy
            arguments = ["--seed", str(asked.seed), "--first", str(first[heavy]), "--count", str(BATCH[heavy]), *more]
            first[heavy] = batch(arguments, home, until, tally)
            turn += 1
            if turn % KILLED_EVERY == 0 and time.monotonic() < until:
                killed_while_writing(home, asked.seed * 1000 + turn, tally)
            print(
                f"{time.monotonic() - began:.0f} s: {sum(c.total() for c in tally.codes.values())} inputs", flush=True
            )
        print(tally.table(time.monotonic() - began))
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
