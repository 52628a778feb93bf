"""The place of an op in the source, taken apart: file, function, named scopes, and which part of a train step it is."""

import re
from dataclasses import dataclass
from functools import lru_cache

_PLACE = re.compile(r"^(?P<file>[^\s(\[]+:\d+)?\s*(?:\((?P<function>.*?)\))?\s*(?:\[(?P<stack>.*)\])?$", re.DOTALL)
_WRAPPED = re.compile(r"^(?:jvp|transpose|vmap|jit|pjit|custom_jvp|custom_vjp|remat|checkpoint|rematted_computation)\(")
_OWN = frozenset({"", "while", "body", "cond", "closed_call", "checkpoint", "rematted_computation", "remat", "scan"})

FORWARD, BACKWARD, AGAIN, OTHER = "forward", "backward", "recomputed", ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an op comes from.

    file: ``model.py:12``. function: the innermost function's name. scopes: names that the user gave (modules,
    `jax.named_scope`). phase: ``forward``, ``backward``, ``recomputed`` (for the backward pass), or "" if not known.
    """

    file: str
    function: str
    scopes: tuple[str, ...]
    phase: str


@lru_cache(maxsize=100_000)
def place_of(source: str) -> Place:
    """The parts of an op's `source`.

    >>> place_of("layers.py:41 (rms_norm) [transpose(jvp(Block))/attn]")
    Place(file='layers.py:41', function='rms_norm', scopes=('Block', 'attn'), phase='backward')
    """
    match = _PLACE.match(source.strip())
    if match is None:
        return Place(source, "", (), OTHER)
    stack = match["stack"] or ""
    if "rematted_computation" in stack:
        phase = AGAIN
    elif "transpose(" in stack:
        phase = BACKWARD
    else:
        phase = FORWARD if "jvp(" in stack else OTHER
    function = (match["function"] or "").replace("<lambda>", "").replace("<locals>", "")
    names = [name for name in function.split(".") if name]
    scopes = tuple(name for name in map(_unwrapped, _parts(stack)) if name not in _OWN and not re.search(r"[>,]", name))
    return Place(match["file"] or "", names[-1] if names else "", scopes, phase)


def _parts(stack: str) -> list[str]:
    """The names of a name stack: it is split at the slashes outside of brackets."""
    parts, depth, now = [], 0, ""
    for char in stack:
        depth += (char == "(") - (char == ")")
        if char == "/" and depth == 0:
            parts.append(now)
            now = ""
        else:
            now += char
    return [*parts, now]


def _unwrapped(name: str) -> str:
    """A name without JAX's wrappers: ``transpose(jvp(Block))`` is ``Block``."""
    while _WRAPPED.match(name) and name.endswith(")"):
        name = name[name.index("(") + 1 : -1]
    return name
