"""What is known and said where a search ends without a plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoshard.errors import InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.planning.certified import Moments, Proved
from autoshard.planning.model import Model
from autoshard.planning.problem import Problem
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Solution, Stopped


@dataclass
class NoAnswerError(Exception):
    """A search ended without a plan.

    proved: there is none, for this reason. within: it was a search within the memory limit. seen: plans without that
    limit which it met. proof: that there is none, where a search proved it.
    """

    model: Model
    proved: bool
    within: bool
    reason: str
    stopped: Stopped | None
    seen: Sequence[Sequence[int]]
    proof: Proved | None = None

    @property
    def lowest(self) -> int | None:
        """The lowest peak of the plans that were seen, in bytes."""
        model = self.model
        return min(
            (
                model.simulate(model.schedule(assignment)).peak_bytes
                for assignment in self.seen
                if is_plan(model, assignment)
            ),
            default=None,
        )

    def plain(self) -> InfeasibleError | NotFoundError | OutOfTimeError:
        """The error for people, without a search for the statements that are at odds."""
        limit = self.model.problem.memory_limit
        if self.proved:
            words = "" if limit is None else f" within the {limit_words(self.model.problem)}"
            error = InfeasibleError(f"no plan exists{words} (proved): {self.reason}", facts={"proved": True})
            error.proof = self.proof
            return error
        if self.within and limit is not None:
            return self._none_within(limit)
        if self.stopped is Stopped.TIME:
            return OutOfTimeError(
                "no plan was found in the time given, and it is not proved that none exists; raise the time limit"
            )
        return NotFoundError(
            f"no plan was found, and it is not proved that none exists (the search ended: {self.stopped}); search with "
            "more effort"
        )

    def _none_within(self, limit: int) -> NotFoundError | OutOfTimeError:
        achieved = self.lowest
        facts = {"limit_bytes": limit, "achieved_bytes": achieved}
        if self.stopped is Stopped.TIME:
            smallest = "" if achieved is None else f" (the smallest plan seen holds {achieved} bytes)"
            return OutOfTimeError(
                f"no plan within {limit} bytes was found in the time given, and it is not proved that none exists"
                f"{smallest}{f' ({self.reason})' if self.reason else ''}; raise the time limit, or the memory limit",
                facts=facts,
            )
        said = none_within(limit_words(self.model.problem), limit, achieved, None, self.reason)
        return NotFoundError(f"{said}; raise the limit, use more devices or recompute more", facts=facts)


def no_answer(
    model: Model,
    solution: Solution,
    seen: Sequence[Sequence[int]],
    within: int | None = None,
    moments: Moments | None = None,
) -> NoAnswerError:
    """What a search without an assignment says; `seen`: plans that are too full, where there is a limit.

    within, moments: of the network that was searched, see `Proved`. Raises `KeyboardInterrupt` where the user stopped
    it.
    """
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    reason = name_nodes(model, solution.reason or "nothing satisfies all that is stated")
    proof = Proved.none(solution, within, moments)
    proof = None if proof is None else replace(proof, counts=not model.problem.uncounted)
    return NoAnswerError(model, solution.status == "infeasible", False, reason, solution.stopped, seen, proof)


def name_nodes(model: Model, reason: str) -> str:
    """Replace `node 12` and `nodes 12 and 15` in a solver's message by what the nodes decide."""
    import re

    def name(number: str) -> str:
        if int(number) >= model.repeats.network.n_nodes:
            return "what several decisions hold together"
        node = model.collected.nodes[model.repeats.representative(int(number))]
        return f"{node.kind.value} {node.label}"

    def named(match: "re.Match[str]") -> str:
        return " and ".join(name(number) for number in match.groups() if number is not None)

    return re.sub(r"\bnodes? (\d+)(?: and (\d+))?", named, reason)


def limit_words(problem: Problem) -> str:
    """The memory limit as messages name it; `lifting` says more of one that is the device's."""
    words = f"memory limit of {problem.memory_limit} bytes per device"
    return f"{words}, which is the device's own" if problem.device_limit else words


def none_within(words: str, limit: int, achieved: int | None, least: int | None, reason: str = "") -> str:
    """The sentence about a search within a limit that found nothing and proved nothing.

    achieved: the lowest peak that was seen; least: what is proved that every plan holds.
    """
    text = f"no plan was found within the {words}, and it is not proved that none exists"
    parts = [reason] if reason else []
    if achieved is not None and achieved > limit:
        parts.append(f"the smallest plan seen holds {achieved} bytes, {achieved - limit} more than the limit")
    elif achieved is not None:
        parts.append(f"a plan of {achieved} bytes was seen on the way, so more effort will find one")
    if least is not None:
        parts.append(f"at least {least} bytes are live at once in every plan")
    return text + (": " + "; ".join(parts) if parts else "")


def is_plan(model: Model, assignment: Sequence[int]) -> bool:
    """Whether an assignment is a plan, but for the memory limit."""
    return evaluate(model.with_limit(None), assignment).feasible
