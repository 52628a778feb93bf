"""What is proved about a plan: a certificate, and how its network is made again.

The bound of a plan is that of a network. Which one it was is a few facts beside the problem: whether the memory limit
was in it, and at which moments it knew of what depends on several decisions. Whoever holds the problem can make the
same network again, and have the certificate judged on it by `autoshard.verify.certificate`.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoshard.errors import InputError
from autoshard.planning.model import Model
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution

Moments = Mapping[int, frozenset[int]]


@dataclass(frozen=True)
class Proved:
    """bound: in ticks; no assignment of the network costs less. certificate: its proof, as bytes.

    limit: bytes per device that the network was held to, None for no limit; moments: of its rounds (`Model.within`).
    """

    bound: int
    certificate: bytes
    limit: int | None = None
    moments: Moments = field(default_factory=dict)

    @staticmethod
    def by(solution: Solution, limit: int | None = None, moments: Moments | None = None) -> "Proved | None":
        """What a search has proved; None where it left no proof."""
        data = None if solution.status == "infeasible" else solution.certificate()
        return None if data is None else Proved(solution.lower_bound, data, limit, dict(moments or {}))

    def network(self, model: Model) -> CostNetwork:
        """The network that the certificate is about, made again."""
        return model.with_limit(None) if self.limit is None else model.within(self.limit, self.moments)

    def to_dict(self) -> dict[str, Any]:
        """As ``certificate`` in plan.json."""
        return {
            "bound": self.bound, "limit": self.limit,
            "moments": {str(k): sorted(v) for k, v in sorted(self.moments.items())},
            "data": base64.b64encode(self.certificate).decode(),
        }  # fmt: skip

    @staticmethod
    def from_dict(data: Any) -> "Proved":
        """The inverse; `InputError` where it cannot be read."""
        try:
            moments = {int(k): frozenset(map(int, v)) for k, v in data["moments"].items()}
            limit = None if data["limit"] is None else int(data["limit"])
            return Proved(int(data["bound"]), base64.b64decode(data["data"], validate=True), limit, moments)
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as problem:
            raise InputError(
                f"the certificate of the plan cannot be read: {type(problem).__name__}: {problem}"
            ) from None
