"""Effects in a traced function: debug output can be left out; for all others the error says what to write instead."""

from typing import Any

from autoshard.errors import InputError, UnsupportedError
from autoshard.program.program import Program

CHOICES = ("refuse", "drop")
_LEFT_OUT = "effects='drop': left out of the program"

_DEBUG = {"debug_print": "jax.debug.print", "debug_callback": "jax.debug.callback"}
_HARMLESS = frozenset({"NamedAxisEffect"})
_REFS = frozenset({"new_ref", "get", "swap", "addupdate", "freeze", "run_state", "core_ref", "empty_ref", "free_ref"})
_OF_EQUINOX = "error_if"

_INSTEAD = {
    "pure_callback": "write it in JAX, or call it outside: plan what comes before and after it by itself",
    "io_callback": "give back what it needs as a result, and call it outside of what is planned",
    "infeed": "pass the data as an argument",
    "outfeed": "give the data back as a result",
    "check": "plan checkify.checkify(f), which returns its errors",
    _OF_EQUINOX: (
        "set the environment variable EQX_ON_ERROR=nan (or off) before equinox is imported, or check what the planned "
        "function gives back"
    ),
}
_OF_DEBUG = "plan with effects='drop' to leave debug output out, or remove it"
_OF_REFS = (
    "take the value as an argument and give the new one back (a carry of jax.lax.scan): mutable references are not "
    "planned, also those that never leave the function"
)
_OF_OTHERS = "remove it from the function that is planned"


def effects_given(effects: Any) -> str:
    """The option ``effects``, checked: ``refuse`` (also for None) or ``drop``."""
    if effects is None:
        return "refuse"
    if effects not in CHOICES:
        raise InputError(f"effects is {effects!r}; give 'refuse', or 'drop' to leave debug output out")
    return effects


def left_out(kind: str, where: str) -> str:
    """The warning about debug output that is left out."""
    return f"{_LEFT_OUT}: {_DEBUG[kind]} at {where}"


def effects_of(program: Program) -> str:
    """The option ``effects`` with which a program was traced."""
    return "drop" if any(line.startswith(_LEFT_OUT) for line in program.warnings) else "refuse"


def is_debug(kind: str) -> bool:
    """Whether a primitive is debug output, which can be left out."""
    return kind in _DEBUG


def refuse_effects(eqn: Any, where: str) -> None:
    """`UnsupportedError` for an equation with a side effect; where: its place in the source."""
    kind = str(eqn.primitive.name)
    effects = sorted({type(e).__name__ for e in eqn.effects} - _HARMLESS)
    if kind not in _INSTEAD and kind != "dce_sink" and not effects:
        return
    why = f"has side effects ({', '.join(effects)})" if effects else "calls back into Python"
    hint = _INSTEAD.get(kind, _OF_OTHERS)
    what = f"{_DEBUG.get(kind, kind)} ({kind})" if kind in _DEBUG else kind
    if kind in _DEBUG:
        hint = _OF_DEBUG
    elif kind in _REFS:
        what, hint = f"the mutable reference ({kind})", _OF_REFS
    elif kind == "pure_callback" and _of_equinox(eqn):
        what, hint = f"equinox.error_if ({kind})", _INSTEAD[_OF_EQUINOX]
    raise UnsupportedError(f"{what} at {where} {why}, which a planned program on many devices cannot keep; {hint}")


def _of_equinox(eqn: Any) -> bool:
    callback = eqn.params.get("callback")
    function = getattr(callback, "callback_func", callback)
    return str(getattr(function, "__module__", "")).partition(".")[0] == "equinox"
