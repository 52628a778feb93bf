"""One process of a local group: joins the others, runs its share, and ends when its parent does.

`group` starts it as ``python -m autoshard.running.worker JSON``. Reports go as lines of JSON to an inherited pipe, so
that no output of the user's function can be taken for a report. Standard input tells whether the parent lives: it
closes when the parent ends, in whatever way, and then this process ends too. It never ends by itself.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoshard.errors import AutoshardError, InputError
from autoshard.running.program import Job, run

HEARTBEAT_TIMEOUT_S = 30
"""Seconds of silence after which a process that is alive (a stopped one, say) ends the group."""


@dataclass(frozen=True)
class WorkerArguments:
    """The arguments of a process. coordinator: ``host:port`` of process 0. reports: number of the pipe's descriptor."""

    plan_file: str
    steps: int | None
    seed: int | None
    coordinator: str
    processes: int
    process: int
    reports: int

    def to_json(self) -> str:
        """The arguments as the text that `main` reads."""
        return json.dumps(asdict(self))


def main(text: str) -> None:
    """Run this process's share of a plan and report it, then wait for the end of the parent. text:
    `WorkerArguments`.
    """
    arguments = WorkerArguments(**json.loads(text))
    watch = threading.Thread(target=_end_with_parent, daemon=True)
    watch.start()
    with os.fdopen(arguments.reports, "w", buffering=1, encoding="utf-8") as pipe:

        def report(record: Mapping[str, Any]) -> None:
            pipe.write(json.dumps(record) + "\n")

        try:
            _join(arguments)
            report({"joined": arguments.process})
            run(Job(arguments.plan_file, arguments.steps, arguments.seed), report)
            report({"done": True})
        except AutoshardError as error:
            report({"error": str(error), "exit_code": error.exit_code, "stage": "run"})
        except _JoinError as error:
            report({"error": str(error), "exit_code": None, "stage": "join"})
        except Exception as error:
            report({"error": f"{type(error).__name__}: {error}", "exit_code": None, "stage": "run"})
        # Wait for the parent: when a process ends by itself, the runtime fails all others, also those that are slower.
        watch.join()


class _JoinError(Exception):
    """The group could not be formed."""


def _join(given: WorkerArguments) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            given.coordinator,
            given.processes,
            given.process,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        )
    except Exception as error:
        raise _JoinError(f"{type(error).__name__}: {error}") from error
    if jax.process_count() != given.processes:
        raise InputError(f"JAX sees {jax.process_count()} processes, started were {given.processes}")


def _end_with_parent() -> None:
    try:
        while os.read(sys.stdin.fileno(), 1):
            pass
    finally:
        os._exit(1)  # without the shutdown of jax.distributed, which waits for processes that may be gone


if __name__ == "__main__":
    main(sys.argv[1])
