"""Prices on memory for messages over rows and columns of smaller tables: what states cost with them, exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoshard.solver.certify.proof import Charge
from autoshard.solver.certify.weigh import LARGEST, SPLIT_BITS, Record, charged
from autoshard.solver.certify.write import PRICE_BITS
from autoshard.solver.dual.arrays import Classes
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.passes import Prices, aiming_prices
from autoshard.solver.dual.pricing import UNPRICED, aim, fill_live
from autoshard.solver.network import CostNetwork
from autoshard.solver.work import Infeasible

FIRST_RATE = 0.1
"""Of the first steps: so much shorter than would reach what they aim at if bounds were linear."""
MOST_CHANGED = 0.3
"""Where further edges begin without messages, a step changes prices by at most this part of their sum: messages follow
slowly, and an assignment that exceeds the limit by little would make a step without end."""
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass
class HeldPrices:
    """The search for good prices on what nodes hold, one for each moment at which that changes.

    moments: when each time slot begins. prices: by slot; see `pricing`. most_changed: by what part of their sum a step
    may change them.
    """

    held: Flat
    moments: np.ndarray
    prices: Prices
    most_changed: float = math.inf

    @staticmethod
    def of(network: CostNetwork) -> "HeldPrices | None":
        """Before any price is asked; None where nothing is held to a limit."""
        records = [(i, u) for i, own in enumerate(network.usages) for u in own if u.start < u.stop and u.amounts.any()]
        if network.usage_limit is None or not records:
            return None
        moments = np.unique([t for _, u in records for t in (u.start, u.stop)])
        starts, stops = ([getattr(u, end) for _, u in records] for end in ("start", "stop"))
        lengths = [len(u.amounts) for _, u in records]
        offsets = np.concatenate([[0], np.cumsum([len(c) for c in network.costs])]).astype(np.int64)
        held = Flat(
            nodes=np.arange(network.n_nodes), offsets=offsets, unary=np.zeros(int(offsets[-1])), first=_NOTHING,
            second=_NOTHING, table_at=np.zeros(1, np.int64), tables=np.zeros(0), incident_at=np.zeros(1, np.int64),
            incident=_NOTHING, held_node=np.array([i for i, _ in records], np.int64),
            held_start=np.searchsorted(moments, starts), held_stop=np.searchsorted(moments, stops),
            held_at=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            amounts=np.concatenate([u.amounts for _, u in records]).astype(np.int64), slots=len(moments) - 1,
            limit=network.usage_limit, classes=Classes(_NOTHING, _NOTHING, _NOTHING, _NOTHING, np.zeros(0)),
        )  # fmt: skip
        return HeldPrices(held, moments[:-1], aiming_prices(len(moments) - 1, rate=FIRST_RATE))

    @cached_property
    def live(self) -> np.ndarray:
        """Room for what is live in every slot."""
        return np.zeros(self.held.slots, dtype=np.int64)

    def check_room(self, allowed: np.ndarray) -> None:
        """Raise `Infeasible` where all nodes hold more than the limit, whatever is chosen of the allowed states (of all
        nodes, one after the other)."""
        held, starts = self.held, self.held.held_at[:-1]
        amounts = np.where(allowed[held.held_places], held.amounts, np.iinfo(np.int64).max)
        changes = np.zeros(held.slots + 1, dtype=np.int64)
        least = np.minimum.reduceat(amounts, starts)
        np.add.at(changes, held.held_start, least)
        np.subtract.at(changes, held.held_stop, least)
        most = int(np.cumsum(changes).max())
        if held.limit is not None and most > held.limit:
            text = f"at least {most} bytes are live at once whatever is chosen"
            raise Infeasible(f"memory: {text}, the limit is {held.limit} bytes")

    def step(self, chosen: Sequence[int], bound: float, target: float) -> bool:
        """One step of the prices after a pass with this bound that chose these states, towards a bound of `target`.

        False where no price is asked: nothing has exceeded the limit.
        """
        most, slots = fill_live(self.held.held, np.asarray(chosen, np.int64), self.live), self.prices.slots
        limit = self.held.held.limit
        if self.prices.pace.scale == UNPRICED and most <= limit:
            return False
        before = slots.current.copy()
        self.prices.pace = aim(slots, self.prices.pace, limit, bound, self.live, target)
        changed, whole = slots.current - before, float(np.abs(slots.current - before).sum())
        goes_back = np.array_equal(slots.current, slots.best)
        if before.any() and not goes_back and whole > self.most_changed * before.sum():
            slots.current[:] = before + changed * (self.most_changed * before.sum() / whole)
        return True

    def begin_with(self, moments: np.ndarray, prices: np.ndarray) -> None:
        """Take prices of another search: each where its moment is."""
        at = np.clip(np.searchsorted(self.moments, moments, side="right") - 1, 0, None)
        known = np.zeros(len(self.moments))
        np.add.at(known, at, prices)
        self.prices = aiming_prices(len(self.moments), known, FIRST_RATE)

    def charge(self, prices: np.ndarray) -> tuple[list[np.ndarray], int, Charge] | None:
        """What these prices add to every state, node after node, and what the limit gives back, in whole numbers; and
        the prices as a certificate has them. None where that does not fit.
        """
        if not prices.any():
            return None
        held = self.held
        bits = max(0, PRICE_BITS - int(np.frexp(float(prices.max()))[1]))
        whole = np.floor(prices * 2.0**bits).astype(np.int64)
        most = max(2.0**SPLIT_BITS, float(np.abs(held.amounts).max(initial=0)) / 2.0**SPLIT_BITS)
        if float(whole.sum(dtype=np.float64)) * most * int(np.bincount(held.held_node).max()) > LARGEST:
            return None
        listed = tuple((int(t), int(whole[t])) for t in np.flatnonzero(whole).tolist())
        asked = charged(held, Record(0, 0, 0, bits, listed, _NOTHING))
        if asked is None:
            return None
        extra, given_back = asked
        told = tuple((int(self.moments[t]), price) for t, price in listed)
        return np.split(extra, held.offsets[1:-1]), given_back, Charge(bits, told)
