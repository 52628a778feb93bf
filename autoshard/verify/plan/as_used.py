"""Values that are gathered as the ops that convert them take them: whether they may be, and what is left as it is."""

from autoshard.verify.plan.flow import Flow, Way
from autoshard.verify.plan.program import PROGRAM_OP, Findings
from autoshard.verify.plan.travel import Loads


def stays(flow: Flow, way: Way) -> bool:
    """Whether a use of such a value has it as it is defined, so that nothing is sliced for it. A way there that moves
    anything between devices is none such: programs that slice what was gathered would make it.
    """
    sliced = all(move.kind == "slice" for move in way.moves)
    return way.value in flow.as_used and way.end == flow.defined.get(way.value) and sliced


def narrowed(flow: Flow, loads: Loads) -> dict[int, float]:
    """Of values that are gathered as they are used, the share of their bytes that is gathered."""
    gathered = (v for v in flow.as_used if v in flow.shared)
    return {v: loads.carried("all_gather", v, PROGRAM_OP, as_used=True) for v in gathered}


def check_as_used(flow: Flow, loads: Loads, findings: Findings) -> None:
    """Check every value that the schedule lists under ``as_used``: its shared form is gathered, several ops convert it,
    and all that do not have it as it is defined.
    """
    for value in sorted(flow.as_used):
        if value not in flow.graph.home or value not in flow.shared:
            findings.add("reshards", f"value {value} is said to be gathered as it is used, but shares no form")
            continue
        converts, name = loads.converts(value), flow.name(value)
        if not converts:
            findings.add(
                "reshards",
                f"{name} is said to be gathered as it is used; on this machine no two ops convert it beside others",
            )
        if not _is_gathered(flow, flow.shared[value]):
            findings.add(
                "reshards", f"{name} is said to be gathered as it is used, but its shared form is not gathered"
            )
        for use, way in flow.uses.items():
            if way.value == value and use[0] not in converts and not stays(flow, way):
                findings.add(
                    "uses",
                    f"{flow.use_name(use)}: {name} is gathered as others convert it, so it must arrive as it is "
                    f"defined, {flow.defined[value].text(flow.mesh)}, by slices alone, not in {way.end.text(flow.mesh)}"
                    f"{_by(way)}",
                )


def _is_gathered(flow: Flow, way: Way) -> bool:
    """Whether gathers alone could lead where a way leads. The cheapest way may be another one: over two axes of a torus
    at once, after what one of them cuts has moved to the dimension of the other.
    """
    start, end = flow.defined.get(way.value), way.end
    if start is None or start == end or start.partial or end.partial:
        return False
    cuts = zip(start.runs, end.runs, strict=True)
    return all(after.strides == before.strides[: len(after.strides)] for before, after in cuts)


def _by(way: Way) -> str:
    """The steps of a way, in words."""
    return f" by {', '.join(move.kind for move in way.moves)}" if way.moves else ""
