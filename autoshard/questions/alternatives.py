"""What else a value could have been, and what that would cost with the program around it re-decided.

Each other layout is pinned in turn; the decisions near it are solved again exactly, the rest stays as the plan has it.
So a figure is what the change costs at most: re-deciding everything (`instead`) may find it cheaper, and proves it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoshard.costs.price import price
from autoshard.formulation.assign import assignment_of
from autoshard.formulation.model import NodeKind
from autoshard.plan_record import PlanRecord
from autoshard.planning import Model, build_model
from autoshard.questions.again import options_of, problem_of
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage, evaluate
from autoshard.solver.solution import Stopped

NEARBY = 150
"""Decisions around a value that are solved again."""
NEAREST = 20
"""Those that are solved again first: with little work, many decisions that begin anywhere may end far too dear."""
EFFORT = 0.02
"""Work of pricing one alternative, as a share of the plan's effort."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another sharding of a value.

    extra_s: seconds per step that it costs more, at most. peak_bytes: of one device. moved: how many other nodes of the
    network change their state. fits: whether the peak is within the memory limit. rounding_s: differences up to this
    are none. all_at_once: whether the plan was decided in stages, beside whose placements the alternative need not
    stand.
    """

    sharding: str
    extra_s: float
    peak_bytes: int
    moved: int
    fits: bool = True
    rounding_s: float = 0.0
    all_at_once: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The alternative as plain data, for JSON."""
        return {
            "sharding": self.sharding, "extra_s": self.extra_s, "peak_bytes": self.peak_bytes, "moved": self.moved,
            "fits": self.fits, "rounding_s": self.rounding_s, "all_at_once": self.all_at_once,
        }  # fmt: skip


class Alternatives:
    """Prices the alternatives of values of one plan; the network is built once."""

    def __init__(self, plan: PlanRecord) -> None:
        self.plan, self.options = plan, options_of(plan)
        self.model: Model = build_model(problem_of(plan))
        model = self.model
        self.start = assignment_of(model.collected, model.encoded, model.repeats, plan.schedule)
        self.network = model.without_device_memory
        self._around: list[list[tuple[int, np.ndarray]]] = [[] for _ in self.network.costs]
        for edge in self.network.edges:
            self._around[edge.first].append((edge.second, edge.costs))
            self._around[edge.second].append((edge.first, edge.costs.T))

    def of(self, value: int) -> tuple[Alternative, ...]:
        """Every sharding of a value that the statements leave and that is not the plan's, cheapest first.

        Empty where the plan is not one of the network's (planned by another version).
        """
        if self.start is None:
            return ()
        node_and_texts = self._states(value)
        if node_and_texts is None:
            return ()
        cls, texts = node_and_texts
        now = texts[self.start[cls]]
        options: dict[str, list[int]] = {}
        for state, text in enumerate(texts):
            options.setdefault(text, []).append(state)
        out = [self._priced(cls, text, states) for text, states in options.items() if text != now]
        return tuple(sorted((a for a in out if a is not None), key=lambda a: (a.extra_s, a.sharding)))

    def output(self, slot: int) -> tuple[Alternative, ...]:
        """Every other sharding of an output of the program, cheapest first.

        Empty where the output has no node of its own, because its layout is that of the input it replaces.
        """
        collected = self.model.collected
        name = self.plan.program.output_names[slot]
        for index, node in enumerate(collected.nodes):
            if node.kind is NodeKind.OUTPUT and node.label == name and self.start is not None:
                cls = int(self.model.repeats.class_of[index])
                texts = [node.layouts[s].text(self.model.problem.mesh) for s in self.model.encoded.states[index]]
                out = [
                    self._priced(cls, text, [s for s, t in enumerate(texts) if t == text])
                    for text in dict.fromkeys(texts)
                    if text != texts[self.start[cls]]
                ]
                return tuple(sorted((a for a in out if a is not None), key=lambda a: (a.extra_s, a.sharding)))
        return ()

    def _states(self, value: int) -> tuple[int, list[str]] | None:
        """The node that decides the form that a value's uses see, and the sharding in each of its states."""
        collected, encoded = self.model.collected, self.model.encoded
        stored = value in self.plan.program.body.args
        port = (collected.definition if stored else collected.form).get(value)
        if port is None:
            return None
        mesh = self.model.problem.mesh
        texts = [port.layouts[int(s)].text(mesh) for s in encoded.states[port.node]]
        return int(self.model.repeats.class_of[port.node]), texts

    def _priced(self, cls: int, sharding: str, states: Sequence[int]) -> Alternative | None:
        """The price of one of the `states` of a node, with its neighbourhood solved again; None where nothing fits."""
        from autoshard.solver import solve

        assert self.start is not None
        whole = [states[0] if node == cls else state for node, state in enumerate(self.start)]
        found = False
        for many in (NEAREST, NEARBY):  # what few decisions give is where the search among many begins
            members = self._near(cls, many)
            known = [states.index(whole[node]) if node == cls else whole[node] for node in members]
            local = self._local(members, cls, states)
            effort = self.options.effort_of_one(EFFORT)
            solution = solve(local, effort=effort, seed=self.options.seed, starts=[known])
            if solution.stopped is Stopped.INTERRUPT:  # the next one would be asked all the same
                raise KeyboardInterrupt
            if solution.assignment is None or solution.cost is None or solution.cost >= IMPOSSIBLE:
                continue
            found = True
            for node, choice in zip(members, solution.assignment, strict=True):
                whole[node] = states[choice] if node == cls else choice
        if not found:
            return None
        evaluated = evaluate(self.network, whole)
        if evaluated.cost is None or not evaluated.feasible:
            return None
        base = evaluate(self.network, self.start).cost
        assert base is not None
        schedule = self.model.schedule(whole)
        peak = self.model.simulate(schedule).peak_bytes
        limit = self.model.problem.memory_limit
        moved = sum(1 for a, b in zip(whole, self.start, strict=True) if a != b)
        extra = (evaluated.cost - base) * self.model.encoded.tick_s
        if self.plan.objective == "overlap":  # the network does not say what links work
            problem = self.model.problem
            cost = price(problem.program, schedule, self.model.fusion, self.model.prices, problem.trips)
            extra = self.model.seconds(cost) + self.model.memory_price_s(whole) - self.plan.objective_s
        return Alternative(
            sharding, extra, peak, moved, fits=limit is None or peak <= limit, rounding_s=2 * self.plan.rounding_s,
            all_at_once=self.plan.joint is not None,
        )  # fmt: skip

    def _near(self, root: int, many: int) -> list[int]:
        """At most so many nodes, those nearest to the root, itself included."""
        seen = {root: None}
        queue = deque([root])
        while queue and len(seen) < many:
            for other, _ in self._around[queue.popleft()]:
                if other not in seen and len(seen) < many:
                    seen[other] = None
                    queue.append(other)
        return sorted(seen)

    def _local(self, members: Sequence[int], root: int, states: Sequence[int]) -> CostNetwork:
        """The network of the `members`: other nodes are fixed as in the plan, and the root has only the `states`."""
        assert self.start is not None
        place = {node: k for k, node in enumerate(members)}
        only = np.array(states, np.int64)
        costs, edges = [], []
        for node in members:
            total = self.network.costs[node].copy()
            for other, table in self._around[node]:
                if other not in place:
                    total = np.minimum(total + table[:, self.start[other]], IMPOSSIBLE)
                elif node < other:
                    rows = table[only] if node == root else table
                    edges.append(Edge(place[node], place[other], rows[:, only] if other == root else rows))
            costs.append(total[only] if node == root else total)
        usages = self._usages(members, root, only)
        return CostNetwork(tuple(costs), tuple(edges), usages, self.network.usage_limit)

    def _usages(self, members: Sequence[int], root: int, only: np.ndarray) -> list[list[Usage]]:
        """What the `members` take of stated amounts (reshards that are counted, bytes on the host); what all others
        take stands with the root.
        """
        assert self.start is not None
        inside = {node: k for k, node in enumerate(members)}
        out: list[list[Usage]] = [[] for _ in members]
        taken: dict[tuple[int, int], int] = {}
        for node, held in enumerate(self.network.usages):
            for usage in held:
                if node not in inside:
                    when = usage.start, usage.stop
                    taken[when] = taken.get(when, 0) + int(usage.amounts[self.start[node]])
                else:
                    amounts = usage.amounts[only] if node == root else usage.amounts
                    out[inside[node]].append(Usage(usage.start, usage.stop, amounts))
        rest = (Usage(*when, np.full(len(only), amount, np.int64)) for when, amount in taken.items() if amount)
        out[inside[root]].extend(rest)
        return out
