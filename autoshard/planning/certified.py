"""The certificate of a plan's bound (or that there is no plan), and how the network that it is about is made again.

The bound of a plan is proved for a network. Which network it was follows from the problem and a few facts: whether the
memory limit was part of it, and at which moments it counted memory that depends on several decisions. With the problem
and these facts the same network can be made again, and `autoshard.verify.certificate` can judge the certificate on it.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autoshard.costs.exposure import Weights
from autoshard.errors import InputError, in_words
from autoshard.plan_record import BoundProof
from autoshard.planning.model import Model
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution

Moments = Mapping[int, frozenset[int]]


@dataclass(frozen=True)
class Proved:
    """A bound with its certificate, and the facts that tell which network it is about.

    bound: in ticks; None where what is proved is that the network has no assignment, so that there is no plan. limit:
    bytes per device that the network was held to, None for no limit; moments: at which it knew of what depends on
    several decisions (`Model.within`, which names none in networks too large for `Model.memory`), None for those of
    definitions and shared copies only. shares: repeated layers
    share their decisions in it where they do in the problem; else each layer decides for itself. weights: of links,
    where it counts a mean (`planning.over_links`). counts: whether it knows of stated counts of reshards, where there
    are any; what holds without them holds with them (`planning.counts_kept`). prices: ticks that it has in the place of
    each count, for every reshard that counts (`planning.priced_counts`); bound is that of this network.
    """

    bound: int | None
    certificate: bytes
    limit: int | None = None
    moments: Moments | None = None
    shares: bool = True
    weights: Weights = ()
    counts: bool = True
    prices: tuple[int, ...] = ()

    @staticmethod
    def by(solution: Solution, limit: int | None = None, moments: Moments | None = None) -> "Proved | None":
        """The bound that a search has proved; None where it left no proof."""
        data = None if solution.status == "infeasible" else solution.certificate()
        return None if data is None else Proved(solution.lower_bound, data, limit, moments)

    @staticmethod
    def none(solution: Solution, limit: int | None = None, moments: Moments | None = None) -> "Proved | None":
        """That there is no plan, as a search has proved it; None where it proved no such thing."""
        data = solution.certificate() if solution.status == "infeasible" else None
        return None if data is None else Proved(None, data, limit, moments)

    def network(self, model: Model) -> CostNetwork:
        """The network that the certificate is about, made again; `InputError` where it prices other counts."""
        if self.prices:
            if len(self.prices) != len(model.counts) or min(self.prices) < 0 or self.limit is not None:
                raise InputError("the certificate of the plan prices counts of reshards that are not those stated")
            return model.at_prices(self.prices)
        if self.limit is None or self.moments is None:
            return model.with_limit(self.limit)
        return model.within(self.limit, dict(self.moments))

    def spared(self, model: Model) -> int:
        """Ticks by which a plan of the problem may cost less than the network says: what its counts allow is priced."""
        return sum(price * count.limit for price, count in zip(self.prices, model.counts, strict=False))

    def told(self, of: Literal["plan", "joint", "stage", "refusal"]) -> BoundProof:
        """As a plan's record has it."""
        moments = None
        if self.moments is not None:
            moments = {str(k): tuple(sorted(v)) for k, v in sorted(self.moments.items())}
        data = base64.b64encode(self.certificate).decode()
        return BoundProof(
            of=of, bound=self.bound, limit=self.limit, moments=moments, data=data, shares=self.shares,
            weights=dict(self.weights), counts=self.counts, prices=self.prices,
        )  # fmt: skip

    @staticmethod
    def from_dict(data: Any) -> "Proved":
        """The inverse of `told`, from plan.json; `InputError` where it cannot be read."""
        try:
            moments_data = data["moments"]
            moments = (
                None if moments_data is None else {int(k): frozenset(map(int, v)) for k, v in moments_data.items()}
            )
            if any(k < 0 or min(spans, default=0) < 0 for k, spans in (moments or {}).items()):
                raise ValueError("its moments count from 0; memory that is named from the end would count twice")
            limit = None if data["limit"] is None else int(data["limit"])
            certificate, shares = base64.b64decode(data["data"], validate=True), bool(data.get("shares", True))
            bound = None if data["bound"] is None else int(data["bound"])
            weights = tuple((str(link), float(weight)) for link, weight in (data.get("weights") or {}).items())
            if not all(0 <= weight <= 1 for _, weight in weights) or sum(weight for _, weight in weights) > 1:
                raise ValueError("its weights of links are no parts of 1")
            counts, prices = bool(data.get("counts", True)), tuple(map(int, data.get("prices", ())))
            return Proved(bound, certificate, limit, moments, shares, weights, counts, prices)
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as problem:
            raise InputError(f"the certificate of the plan cannot be read: {in_words(problem)}") from None
