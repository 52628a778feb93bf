"""What one device holds over the program, by what it is for."""

from dataclasses import dataclass

from autoshard.costs import liveness
from autoshard.costs.fusion import Fusion
from autoshard.costs.memory import Held, holdings
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Origin
from autoshard.report.view.source import AGAIN, BACKWARD, place_of

COPIES, GRADIENTS, RECOMPUTED, VALUES = "resharded copies", "backward", "recomputed", "activations and temporaries"
MOST_INPUTS = 5
"""The most groups that inputs are divided into."""


@dataclass(frozen=True)
class MemoryView:
    """What one device holds over time.

    held: every array that is held at some time. groups[k]: what held[k] is for. points: how many points in time there
    are. time: op id -> the point at which it runs.
    """

    held: list[Held]
    groups: list[str]
    points: int
    time: dict[int, int]


def memory_view(plan: PlanRecord, fusion: Fusion) -> MemoryView:
    """What is held when, as `costs.memory.simulate` counts it."""
    program = plan.program
    live = liveness.analyse(program, fusion)
    held = holdings(program, plan.schedule, live, plan.machine.profile.memory_tile)
    held = [item for item in held if item.bytes]
    inputs = _input_groups(plan)
    made = {value: op for op, _ in program.walk() for value in op.results}

    def group(item: Held) -> str:
        if item.copy:
            return COPIES
        if item.value in inputs:
            return inputs[item.value]
        if program.values[item.value].origin is Origin.CONST:
            return "constants"
        phase = place_of(made[item.value].source).phase if item.value in made else ""
        return {BACKWARD: GRADIENTS, AGAIN: RECOMPUTED}.get(phase, VALUES)

    return MemoryView(held, [group(item) for item in held], live.points, live.time)


def _input_groups(plan: PlanRecord) -> dict[int, str]:
    """Input value -> its group, the first steps of its path: ``state/params``, ``state/opt``, ``batch``."""
    names = dict(zip(plan.program.body.args, plan.program.input_names, strict=False))
    for steps in (2, 1):
        group_of = {v: "/".join(name.split("/")[:-1][:steps]) or name for v, name in names.items()}
        if len(set(group_of.values())) <= MOST_INPUTS:
            return group_of
    return dict.fromkeys(names, "inputs")
