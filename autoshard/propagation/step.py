"""One step of propagation: the shardings of an op's tensors before, and those that change.

Steps are remembered by what goes in. Programs repeat themselves (layers; the rungs of op priorities), so most steps
are a dictionary look-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autoshard.program.rule import TensorFactors
from autoshard.propagation.along_factors import propagate_aggressive, propagate_basic
from autoshard.propagation.directions import Direction
from autoshard.propagation.projection import project, unproject
from autoshard.propagation.spec import Spec


@dataclass(frozen=True, slots=True)
class StepRule:
    """What a step needs of a sharding rule.

    passes: for each factor whether it is a pass-through factor (no reduction, replication or permutation).
    """

    sizes: tuple[int, ...]
    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    blocked: frozenset[int]
    passes: tuple[bool, ...]


def identity_rule(shape: tuple[int, ...], operands: int = 1, results: int = 1) -> StepRule:
    """Every dimension its own factor, shared by all tensors: elementwise ops, data-flow edges, constraints."""
    mapping: TensorFactors = tuple((i,) for i in range(len(shape)))
    return StepRule(tuple(shape), (mapping,) * operands, (mapping,) * results, frozenset(), (True,) * len(shape))


@dataclass(slots=True)
class Steps:
    """Specs by number, and the steps already taken.

    Two specs are the same iff their numbers are; number -1 is "no sharding".
    """

    mesh_axis_sizes: Sequence[tuple[int, ...]]
    specs: list[Spec] = field(default_factory=list)
    _numbers: dict[Spec, int] = field(default_factory=dict)
    _rules: dict[StepRule, int] = field(default_factory=dict)
    rules: list[StepRule] = field(default_factory=list)
    _memo: dict[tuple, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def number(self, spec: Spec | None) -> int:
        """The number of a spec, a new one where it has none yet; -1 for no sharding."""
        if spec is None:
            return -1
        number = self._numbers.get(spec)
        if number is None:
            number = self._numbers[spec] = len(self.specs)
            self.specs.append(spec)
        return number

    def spec(self, number: int) -> Spec | None:
        """The spec with this number; None for -1."""
        return None if number < 0 else self.specs[number]

    def rule_number(self, rule: StepRule) -> int:
        """The number of a rule, a new one where it has none yet."""
        number = self._rules.get(rule)
        if number is None:
            number = self._rules[rule] = len(self.rules)
            self.rules.append(rule)
        return number

    def take(
        self,
        rule_number: int,
        numbers: tuple[int, ...],
        directions: tuple[Direction, ...],
        mesh: int,
        *,
        aggressive: bool,
        elementwise: bool,
        conservative: bool,
    ) -> tuple[tuple[int, int], ...]:
        """(tensor, new spec number) of every tensor that changes; tensors are operands, then results."""
        key = (rule_number, numbers, directions, mesh, aggressive, elementwise, conservative)
        changed = self._memo.get(key)
        if changed is None:
            changed = self._memo[key] = self._take(*key)
        return changed

    def _take(
        self,
        rule_number: int,
        numbers: tuple[int, ...],
        directions: tuple[Direction, ...],
        mesh: int,
        aggressive: bool,
        elementwise: bool,
        conservative: bool,
    ) -> tuple[tuple[int, int], ...]:
        rule = self.rules[rule_number]
        mappings = (*rule.operands, *rule.results)
        before = [self.spec(n) for n in numbers]
        tensors = [project(m, s, rule.sizes) for m, s in zip(mappings, before, strict=True)]
        n = len(rule.operands)
        axis_sizes = self.mesh_axis_sizes[mesh]
        if aggressive:
            changed = propagate_aggressive(
                tensors[:n], tensors[n:], directions, rule.sizes, axis_sizes, conservative, elementwise
            )
        else:
            changed = propagate_basic(tensors[:n], tensors[n:], directions, rule.sizes, axis_sizes, conservative)
        out: list[tuple[int, int]] = []
        for index in changed:
            old = before[index]
            new = unproject(tensors[index], mappings[index], rule.sizes, mesh, old)
            if new != old and (old is not None or new.has_axes):
                out.append((index, self.number(new)))
        return tuple(out)
