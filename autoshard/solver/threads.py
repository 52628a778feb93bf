"""Threads for work that comes out the same however many there are: parts of proofs are settled side by side.

There are as many as the process may use cores, up to a few: compiled loops let go of the interpreter, what is between
them does not. `taskset` and the like limit them.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any

MOST = 8
"""More threads than these would wait for the interpreter."""


def cores() -> int:
    """How many cores the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST, cores()), thread_name_prefix="autoshard-proof")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not come along

Job = Callable[[], Any]
Then = Callable[[Any], Sequence[Job]]
"""What is to be done with the result of a job once it is there; gives further jobs."""


def side_by_side(jobs: Sequence[Job], then: Then | None = None) -> list[tuple[Any, list[Any]] | BaseException]:
    """Run jobs, and of each what follows from it, in threads; per job its result and those of what followed, or what
    it (or the first of those) raised. All have ended when this returns or raises `KeyboardInterrupt`.

    >>> side_by_side([lambda: 2, lambda: 3], lambda x: [lambda: 10 * x, lambda: 20 * x])
    [(2, [20, 40]), (3, [30, 60])]
    """
    return _in_turn(jobs, then) if min(MOST, cores()) == 1 else _in_threads(jobs, then)


def _in_turn(jobs: Sequence[Job], then: Then | None) -> list[tuple[Any, list[Any]] | BaseException]:
    out: list[tuple[Any, list[Any]] | BaseException] = []
    for job in jobs:
        try:
            result = job()
            out.append((result, [further() for further in (then(result) if then is not None else ())]))
        except Exception as error:
            out.append(error)
    return out


def _in_threads(jobs: Sequence[Job], then: Then | None) -> list[tuple[Any, list[Any]] | BaseException]:
    pool = _pool()
    firsts = {pool.submit(job): k for k, job in enumerate(jobs)}
    followed: list[list[Future[Any]]] = [[] for _ in jobs]
    try:
        waiting: set[Future[Any]] = set(firsts)
        while waiting:
            ended, waiting = wait_for_some(waiting)
            for one in ended:
                if then is not None and one.exception() is None:
                    followed[firsts[one]] = [pool.submit(further) for further in then(one.result())]
    finally:
        wait([*firsts, *(one for some in followed for one in some)])
    return [_outcome(first, followed[k]) for first, k in firsts.items()]


def wait_for_some(waiting: set[Future[Any]]) -> tuple[set[Future[Any]], set[Future[Any]]]:
    """Those that have ended, one at least, and the others."""
    ended, others = wait(waiting, return_when=FIRST_COMPLETED)
    return ended, others


def _outcome(first: Future[Any], followed: Sequence[Future[Any]]) -> tuple[Any, list[Any]] | BaseException:
    for one in (first, *followed):
        error = one.exception()
        if error is not None:
            return error
    return first.result(), [one.result() for one in followed]
