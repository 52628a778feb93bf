"""toulbar2 as an exact engine for what is small after reduction (soft arc consistency, branch and bound).

Runs in a process of its own (`toulbar2_worker.py`). Effort is a number of backtracks, so that answers do
not depend on the machine; the wall clock only guards. Where `pytoulbar2` is not installed `available()` is False.
"""

import contextlib
import importlib.util
import math
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoshard import interrupts
from autoshard.solver.work import FORBIDDEN_FROM

LARGEST_LIMIT = 2**60
"""The largest limit of a memory row that toulbar2 is given: it adds amounts up in 64-bit integers."""
LONGEST_WAIT_S = 3600.0
"""The longest single wait for the worker: the system calls take no infinite one."""
MOST_SECONDS = 1e6
"""The longest time limit that toulbar2 is given: it takes no infinite one."""
ROUNDING = 1e-6
"""toulbar2 tells its bound in floating point; costs are whole, so that this much more rounds up to the same number."""
HEADER_BYTES = 8
"""Bytes before an answer that hold its length."""
LARGEST_COST = 2**50
"""The largest cost that toulbar2 is given: it takes costs as doubles, in which this one is exact."""


@dataclass(frozen=True, slots=True)
class Row:
    """A limit on a sum: per node of `scope` amounts per state; their sum is at most `limit`."""

    scope: tuple[int, ...]
    amounts: tuple[tuple[int, ...], ...]
    limit: int

    def holds(self, chosen: Sequence[int]) -> bool:
        """Whether an assignment of all nodes is within the limit."""
        return sum(own[chosen[node]] for node, own in zip(self.scope, self.amounts, strict=True)) <= self.limit


def told_apart(row: Row) -> Row:
    """The same row with no amount twice at one node.

    pytoulbar2 1.4.0.1 groups states of equal amounts; when the upper bound rules one of them out it forgets the
    others of its group too, and calls complete what is not (tests/solver/test_engines_word.py has four variables that
    show it). Amounts are scaled by more than all that is then added to tell them apart, and so is the limit.
    """
    scale = 1 + sum(len(own) - 1 for own in row.amounts)
    amounts = tuple(tuple(scale * a + k for k, a in enumerate(own)) for own in row.amounts)
    return Row(row.scope, amounts, scale * row.limit + scale - 1)


@dataclass(frozen=True, slots=True)
class Exact:
    """What an engine found.

    assignment: the best below the upper bound, or None. lower: its bound. complete: whether the search ended.
    """

    assignment: tuple[int, ...] | None
    lower: int
    complete: bool
    backtracks: int
    timed_out: bool


def available() -> bool:
    """Whether this machine can run toulbar2."""
    return os.name == "posix" and importlib.util.find_spec("pytoulbar2") is not None


class _Server:
    def __init__(self) -> None:
        worker = Path(__file__).with_name("toulbar2_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(worker)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.owner = os.getpid()

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def kill(self) -> None:
        if self.owner != os.getpid():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def ask(self, job: dict, deadline: float) -> dict | None:
        """The worker's answer to a job; None where the deadline passed: the worker must then be ended."""
        blob = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(struct.pack("<q", len(blob)))
            self.process.stdin.write(blob)
            self.process.stdin.flush()
            del blob
            header = self._read(HEADER_BYTES, deadline)
            if header is None:
                return None
            body = self._read(struct.unpack("<q", header)[0], deadline)
            return None if body is None else pickle.loads(body)
        except BrokenPipeError:
            return {"error": "the toulbar2 process ended"}

    def _read(self, count: int, deadline: float) -> bytes | None:
        out = b""
        stream = self.process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while len(out) < count:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(min(left, LONGEST_WAIT_S)):
                    if time.monotonic() >= deadline:
                        return None
                    continue
                part = os.read(stream.fileno(), count - len(out))
                if not part:
                    raise BrokenPipeError
                out += part
        return out


MOST_IDLE = 4
"""Workers that wait for their next job, at most; further ones end with theirs."""
_idle: list[_Server] = []
_busy: list[_Server] = []


def _close() -> None:
    for server in (*_idle, *_busy):
        server.kill()


interrupts.at_end(_close)


def _asked(job: dict, seconds: float) -> dict | None:
    """The answer of a worker that has no other job, since several threads may search at a time; None after so long."""
    server = None
    with contextlib.suppress(IndexError):
        while server is None:
            waiting = _idle.pop()
            if waiting.alive():
                server = waiting
            else:
                waiting.kill()
    server = server or _Server()
    _busy.append(server)
    answer: dict | None = None
    try:
        answer = server.ask(job, time.monotonic() + seconds)
    finally:
        if answer is None or len(_idle) >= MOST_IDLE:  # out of time, or Ctrl-C: the child must not go on
            server.kill()
        else:
            _idle.append(server)
        _busy.remove(server)
    return answer


def solve_exact(
    unary: Sequence[np.ndarray],
    edges: Sequence[tuple[int, int, np.ndarray]],
    *,
    upper: int | None,
    rows: Sequence[Row] = (),
    backtracks: int = 100_000,
    seconds: float = 3600.0,
    vac: int = 0,
) -> Exact | None:
    """Minimise the sum of costs under the rows, looking only for assignments cheaper than `upper`.

    Costs are int64 with `FORBIDDEN` entries. Complete without an assignment means: none is cheaper than `upper`
    (or none is feasible when that is None). None when the problem is out of the library's range or it failed.
    """
    if any((costs >= FORBIDDEN_FROM).all() for costs in [*unary, *(t for _, _, t in edges)]):
        return Exact(None, 0 if upper is None else upper, True, 0, False)
    low = sum(int(c.min()) for c in unary) + sum(int(t.min()) for _, _, t in edges)
    high = low
    for costs in [*unary, *(t for _, _, t in edges)]:
        finite = costs[costs < FORBIDDEN_FROM]
        high += int(finite.max(initial=int(costs.min()))) - int(costs.min())
    # relative to the sum of minima, anything at or above `top` is as good as forbidden
    top = (high if upper is None else min(upper - 1, high)) - low + 1
    if top <= 0:
        return Exact(None, low if upper is None else upper, True, 0, False)
    if top > LARGEST_COST or any(told_apart(row).limit > LARGEST_LIMIT for row in rows):
        return None

    def shifted(costs: np.ndarray) -> np.ndarray:
        return np.minimum(costs - costs.min(), top).astype(np.float64)

    job = {
        "sizes": [len(c) for c in unary],
        "unary": [(i, shifted(c)) for i, c in enumerate(unary)],
        "binary": [(i, j, shifted(t)) for i, j, t in edges],
        "rows": [(row.scope, row.amounts, row.limit) for row in map(told_apart, rows)],
        "upper": float(top),
        "backtracks": int(backtracks),
        "seconds": math.ceil(min(seconds, MOST_SECONDS)) + 1,
        "vac": vac,
        "hbfs": None,
    }
    answer = _asked(job, seconds)
    return Exact(None, low, False, 0, True) if answer is None else _exact(answer, unary, edges, rows, low, top)


def _exact(
    answer: dict,
    unary: Sequence[np.ndarray],
    edges: Sequence[tuple[int, int, np.ndarray]],
    rows: Sequence[Row],
    low: int,
    top: int,
) -> Exact | None:
    """What the worker's answer says, whose costs are above `low` and below `top`; None where it failed."""
    if "error" in answer:
        return None
    complete = bool(answer["complete"])
    assignment = answer["assignment"]
    if assignment is not None and not all(row.holds(assignment) for row in rows):
        return None  # seen with pytoulbar2 1.4.0.1: nothing that such a run says can be trusted
    if complete:
        lower = low + top if assignment is None else _cost(unary, edges, assignment)
    else:
        bound = answer["bound"]
        lower = low + max(0, math.ceil(bound - ROUNDING)) if bound is not None and math.isfinite(bound) else low
        lower = min(lower, low + top)
    return Exact(None if assignment is None else tuple(assignment), lower, complete, answer["backtracks"], False)


def _cost(unary: Sequence[np.ndarray], edges: Sequence[tuple[int, int, np.ndarray]], chosen: Sequence[int]) -> int:
    return sum(int(c[x]) for c, x in zip(unary, chosen, strict=True)) + sum(
        int(t[chosen[i], chosen[j]]) for i, j, t in edges
    )
