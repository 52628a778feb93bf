"""One process of a local group: joins the others, runs its share, and ends when its parent does.

Started by `group` as ``python -m autoshard.running.worker JSON``. Reports go as lines of JSON to an inherited pipe,
so that what the user's function prints cannot be taken for one. Standard input is the parent's life: it ends when the
parent does, in whatever way, and then so does this process; it never ends by itself.
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
"""A process that is alive but says nothing for so long (a stopped one, say) ends the group."""


@dataclass(frozen=True)
class WorkerArguments:
    """What a process is told. coordinator: ``host:port`` of process 0. reports: number of the pipe's descriptor."""

    plan_file: str
    steps: int | None
    seed: int | None
    coordinator: str
    processes: int
    process: int
    reports: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(text: str) -> None:
    given = WorkerArguments(**json.loads(text))
    watch = threading.Thread(target=_end_with_parent, daemon=True)
    watch.start()
    with os.fdopen(given.reports, "w", buffering=1, encoding="utf-8") as pipe:

        def report(record: Mapping[str, Any]) -> None:
            pipe.write(json.dumps(record) + "\n")

        try:
            _join(given)
            report({"joined": given.process})
            run(Job(given.plan_file, given.steps, given.seed), report)
            report({"done": True})
        except AutoshardError as error:
            report({"error": str(error), "exit_code": error.exit_code, "stage": "run"})
        except _JoinError as error:
            report({"error": str(error), "exit_code": None, "stage": "join"})
        except Exception as error:
            report({"error": f"{type(error).__name__}: {error}", "exit_code": None, "stage": "run"})
        # Not one step further on its own: the runtime takes the end of one process for the failure of all others,
        # also of those that are only slower.
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
        os._exit(1)  # without the farewell of jax.distributed, which waits for processes that may be gone


if __name__ == "__main__":
    main(sys.argv[1])
