"""The answer to a break-even question: where a decision flips, and to what."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from autoshard.report.amounts import bytes_text


@dataclass(frozen=True, slots=True)
class NoPlan:
    """There is no plan at a value of the parameter: `proved`, or else merely none was found."""

    proved: bool


@dataclass(frozen=True, slots=True)
class Flip:
    """A border of a decision: it stands at `stands_at`, and at `flips_at` it does not.

    direction: ``up`` or ``down``, the way from where the decision stands to where it does not. sharding: what the value
    has beyond the border; None where there is no plan, which is `proved` or else merely none was found. cost_kept_s,
    cost_best_s: at `flips_at`, of the best plan that keeps the decision (None: none does) and of the best one.
    """

    direction: str
    stands_at: float
    flips_at: float
    sharding: str | None
    cost_kept_s: float | None
    cost_best_s: float | None
    proved: bool = True

    @property
    def at(self) -> float:
        """The border as one number: the geometric mean of `stands_at` and `flips_at`."""
        return sqrt(self.stands_at * self.flips_at)

    def to_dict(self) -> dict[str, Any]:
        """The border as plain data, for JSON."""
        return {
            "direction": self.direction, "at": self.at, "stands_at": self.stands_at, "flips_at": self.flips_at,
            "sharding": self.sharding, "cost_kept_s": self.cost_kept_s, "cost_best_s": self.cost_best_s,
            "proved": self.proved,
        }  # fmt: skip


@dataclass(frozen=True)
class BreakEven:
    """Where the sharding of a value flips as one parameter moves.

    by: the parameter. now: its value in the plan (factor 1 for bandwidth; bytes; rows), None for no memory limit.
    unit: of `now` and the flips. searched: the least and largest value that was looked at. levels: for bandwidth the
    links and their bytes/s one way in the plan. rival: the sharding that the decision is held against, if any.
    stands_now: whether the decision stands at `now` (not always: the plan may be another strategy's, and the rival may
    displace a statement).
    """

    value: str
    sharding: str
    by: str
    unit: str
    now: float | None
    searched: tuple[float, float]
    flips: tuple[Flip, ...]
    levels: tuple[tuple[str, float], ...] = ()
    rival: str | None = None
    stands_now: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, for JSON."""
        return {
            "value": self.value, "sharding": self.sharding, "instead": self.rival, "by": self.by, "unit": self.unit,
            "now": self.now, "stands_now": self.stands_now, "searched": list(self.searched),
            "flips": [
                {**flip.to_dict(), "links": [{"link": n, "bytes_per_s": rate * flip.at} for n, rate in self.levels]}
                if self.levels
                else flip.to_dict()
                for flip in self.flips
            ],
            "links": [{"link": name, "bytes_per_s": rate} for name, rate in self.levels],
        }  # fmt: skip

    def _amount(self, at: float) -> str:
        """A value of the parameter, with its unit."""
        if self.by == "memory":
            return bytes_text(at)
        if self.by == "batch":
            return f"{at:.0f} rows"
        return (
            f"{at:.3g} x the bandwidth ("
            + ", ".join(f"{n} {rate * at / 1e9:.4g} GB/s" for n, rate in self.levels)
            + ")"
        )

    def __str__(self) -> str:
        against = f" against {self.rival}" if self.rival else ""
        now = "no limit" if self.now is None else self._amount(self.now)
        lines = [f"{self.value}: {self.sharding}{against}, by {self.by}, now {now}"]
        for flip in self.flips:
            word = "above" if flip.direction == "up" else "below"
            nothing = ("no plan exists" if flip.proved else "no plan was found") + (
                " with either" if self.rival else ""
            )
            there = f"it is {flip.sharding}" + ("" if flip.proved else f" (no plan with {self.sharding} was found)")
            lines.append(f"  {word} {self._amount(flip.at)} " + (there if flip.sharding else nothing))
        if not self.flips:
            lo, hi = self.searched
            where = "stands everywhere" if self.stands_now else "stands nowhere, something else is cheaper,"
            lines.append(f"  {where} from {self._amount(lo)} to {self._amount(hi)}")
        elif not self.stands_now:
            lines.append(
                "  so it does not stand now: " + ("that one is the cheaper" if self.rival else "a better is known")
            )
        return "\n".join(lines)
