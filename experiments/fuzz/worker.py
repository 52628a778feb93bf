"""A process that runs cases one after the other and says on standard output how each ended; `run.py` watches it."""

import argparse
import faulthandler
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from judge import run_case
from readers import FAMILIES, HEAVY, LIGHT

MEMORY = 20 << 30
"""Bytes of address space that the process may have: an input that asks for more is a fault."""
CLEAR_EVERY = 40


def drawn(seed: int, number: int, heavy: bool) -> str:
    """The family of a case."""
    group = HEAVY if heavy else LIGHT
    return random.Random(f"{seed} {heavy} {number}").choices(list(group), [weight for _, weight in group.values()])[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--heavy", action="store_true")
    parser.add_argument("--only", choices=sorted(FAMILIES))
    parser.add_argument("--keep", type=Path, help="Leave the files of the case here.")
    asked = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in range(asked.first, asked.first + asked.count):
        name = asked.only or drawn(asked.seed, number, asked.heavy)
        case = FAMILIES[name][0](random.Random(f"{asked.seed} {name} {number}"), asked.corpus)
        words = [a if len(a) < 200 else f"{a[:200]}..." for a in case.args]
        print(json.dumps({"begin": number, "family": name, "args": words}), file=answers)
        box = Path(tempfile.mkdtemp(prefix="fuzz."))
        outcome = run_case(case, box)
        if asked.keep is not None:
            shutil.copytree(box, asked.keep, dirs_exist_ok=True)
            print(outcome.stderr, file=sys.stderr)
        shutil.rmtree(box)
        said = {"end": number, "code": outcome.code, "faults": outcome.faults, "seconds": round(outcome.seconds, 2)}
        print(json.dumps(said), file=answers)
        if number % CLEAR_EVERY == 0:
            if "jax" in sys.modules:
                import jax

                jax.clear_caches()
            gc.collect()


if __name__ == "__main__":
    main()
