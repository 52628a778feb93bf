"""The race: the best assignment so far, the clock and the proven bound, to which every engine reports."""

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autoshard.deadline import clock
from autoshard.solver.judge import judge_of
from autoshard.solver.network import CostNetwork, Evaluation, most_cost
from autoshard.solver.solution import EARLIER

if TYPE_CHECKING:
    from autoshard.solver.certify.proof import Proof, Reduced
    from autoshard.solver.certify.prove import Prover, Standing


class OutOfTime(Exception):
    """The wall clock guard has stopped the run."""


class Unwanted(Exception):
    """What a proof has found on its way is nothing to the caller."""


class CloseEnough(Exception):
    """The incumbent is within the gap that the caller accepts."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress callback gets: seconds since the start, the stage, the best cost, the proven bound."""

    seconds: float
    stage: str
    cost: int | None
    lower_bound: int | None


PROVING = ("split", "proof")
"""Stages in which what is found is good: what comes before is left behind soon."""
GIVEN_UP_WORK = 3_000_000_000
"""A proof that has visited more table entries is not given up for an assignment that is of no use."""
PATIENT_SHARE = 0.2
LEAST_PATIENCE_S = 0.1
"""The part of the time left that one exact attempt may take where time alone ends the run, and the least it gets."""


@dataclass
class Race:
    """What is known in one run. Assignments enter only after they have been judged on the original network."""

    network: CostNetwork
    started: float
    deadline: float
    report: Callable[[Progress], None] | None = None
    assignment: tuple[int, ...] | None = None
    cost: int | None = None
    peak: int | None = None
    lower: int | None = None
    stage: str = "start"
    trace: list[tuple[float, int]] = field(default_factory=list)
    earlier: deque[tuple[int, ...]] = field(default_factory=lambda: deque(maxlen=EARLIER))
    engines: dict[str, float] = field(default_factory=dict)
    """Seconds spent per stage."""
    accepted_gap: float = 0.0
    """(cost - lower) / cost at which the run may end; 0 for a full proof."""
    endless: bool = False
    """Whether effort never ends the run, so that only time or a proof does."""
    provers: list["Prover | Reduced"] = field(default_factory=list)
    """What is proved, and by whom: see `best_proof`."""
    standing: "Standing | None" = None
    """What the run's own records prove."""
    log: list[Any] | None = None
    """What was reduced so far."""
    wanted: Callable[[tuple[int, ...]], bool] | None = None
    """Whether the caller has a use for an assignment that a proof finds; where it has none, the run ends."""
    last_resort: Callable[[float], None] | None = None
    """Writes down what messages prove as they stand, where a run ends early."""
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def judge(self) -> Callable[[np.ndarray], Evaluation]:
        """What `network.evaluate` says of assignments of the original network."""
        return judge_of(self.network)

    @cached_property
    def beyond(self) -> int:
        """More than any assignment costs: the threshold while none is known."""
        return most_cost(self.network) + 1

    def seconds(self) -> float:
        """Since the start of the run."""
        return clock() - self.started

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - clock()

    def patience(self) -> float:
        """Seconds that one exact attempt may take: all that is left, or a part where time alone ends the run."""
        return max(LEAST_PATIENCE_S, self.left() * (PATIENT_SHARE if self.endless else 1.0))

    def enough(self, share: float) -> bool:
        """Whether this share of the time is gone in a run that only time or a proof ends."""
        return self.endless and self.seconds() > share * (self.deadline - self.started)

    def check(self) -> None:
        """Raises `OutOfTime` after the deadline, `CloseEnough` within the accepted gap."""
        if self.left() <= 0:
            raise OutOfTime
        self._end_if_close()

    def enter(self, stage: str) -> None:
        """Begin a stage: books the time of the last one and tells the caller."""
        self.close()
        self.stage = stage
        self._tell()

    def close(self) -> None:
        """End the stage: books its time."""
        now = self.seconds()
        self.engines[self.stage] = round(self.engines.get(self.stage, 0.0) + now - self._since, 3)
        self._since = now

    def offer(self, assignment: Sequence[int] | np.ndarray) -> bool:
        """Take an assignment if it is feasible and better; returns whether it was."""
        numbers = np.asarray(assignment, dtype=np.int64)
        judged = self.judge(numbers)
        chosen: tuple[int, ...] = tuple(numbers.tolist())
        with self._lock:  # searchers in other threads offer too
            if not judged.feasible or judged.cost is None or (self.cost is not None and judged.cost >= self.cost):
                return False
            if self.assignment is not None:
                self.earlier.appendleft(self.assignment)
            self.assignment, self.cost, self.peak = chosen, judged.cost, judged.peak
            self.trace.append((round(self.seconds(), 3), judged.cost))
            self._tell()
        if self.wanted is not None and self._gives_up() and not self.wanted(chosen):
            raise Unwanted
        self._end_if_close()
        return True

    def end_if_unwanted(self) -> None:
        """Before a proof begins: end the run where the caller has no use for what is known, since a search that knows
        better has no use for the proof either."""
        if self.wanted is not None and self.assignment is not None and not self.wanted(self.assignment):
            raise Unwanted

    def _gives_up(self) -> bool:
        """Whether a proof is under way that may be given up."""
        return self.stage in PROVING and max((p.effort for p in self.provers), default=0) < GIVEN_UP_WORK

    def incumbent(self) -> tuple[int | None, tuple[int, ...] | None]:
        """Cost and assignment, together."""
        with self._lock:
            return self.cost, self.assignment

    def raise_bound(self, bound: int) -> None:
        """Take a proven bound if it is better."""
        if self.lower is None or bound > self.lower:
            self.lower = bound
            self._tell()
            self._end_if_close()

    def _end_if_close(self) -> None:
        if self.accepted_gap > 0 and self.cost is not None and self.lower is not None:
            if self.cost - self.lower <= self.accepted_gap * abs(self.cost):
                raise CloseEnough

    def accepts(self, gap: float) -> bool:
        """Whether the run may end at this gap."""
        return self.accepted_gap >= gap

    def target(self) -> float:
        """Only assignments that cost at most this are worth finding; inf while none is known."""
        if self.cost is None:
            return math.inf
        return min(self.cost - 1, math.floor(self.cost - self.accepted_gap * abs(self.cost)))

    def gap(self) -> float:
        """(cost - lower) / |cost|; inf while one of them is not known."""
        if self.cost is None or self.lower is None:
            return math.inf
        return (self.cost - self.lower) / max(1, abs(self.cost))

    def proved(self) -> bool:
        """Whether nothing costs less than the incumbent."""
        return self.cost is not None and self.lower is not None and self.lower >= self.cost

    def proved_by(self, prover: "Prover | Reduced | Standing") -> float:
        """What a prover has shown: no assignment costs less; infinity where there is none at all."""
        bound = prover.bound
        if not prover.costs:
            return bound if bound == math.inf else -math.inf
        if self.cost is None:  # nothing costs less than what nothing costs
            if self.beyond <= bound < math.inf:
                return math.inf
            return bound if bound < math.inf or prover is not self.standing else -math.inf
        return min(bound, int(self.target()) + 1)

    def let_go(self) -> None:
        """The run is over. Who proved knows the race: such a cycle keeps hundreds of MiB of messages until Python's
        collector comes by, which counts objects and not their bytes.
        """
        self.provers, self.standing, self.last_resort = [], None, None

    def _provers(self) -> "list[Prover | Reduced | Standing]":
        return [*self.provers, *(() if self.standing is None else (self.standing,))]

    def settled(self) -> bool:
        """Whether the best assignment is proved to be one (up to the accepted gap), or that there is none."""
        best = max(map(self.proved_by, self._provers()), default=-math.inf)
        if math.isfinite(best):
            self.raise_bound(int(best))
            return self.cost is not None and best > self.target()
        return best > 0

    def best_proof(self) -> tuple["Proof | None", float]:
        """The proof of the best bound, and that bound; infinity where there is no assignment."""
        for _ in range(2):
            best = max(self._provers(), key=self.proved_by, default=None)
            bound = -math.inf if best is None else self.proved_by(best)
            known = -math.inf if self.lower is None else self.lower
            if self.last_resort is None or bound >= known:
                break
            self.last_resort(known)
            self.last_resort = None
        if best is None or bound == -math.inf:
            return None, bound
        proof = best.proof
        if best.costs and bound == math.inf:
            proof.beyond = self.beyond
        return proof, bound

    def _tell(self) -> None:
        if self.report is not None:
            self.report(Progress(self.seconds(), self.stage, self.cost, self.lower))
