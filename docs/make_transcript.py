"""Write docs/transcript.md: a newcomer's first minutes, every command as it was run with what it printed.

    python docs/make_transcript.py [--python python3.11]

Makes a fresh folder and a fresh virtual environment, installs the working tree with pip, and runs the commands below in
a shell. Needs a package index for the dependencies.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "transcript.md"
LONGEST = 40
"""Lines shown of what one command printed; the middle of more is left out."""


class Step(NamedTuple):
    """Commands of a shell, the words before them, and the exit code that they end with."""

    words: str
    commands: str
    code: int = 0


TRAIN = """\
cat > train.py <<'END'
import jax
import jax.numpy as jnp

def loss(params, x, y):
    hidden = jax.nn.gelu(x @ params["up"])
    return jnp.mean((hidden @ params["down"] - y) ** 2)

def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value
END"""

MINE = """\
cat > mine.yaml <<'END'
function: train:step
args:
  params: {up: "float32[1024,4096]", down: "float32[4096,1024]"}
  x: float32[2048,1024]
  y: float32[2048,1024]
donate: [params]
mesh: {data: 4, model: 2}
hardware: tpu_v5e
pins: {x: '[{"data"}, {}]'}
memory_limit: 90%
END"""

STEPS = (
    Step("A fresh environment, and the package.", "python3 -m venv .venv && . .venv/bin/activate"),
    Step("", "pip install --quiet ../autoshard-source"),
    Step("A config to begin with, and its plan. The first run compiles the solver, once.", "autoshard init"),
    Step("", "autoshard solve quickstart.yaml"),
    Step("The tables of the plan.", "autoshard show out/quickstart/plan.json inputs"),
    Step("A train step of one's own.", TRAIN),
    Step("", "autoshard init --function train:step -o frame.yaml && cat frame.yaml"),
    Step("The frame filled in.", MINE),
    Step("", "autoshard solve mine.yaml"),
    Step("Mistakes are told before any work.", "autoshard solve mine.yaml hardwear=h100 mesh.model=two", 2),
    Step("", "autoshard solve mine.yaml hardware=h10 'pins={z: \"[{}]\"}'", 2),
    Step("", "autoshard solve mine.yaml memory_limit=1MiB", 3),
    Step("Is it right?", "autoshard verify out/mine/plan.json"),
    Step("The shardings to take away, and a page to look at.", "autoshard specs out/mine/plan.json -o shardings.py"),
    Step("", "cat shardings.py"),
    Step("", "autoshard report out/mine/plan.json -o report.html && ls -sh report.html"),
)


def run(step: Step, folder: Path, environment: dict[str, str]) -> tuple[str, float]:
    """What a step printed, and its seconds. Ends the script where its exit code is another one."""
    began = time.monotonic()
    activate = ". .venv/bin/activate 2>/dev/null; " if (folder / ".venv/bin/activate").exists() else ""
    done = subprocess.run(
        ["bash", "-c", activate + step.commands], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != step.code:
        raise SystemExit(f"{step.commands}\nended with {done.returncode}:\n{done.stdout}")
    said = "\n".join(line.rstrip() for line in done.stdout.splitlines() if not line.startswith("WARNING:"))
    return re.sub(r"\n{2,}", "\n\n", said).strip("\n"), time.monotonic() - began


def shown(said: str) -> list[str]:
    """The lines of an output that the page has."""
    lines = said.splitlines()
    if len(lines) <= LONGEST:
        return lines
    half = LONGEST // 2
    return [*lines[:half], f"... ({len(lines) - 2 * half} lines)", *lines[-half:]]


def page(python: str) -> str:
    """The page: all steps, run now."""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }
    lines = []
    with tempfile.TemporaryDirectory(prefix="autoshard-transcript.") as made:
        source, folder = Path(made) / "autoshard-source", Path(made) / "first"
        environment |= {"COLUMNS": "80", "XDG_STATE_HOME": f"{made}/state", "XDG_CACHE_HOME": f"{made}/cache"}
        source.mkdir()
        folder.mkdir()
        (Path(made) / "bin").mkdir()
        (Path(made) / "bin/python3").symlink_to(Path(python).resolve())
        environment["PATH"] = f"{made}/bin:{environment['PATH']}"
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        total, cpu = 0.0, sum(os.times()[2:4])
        for step in STEPS:
            said, seconds = run(step, folder, environment)
            total += seconds
            sys.stderr.write(f"{total:.0f} s: {step.commands.splitlines()[0]}\n")
            told = f"({seconds:.0f} s)" + (f" exit code {step.code}" if step.code else "")
            lines += [step.words, ""] if step.words else []
            lines += [
                "```console",
                *(f"$ {line}" if not k else line for k, line in enumerate(step.commands.split("\n"))),
            ]
            lines += [*shown(said.replace(made, "~")), "```", "", told, ""]
        cpu = sum(os.times()[2:4]) - cpu
    version = subprocess.run([python, "-V"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    head = [
        "# A newcomer's transcript",
        "",
        "<!-- made by docs/make_transcript.py -->",
        "",
        f"Every command of a first session, as it was run on a machine without autoshard ({version}, {os.cpu_count()} "
        f"cores, {platform.system()} {platform.machine()}),",
        f"with what it printed and how long it took: {total / 60:.1f} minutes in all, {cpu / 60:.1f} of CPU (load "
        f"average {os.getloadavg()[1]:.0f}). `python docs/make_transcript.py` runs it again.",
        "",
    ]
    return "\n".join([*head, *lines]).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="The Python that makes the fresh environment.")
    PAGE.write_text(page(parser.parse_args().python), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
