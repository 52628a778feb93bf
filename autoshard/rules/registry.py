"""The table of rule functions by the name of the primitive."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.rules.build import Call, UnknownParametersError

RuleFunction = Callable[[Call], ShardingRule]


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule; where it is only a fallback, also a warning for the user."""

    rule: ShardingRule
    warning: str | None = None


_BUILTIN: dict[str, RuleFunction] = {}
_CUSTOM: dict[str, RuleFunction] = {}
_LOCAL_CARE: dict[str, str] = {}


def rule(*kinds: str, local_care: str = "") -> Callable[[RuleFunction], RuleFunction]:
    """Decorator: register a rule function for primitives by name.

    local_care: for primitives whose local form is *not* the same primitive with local sizes in its parameters, a note
        on what a device has to do instead (see `local_care_of`).
    """

    def register(function: RuleFunction) -> RuleFunction:
        for kind in kinds:
            assert kind not in _BUILTIN, f"two rules for {kind}"
            _BUILTIN[kind] = function
            if local_care:
                _LOCAL_CARE[kind] = local_care
        return function

    return register


def rule_for(
    kind: str, operands: Sequence[TensorType], results: Sequence[TensorType], params: Mapping[str, Any]
) -> RuleMatch:
    """The sharding rule of one op.

    kind: the primitive's name (``dot_general``). params: its parameters as in a jaxpr equation;
    ``params["_literals"]`` may map operand indices to the Python scalars of literal operands. An
    unknown primitive gets the conservative rule (everything whole on every device) and a warning.
    Raises `RuleError` where a registered rule does not fit the types.

    >>> from autoshard.rules import rule_for
    >>> f32 = lambda *shape: TensorType(shape, "float32")
    >>> numbers = (((1,), (0,)), ((), ()))
    >>> print(rule_for("dot_general", [f32(8, 32), f32(32, 16)], [f32(8, 16)], {"dimension_numbers": numbers}).rule)
    ([i, j], [j, k])->([i, k]) {i=8, j=32, k=16} reduction={j}
    """
    call = Call(kind, tuple(operands), tuple(results), params)
    function = _CUSTOM.get(kind) or _BUILTIN.get(kind)
    if function is None:
        return RuleMatch(
            call.conservative(),
            f"no sharding rule for {call}: it runs whole on every device; "
            f"register_rule({kind!r}, ...) can say how it may be sharded",
        )
    try:
        return RuleMatch(function(call))
    except UnknownParametersError as missing:
        return RuleMatch(
            call.conservative(),
            f"{call} has no parameter {missing} (found {sorted(params)}), so its rule does not apply "
            "and it runs whole on every device",
        )


def known_primitives() -> tuple[str, ...]:
    """Names of all primitives with a built-in rule, sorted."""
    return tuple(sorted(_BUILTIN))


def has_rule(kind: str) -> bool:
    """Whether a primitive has a rule, built in or a user's."""
    return kind in _CUSTOM or kind in _BUILTIN


def local_care_of(kind: str) -> str | None:
    """The note on what a device must do besides running the primitive on its block with local sizes; None if
    nothing.
    """
    return _LOCAL_CARE.get(kind)


def set_custom(kind: str, function: RuleFunction | None) -> None:
    """Install or (None) remove a user's rule; it takes precedence over a built-in one."""
    if function is None:
        _CUSTOM.pop(kind, None)
    else:
        _CUSTOM[kind] = function
