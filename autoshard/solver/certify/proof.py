"""A proof of a bound: what was reduced, what was recorded, and how the rest was split. Loads no compiled code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autoshard.solver.work import Event

if TYPE_CHECKING:
    from autoshard.solver.certify.parts import Step
    from autoshard.solver.certify.probing import Probes
    from autoshard.solver.certify.shaving import Shave
    from autoshard.solver.certify.weigh import Record
    from autoshard.solver.learning.learner import Nogood


@dataclass(frozen=True)
class Charge:
    """Prices in units of 2**-bits per unit that is live, each at a moment."""

    bits: int
    prices: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Outlined:
    """One set of messages over rows and columns of smaller tables.

    messages: of every edge those to its first node (in the order of nodes), one for each row of the smaller table that
    a state of it has; in units of 2**step. charge: what is asked for what is held; None for nothing.
    """

    step: int
    charge: Charge | None
    messages: np.ndarray


@dataclass(frozen=True)
class Outline:
    """What messages over rows and columns of smaller tables prove of a network whose tables are kept so.

    steps: sets of messages, one after the other. left: of every node the states that are left beside those that cost
    too much; the rest of the proof is about the network of these. None where messages prove all of it.
    """

    steps: Sequence[Outlined]
    left: Sequence[np.ndarray] | None = None


@dataclass(frozen=True)
class Refuted:
    """Nogoods, each of which follows from the ones before it; with the last one nothing is left that fits."""

    nogoods: "Sequence[Nogood]"
    records: int = 0


@dataclass
class Proof:
    """outline: what comes before all else where tables are rows and columns of smaller ones. stages: reductions, and
    records on what they leave, in turns; then the tree, if there is one.

    bound: what is proved, in the original network's costs; inf: that there is no assignment. beyond: where that
    is proved with costs, what nothing is cheaper than: more than any assignment costs.
    """

    stages: "list[Sequence[Event] | Sequence[Record | Shave | Probes] | Sequence[Refuted]]" = field(
        default_factory=list
    )
    tree: "Step | None" = None
    bound: float = -math.inf
    parts: int = 0
    beyond: int | None = None
    outline: Outline | None = None

    @property
    def records(self) -> int:
        """Sets of messages in it."""
        kept = [one for stage in self.stages for one in stage if not isinstance(one, tuple)]
        found = sum(getattr(one, "records", 1) for one in kept)
        found += len(self.outline.steps) if self.outline is not None else 0
        waiting = [self.tree]
        while waiting:
            step = waiting.pop()
            if step is not None:
                found += len(step.records)
                waiting += step.halves
        return found


@dataclass(frozen=True)
class Reduced:
    """What reductions alone have shown; looks like a `Prover` that is done.

    bound: the cost of the one assignment that is left, or inf where there is none (`costs` is then false).
    """

    proof: Proof
    bound: float
    costs: bool
    effort: int = 0

    @staticmethod
    def by(log: Sequence[Event] | None, bound: float = math.inf) -> "Reduced":
        """What a log of reductions shows; `bound`: see the class."""
        return Reduced(Proof([list(log or ())], None, bound), bound, math.isfinite(bound))
