"""All kinds of statements that a config, `autoshard.plan` and plan.json may hold.

A new kind is a file beside the others and an entry here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from autoshard.constraints import groups, host_memory_limit, kernel, memory_limit, pin, shard_map
from autoshard.constraints.kind import Kind
from autoshard.constraints.restrictions import (
    axis_only,
    barrier,
    manual_computation,
    max_reshards,
    memory_kind,
    no_collective,
    replicated,
)
from autoshard.constraints.statement import Matched, Statement
from autoshard.errors import AutoshardError, InputError, in_words, listing
from autoshard.sharding.mesh import Mesh

_KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        pin.KIND, groups.KIND, replicated.KIND, axis_only.KIND, no_collective.KIND, max_reshards.KIND, barrier.KIND,
        memory_kind.KIND, manual_computation.KIND, memory_limit.KIND, host_memory_limit.KIND, shard_map.KIND,
        kernel.KIND,
    )
}  # fmt: skip
"""The kinds by name, in the order in which the statements of a config stand in plan.json."""

M = TypeVar("M", bound=Matched)


def register(kind: Kind) -> Kind:
    """Let configs, `autoshard.plan` and plan.json have statements of another kind, which is returned.

    Raises `InputError` where a kind has this name already, or is written under its key.
    """
    keys = {other.config.name for other in _KINDS.values() if other.config is not None}
    if kind.name in _KINDS or (kind.config is not None and kind.config.name in keys):
        raise InputError(f"there is a kind of statement {kind.name!r}, or one with its key in configs, already")
    _KINDS[kind.name] = kind
    return kind


def unregister(kind: Kind) -> None:
    """Forget a kind that was registered."""
    if _KINDS.get(kind.name) is not kind:
        raise InputError(f"no kind of statement {kind.name!r} is registered")
    del _KINDS[kind.name]


def kinds() -> tuple[Kind, ...]:
    """All kinds, in the order of plan.json."""
    return tuple(_KINDS.values())


def stated() -> tuple[type[Statement], ...]:
    """The classes that `constraints` of `autoshard.plan` may hold."""
    return tuple(kind.stated for kind in kinds() if kind.stated is not None)


def stated_names() -> str:
    """The names of these classes, for messages."""
    *names, last = (cls.__name__ for cls in stated())
    return f"{', '.join(names)} and {last}"


def read(statement: Mapping[str, Any], mesh: Mesh | None = None) -> Matched:
    """A statement of plan.json as a value of its kind. mesh: that of the plan.

    `InputError` for an unknown kind, and for a damaged entry.
    """
    name = statement.get("kind")
    if not isinstance(name, str):
        raise InputError(f"plan: the statement {_short(statement)} has no kind")
    if name not in _KINDS:
        raise InputError(f"plan: there is no kind of statement {name!r}; {listing(name, _KINDS)}")
    try:
        made = _KINDS[name].matched.from_dict(statement, mesh)
        made.told  # noqa: B018 - words that cannot be put together are told when the file is read
        return made
    except KeyError as error:
        raise InputError(f"plan: the statement {_short(statement)} has no {error.args[0]}") from None
    except (AutoshardError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"plan: the statement {_short(statement)} cannot be read: {in_words(error)}") from None


def read_all(statements: Iterable[Mapping[str, Any]], mesh: Mesh | None = None) -> tuple[Matched, ...]:
    """The statements of a plan.json. mesh: that of the plan."""
    return tuple(read(statement, mesh) for statement in statements)


def read_only(kind: type[M], statements: Iterable[Mapping[str, Any]]) -> tuple[M, ...]:
    """The statements of one kind in a plan.json."""
    of_kind = (read(statement) for statement in statements if statement.get("kind") == kind.kind)
    return tuple(matched for matched in of_kind if isinstance(matched, kind))


def _short(statement: Mapping[str, Any]) -> str:
    text = repr(dict(statement))
    return text if len(text) <= 80 else text[:77] + "..."
