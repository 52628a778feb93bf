"""Answers to small questions, as indented lines of name and value."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.report.amounts import bytes_text, seconds_text


def answer_text(answer: Mapping[str, Any], indent: int = 0, *, unit_of: str = "") -> str:
    """One line for each plain value; names that end in ``_s`` or hold ``seconds`` or ``bytes`` say their unit.

    unit_of: a name that says the unit of all values.

    >>> print(answer_text({"bytes_sent_per_device": {"ici": 2048.0}}))
    bytes_sent_per_device:
      ici: 2 KiB
    >>> print(answer_text({"seconds": 0.0333, "bytes": 2048.0, "axes": ("x", "y"), "parts": [{"kind": "all_reduce"}]}))
    seconds: 33.3 ms
    bytes: 2 KiB
    axes: x, y
    parts:
      kind: all_reduce
    """
    pad, lines = " " * indent, []
    for name, value in answer.items():
        if isinstance(value, Mapping):
            unit = name if "bytes" in name.split("_") else ""
            lines += [f"{pad}{name}:", answer_text(value, indent + 2, unit_of=unit)] if value else []
        elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
            lines.append(f"{pad}{name}:")
            lines += [answer_text(item, indent + 2) for item in value]
        else:
            lines.append(f"{pad}{name}: {_value(unit_of or name, value)}")
    return "\n".join(lines)


def _value(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int | float):
        if name.endswith(("_s", "seconds")) and not name.endswith("per_s"):
            return seconds_text(value)
        if "bytes" in name.split("_"):
            return bytes_text(value) + ("/s" if name.endswith("per_s") else "")
        return f"{value:.6g}"
    if isinstance(value, Sequence):
        return ", ".join(_value("", item) for item in value) or "none"
    return str(value)


def _memory_text(memory: Mapping[str, Any]) -> str:
    """What a device holds in a training step, at least, beside what it has."""
    parts = ("weights", "gradients", "optimizer", "gathered", "activations", "layer", "logits")
    held = ", ".join(f"{name} {bytes_text(memory[name])}" for name in parts if memory[name])
    fits = "fits" if memory["fits"] else "DOES NOT FIT"
    return (
        f"memory per device: {held}; at least {bytes_text(memory['total'])} of {bytes_text(memory['usable'])}: {fits}"
    )


def _bound_text(cost: Mapping[str, Any]) -> str:
    """What the step as a whole is bound by: all work beside all collectives, on the link that they keep busiest."""
    links = cost["communication_s"]
    text = f"bound: all work takes {seconds_text(cost['least_work_s'])} at least"
    if not links:
        return f"{text}, and there are no collectives"
    busiest = max(links, key=links.__getitem__)
    return f"{text}, all collectives together {seconds_text(links[busiest])}, on {busiest}"


def strategy_text(answer: Mapping[str, Any]) -> str:
    """A training step of a named model: step times, then its collectives, then where it would turn compute bound."""
    cost = answer["cost"]
    mesh = " x ".join(f"{axis}={size}" for axis, size in answer["mesh"].items())
    low, high = cost["mfu_bounds"]
    lines = [
        f"{answer['model']} ({answer['params']:.4g} parameters) under {answer['strategy']} "
        f"on {answer['hardware']}, mesh {mesh}",
        f"{answer['batch_tokens']:.4g} tokens a step, {cost['tokens_per_device']:.4g} for each device",
        f"step: at least {seconds_text(answer['seconds'])}, estimate {seconds_text(answer['estimate_seconds'])}, "
        f"at most {seconds_text(answer['upper_seconds'])}; MFU {low:.1%} to {high:.1%}; bound by {answer['bound']}",
        _bound_text(cost),
        f"estimate: MFU {cost['mfu']:.1%}; work, {seconds_text(cost['compute_s'])} with all of attention, at "
        f"{cost['efficiency']:.0%} of the peak"
        + (f", and the pipeline idles {cost['bubble']:.1%} of the time" if cost["bubble"] else ""),
        _memory_text(cost["memory"]),
        "collectives, each by itself beside all work:" if cost["terms"] else "collectives: none",
    ]
    lines += [
        f"  {term['part']}: {term['kind']} over {', '.join(term['axes'])} ({term['what']}), {term['times']:g} x "
        f"{bytes_text(term['bytes'])}, {seconds_text(term['seconds'])}; {term['flops_per_byte']:.4g} FLOP/byte "
        f"beside {term['machine_flops_per_byte']:.4g} of the machine: by itself {term['verdict']} bound"
        for term in cost["terms"]
    ]
    lines += ["compute bound in each pass, forward and backward, where:"] if answer["critical"] else []
    for value in answer["critical"]:
        side, bound = ("at least", value["at_least"]) if value["at_most"] is None else ("at most", value["at_most"])
        lines.append(f"  {value['strategy']}: {value['what']} {side} {bound:.4g} ({value['formula']})")
    return "\n".join([*lines, *(f"note: {note}" for note in cost["notes"])])
