"""Where a program that was traced now is not the one of a plan, for messages."""

from typing import Any

Json = Any
MISSING = "not there"
"""Stands for the value of a key that only one of two objects has: null is another value."""


def program_difference(now: Json, planned: Json) -> str:
    """Where two programs as JSON differ, in words: arguments, then what is donated, then the rest; empty if equal."""
    if now == planned:
        return ""
    ours, theirs = _arguments(now), _arguments(planned)
    for name in [*theirs, *(n for n in ours if n not in theirs)]:
        if ours.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name, 'not there')} in the plan, {ours.get(name, 'not there')} now"
    if now["donated"] != planned["donated"]:
        return f"donated are {_named(planned)} in the plan, {_named(now)} now"
    return _difference(now, planned, "program")


def _arguments(program: Json) -> dict[str, str]:
    values = {v["id"]: v for v in program["values"]}
    inputs = [values[k] for k in program["body"]["args"]]
    types = [f"{v['dtype']}[{','.join(map(str, v['shape']))}]" for v in inputs]
    return dict(zip(program["input_names"], types, strict=False))  # as many, but in damaged files


def _named(program: Json) -> str:
    return ", ".join(program["input_names"][k] for k in program["donated"]) or "no arguments"


def _difference(now: Json, planned: Json, where: str) -> str:
    """Where two JSON values differ first; empty where they are equal."""
    if isinstance(now, dict) and isinstance(planned, dict):
        keys = sorted(now.keys() | planned.keys())
        found = (_difference(now.get(k, MISSING), planned.get(k, MISSING), f"{where}.{k}") for k in keys)
        return next((d for d in found if d), "")
    if isinstance(now, list) and isinstance(planned, list):
        pairs = enumerate(zip(now, planned, strict=False))
        found = next((d for k, (a, b) in pairs if (d := _difference(a, b, f"{where}[{k}]"))), "")
        more = f"{where} has {len(planned)} entries in the plan, {len(now)} now" if len(now) != len(planned) else ""
        return found or more
    return "" if now == planned else f"{where} is {str(planned)[:120]} in the plan, {str(now)[:120]} now"
