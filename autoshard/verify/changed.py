"""What questions changed of a plan's problem, as the plan that answers them records it.

The pins of a question are believed as the plan has them; which statements give way to them is worked out again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoshard.constraints import MatchedPin
from autoshard.constraints.giving_way import displaced, with_further
from autoshard.errors import InputError, in_words
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True)
class Changes:
    """What holds after all questions.

    pins: all pins. stated: those of them that make stages. memory_limit, machine: in place of the first ones; None if
    they did not change. options: those that are changed. lines: what was changed, for people.
    """

    pins: tuple[MatchedPin, ...]
    stated: tuple[MatchedPin, ...]
    memory_limit: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def changes_of(plan: Mapping[str, Any], pins: Sequence[MatchedPin], mesh: Mesh) -> Changes:
    """What the questions recorded in a plan make of the `pins` that were asked for at first.

    Raises `InputError` where the record cannot be read.
    """
    now: tuple[MatchedPin, ...] = tuple(pins)
    kept: tuple[MatchedPin, ...] = ()
    limit: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] | None = None
    options: dict[str, Any] = {}
    lines: list[str] = []
    questions: Sequence[Any] = plan.get("changed") or []
    try:
        for number, change in enumerate(questions):
            what = f"question {number + 1}"
            further = [MatchedPin.from_dict(pin, mesh) for pin in change["pins"]]
            kept = tuple(MatchedPin.from_dict(pin, mesh) for pin in change["kept"])
            lost = displaced(now, further)[1]
            now = with_further(now, further)
            lines += [f"{what}: pin {pin.pattern}: {pin.sharding}" for pin in further]
            lines += [f"{what}: {pin.told} gives way to that" for pin in lost]
            if change["memory_limit"] is not None:
                limit = change["memory_limit"]
                lines.append(f"{what}: a memory limit of {change['memory_limit']['bytes']} bytes")
            if change["machine"] is not None:
                machine = change["machine"]
                lines.append(f"{what}: another machine, {change['machine']['profile']['name']}")
            if change["program"]:
                lines.append(f"{what}: another batch, whose program is believed")
            options |= change["options"]
            lines += [f"{what}: {key} {value}" for key, value in change["options"].items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"what the plan says of changes cannot be read: {in_words(error)}") from None
    if any(pin not in now for pin in kept):
        raise InputError("the plan says that it had a pin anyway that nobody stated")
    return Changes(now, tuple(pin for pin in now if pin not in kept), limit, machine, options, tuple(lines))
