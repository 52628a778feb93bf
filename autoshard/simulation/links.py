"""Seconds of compiled collectives on a machine's links; groups are of mesh positions, as the compiler put them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from autoshard.costmodels.collectives import CollectiveKind, LevelCost, Piece, level_costs
from autoshard.costmodels.machine import Machine
from autoshard.costmodels.profile import SwitchLevel, TorusLevel
from autoshard.simulation.places import places

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LinkTime:
    """How long a collective takes once it begins, and the links that it keeps busy meanwhile."""

    seconds: float
    links: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """The links between the positions of a mesh."""

    machine: Machine
    _times: dict[tuple[str, Groups], tuple[float, float, tuple[str, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def places(self) -> np.ndarray:
        """[position, coordinate]: the domain (slice, node), then the place within it."""
        return np.array(places(self.machine))

    def collective(self, kind: str, bytes_: float, groups: Groups) -> LinkTime:
        """Time of a collective over groups of mesh positions.

        bytes_: V as `costmodels.collectives` counts it: the whole array as one group sees it, the shard for a permute.
        For a permute `groups` are pairs of a source and a target. One over single devices takes no time.
        """
        key = (kind, groups)
        if key not in self._times:
            self._times[key] = self._pairs(groups) if kind == "permute" else self._grouped(kind, groups)
        latency, per_byte, links = self._times[key]
        return LinkTime(latency + per_byte * bytes_, links)

    def _grouped(self, kind: str, groups: Groups) -> tuple[float, float, tuple[str, ...]]:
        slowest: tuple[float, float, tuple[str, ...]] = (0.0, 0.0, ())
        for group in {self._shape(g): g for g in groups if len(g) > 1}.values():
            costs = self._costs(CollectiveKind(kind), group)
            beta = max((c.seconds_per_byte for c in costs), default=0.0)
            if beta >= slowest[1]:
                slowest = (sum(c.latency_s for c in costs), beta, _busy(costs))
        return slowest

    def _shape(self, group: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """What tells groups of different cost apart: the coordinates relative to the first one."""
        mine = self.places[list(group)]
        return tuple(map(tuple, np.unique(mine - mine.min(axis=0), axis=0).tolist()))

    def _costs(self, kind: CollectiveKind, group: Sequence[int]) -> tuple[LevelCost, ...]:
        machine, mine = self.machine, self.places[list(group)]
        values = [np.unique(mine[:, k]) for k in range(mine.shape[1])]
        pieces: list[Piece] = []
        outer = 1 if len(machine.profile.levels) > 1 else 0
        whole = prod(len(v) for v in values) == len(group)
        for k, v in enumerate(values):
            if len(v) == 1:
                continue
            steps = np.unique(np.diff(v))
            level, dim = (outer, 0) if k == 0 else (0, k - 1)
            even = whole and len(steps) == 1
            stride = int(steps[0]) if isinstance(machine.profile.levels[level], TorusLevel) else 1
            pieces.append(Piece(level, dim, stride, len(v), exact=even))
        if not whole:  # no box of the machine: as a line over the dimension that reaches farthest
            farthest = max(pieces, key=lambda p: (p.level, p.size))
            pieces = [Piece(farthest.level, farthest.dim, 1, len(group), exact=False)]
        return level_costs(kind, pieces, machine.profile, machine.torus, machine.in_network_reduction)

    def _pairs(self, pairs: Groups) -> tuple[float, float, tuple[str, ...]]:
        """A permute: every pair takes the shortest way, one dimension after the other; the busiest link decides."""
        level, torus = self.machine.profile.levels[0], self.machine.torus
        load: dict[tuple[object, ...], int] = {}
        hops, crosses = 0, 0
        for source, target in pairs:
            a, b = self.places[source].tolist(), self.places[target].tolist()
            if a[0] != b[0]:
                crosses += 1
                continue
            if torus is None:
                load[source, "out"] = load.get((source, "out"), 0) + 1
                hops = max(hops, int(source != target))
                continue
            far = 0
            for dim, size in enumerate(torus.shape):
                step = b[dim + 1] - a[dim + 1]
                if torus.wraps[dim] and 2 * abs(step) > size:
                    step -= size if step > 0 else -size
                for _ in range(abs(step)):
                    link = (tuple(a), dim, step > 0)
                    load[link] = load.get(link, 0) + 1
                    a[dim + 1] = (a[dim + 1] + (1 if step > 0 else -1)) % size
                far += abs(step)
            hops = max(hops, far)
        rate = level.egress.value if isinstance(level, SwitchLevel) else level.link.value
        per_byte = max(load.values(), default=0) / rate
        latency = hops * level.latency.value
        names = {f"{level.name}:{link[1]}" if torus is not None else level.name for link in load}
        if crosses:
            outer = self.machine.profile.levels[1]
            assert isinstance(outer, SwitchLevel), "only the innermost level is anything else"
            per_byte = max(per_byte, 1 / outer.egress.value)
            latency += outer.latency.value
            names.add(outer.name)
        return latency, per_byte, tuple(sorted(names))


def _busy(costs: Sequence[LevelCost]) -> tuple[str, ...]:
    return tuple(link for c in costs for link in ([f"{c.level}:{d}" for d in c.dims] or [c.level]))
