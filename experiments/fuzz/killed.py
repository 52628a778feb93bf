"""Commands as processes of their own that are killed at a random moment: files are whole or not there."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from judge import OLD, environment, malformed

if TYPE_CHECKING:
    from run import Tally

COMMANDS = (
    (("solve", "mlp.yaml", "-o", "out", "-q", "--time-limit", "5"), ("out/plan.json", "out/run.json"), 9.0),
    (("report", "plans/step/plan.json", "-o", "out.html"), ("out.html",), 4.0),
    (
        ("network", "solve", "networks/seven.json", "--output", "out.json", "--certificate", "c.cert"),
        ("out.json", "c.cert"),
        4.0,
    ),
    (("propagate", "matmul.mlir", "--output", "out.mlir"), ("out.mlir",), 2.0),
    (("specs", "plans/step/plan.json", "-o", "out.py"), ("out.py",), 3.0),
)
"""Command lines, the files they write, and about how many seconds they take."""
OFTEN = 4
"""Processes of one round."""
OWN = "autoshard/"
"""In the paths of a traceback of ours; Python that is interrupted while it begins has one of its own."""


def _heeds_interrupts() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would the processes started here."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def killed_while_writing(home: Path, seed: int, tally: "Tally") -> None:
    """Start some commands and end them in the middle."""
    rng = random.Random(seed)
    for number in range(OFTEN):
        args, outputs, usual_s = rng.choice(COMMANDS)
        how = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
        box = home / f"killed{seed}.{number}"
        shutil.copytree(home / "corpus", box)
        old = rng.random() < 0.5
        for output in outputs:
            if old:
                (box / output).parent.mkdir(exist_ok=True)
                (box / output).write_bytes(OLD)
        process = subprocess.Popen(
            [sys.executable, "-m", "autoshard", *args], cwd=box, env=environment(home), stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, preexec_fn=_heeds_interrupts,
        )  # fmt: skip
        time.sleep(rng.random() * usual_s)
        process.send_signal(how)
        name, told = f"killed:{seed}.{number}", [how.name, *args]
        try:
            _, wrong = process.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            process.kill()
            _, wrong = process.communicate()
            tally.fault(name, f"hang: {how.name} did not end the process", told)
        tally.codes[f"killed by {how.name}"][min(4, abs(process.returncode))] += 1
        if "Traceback" in wrong and OWN in wrong:
            tally.fault(name, f"traceback after {how.name}\n{wrong[-20_000:]}", told)
        for output in outputs:
            data = (box / output).read_bytes() if (box / output).exists() else OLD
            faults = malformed(output, data) if data != OLD else []
            for fault in faults if data else ["empty"]:
                tally.fault(name, f"half-written {output}: {fault}", told)
        shutil.rmtree(box)
