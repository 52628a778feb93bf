"""Strategies of solving and their rules for conflicts: what the names mean.

| name | how the open decisions are made |
| --- | --- |
| basic, aggressive, op-priority, user-priority | statements are propagated (Shardy's ladder), ops follow |
| greedy | cheapest op first, no decision is taken back |
| staged | by cost, priority after priority |
| joint | by cost, all at once |

A rule for conflicts inside of the strategy may follow behind a colon: ``basic:first-factor`` (`Conflicts`).
"""

import difflib
from dataclasses import dataclass
from enum import StrEnum

from autoshard.errors import InputError
from autoshard.propagation.engine import Strategy as Ladder

LADDER = tuple(rung.value for rung in Ladder)
SEARCHES = ("staged", "joint")
"""Strategies that decide by cost with a proof."""
NAMES = (*LADDER, "greedy", *SEARCHES)


class Conflicts(StrEnum):
    """Rules for an axis that the tensors of an op have on different factors, or not on all tensors with the factor.

    none: the axis cuts nothing at that op. first-factor: it cuts the factor that comes first in the op's rule.
    biggest-tensor: it cuts the factor on which the largest tensor has it. batch-before-contracting: it prefers a factor
    of all tensors to one that some lack, and that to one that is summed over. majority: it cuts the factor on which
    more than half of the factor's tensors have it; where there is none, the solver decides. cost: the solver decides.
    """

    NONE = "none"
    FIRST_FACTOR = "first-factor"
    BIGGEST_TENSOR = "biggest-tensor"
    BATCH_FIRST = "batch-before-contracting"
    COST = "cost"
    MAJORITY = "majority"

    @staticmethod
    def from_text(text: str) -> "Conflicts":
        """The rule of this name; `InputError` lists the names where there is none."""
        named = {c.value: c for c in Conflicts if c is not Conflicts.MAJORITY}
        if text not in named:
            raise InputError(f"unknown rule {text!r} for conflicts; the rules are: {', '.join(named)}")
        return named[text]


@dataclass(frozen=True, slots=True)
class StrategyName:
    """A strategy and its rule for conflicts.

    >>> StrategyName.parse("basic:first-factor"), str(StrategyName.parse("greedy"))
    (StrategyName(name='basic', conflicts=<Conflicts.FIRST_FACTOR: 'first-factor'>), 'greedy')
    """

    name: str
    conflicts: Conflicts | None = None

    @staticmethod
    def parse(text: str) -> "StrategyName":
        """Read ``name`` or ``name:rule``.

        `InputError` for unknown names and rules, and for rules with strategies that have no conflicts.
        """
        if not isinstance(text, str):
            raise InputError(f"a strategy is a name such as greedy or basic:first-factor, found {text!r}")
        name, colon, rule = (part.strip() for part in text.partition(":"))
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"unknown strategy {name!r}; {guess}the strategies are: {', '.join(NAMES)}")
        if not colon:
            return StrategyName(name)
        conflicts = Conflicts.from_text(rule)
        fixed = name in ("greedy", "joint") and conflicts is not Conflicts.COST
        if fixed or (name == "staged" and conflicts is Conflicts.NONE):
            raise InputError(
                f"strategy {name!r} settles conflicts by cost; a rule such as {rule!r} goes with {', '.join(LADDER)}"
                + (" and, but for none, staged" if name != "staged" else "")
            )
        return StrategyName(name, conflicts)

    @property
    def rule(self) -> Conflicts:
        """The rule that settles conflicts: the stated one; by default `NONE` for propagation and `COST` for the
        others.
        """
        if self.conflicts is not None:
            return self.conflicts
        return Conflicts.NONE if self.name in LADDER else Conflicts.COST

    @property
    def by_cost(self) -> bool:
        """Whether the solver decides everything, conflicts included."""
        return self.name in SEARCHES and self.rule is Conflicts.COST

    def __str__(self) -> str:
        return self.name if self.conflicts is None else f"{self.name}:{self.conflicts.value}"


def strategy_names(text: str) -> tuple[StrategyName, ...]:
    """``a,b:rule,...`` as strategies, each once; `InputError` where one is unknown or named twice."""
    names: list[StrategyName] = []
    for item in text.split(","):
        if not item.strip():
            raise InputError(
                f"strategies are names with commas between them, such as basic,greedy,joint; found {text!r}"
            )
        strategy = StrategyName.parse(item)
        if strategy in names:
            raise InputError(f"strategy {strategy} is named twice")
        names.append(strategy)
    return tuple(names)
