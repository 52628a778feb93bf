"""Logical axis rules from a plan: what MaxText's ``logical_axis_rules`` and flax's rules can say of its shardings.

Rules map logical names of dimensions to mesh axes, for all arrays at once. A plan decides array by array, so rules may
not hold all of it: those that hold most bytes are searched for, and what they cannot say is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from autoshard.api.specs import layouts, spec_of
from autoshard.errors import InputError, UnsupportedError
from autoshard.strategies.named import roles_of

if TYPE_CHECKING:
    from autoshard.plan_record import PlanRecord

Names = tuple[str | None, ...]
Dims = tuple[tuple[str, ...], ...]
Rule = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Unsaid:
    """An input whose sharding the rules do not give. planned, ruled: mesh axes of each dimension."""

    path: str
    names: Names
    planned: str
    ruled: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class LogicalRules:
    """Rules, in order: (logical name, mesh axes); what they leave unsaid.

    unnamed: inputs whose dimensions have no logical names. said_bytes, all_bytes: of the inputs that have some.
    """

    rules: tuple[Rule, ...]
    unsaid: tuple[Unsaid, ...]
    unnamed: tuple[str, ...]
    said_bytes: int
    all_bytes: int

    def maxtext(self) -> str:
        """The rules as MaxText's configs have them, with what they cannot say as comments."""
        rows = [f"  [{json.dumps(name)}, {json.dumps(list(axes))}]," for name, axes in self.rules]
        return "\n".join([*(f"# {line}" for line in self.caveats()), "logical_axis_rules: [", *rows, "]"]) + "\n"

    def flax(self) -> str:
        """The rules as ``flax.linen.logical_axis_rules`` takes them, with what they cannot say as comments."""
        rows = [f"    ({json.dumps(name)}, {_python(axes)})," for name, axes in self.rules]
        return "\n".join([*(f"# {line}" for line in self.caveats()), "RULES = (", *rows, ")"]) + "\n"

    def caveats(self) -> list[str]:
        """What the rules cannot say, in lines."""
        share = 100.0 * self.said_bytes / self.all_bytes if self.all_bytes else 100.0
        hold = "1 rule holds" if len(self.rules) == 1 else f"{len(self.rules)} rules hold"
        lines = [
            f"{hold} {share:.4g}% of the bytes of the planned inputs; XLA decides what happens between these: compare "
            "its collectives: autoshard lower PLAN --target shardings"
        ]
        alike: dict[tuple[Names, str, str], list[str]] = {}
        for unsaid in self.unsaid:
            alike.setdefault((unsaid.names, unsaid.planned, unsaid.ruled), []).append(unsaid.path)
        for (names, planned, ruled), paths in alike.items():
            lines.append(f"not said: {', '.join(paths)} {_named(names)} is {planned}, by the rules {ruled}")
        if self.unnamed:
            lines.append(f"without logical names: {', '.join(self.unnamed)}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The rules as plain data."""
        return {
            "rules": [[name, list(axes)] for name, axes in self.rules],
            "unsaid": [{**asdict(u), "names": list(u.names)} for u in self.unsaid],
            "unnamed": list(self.unnamed),
            "said_bytes": self.said_bytes,
            "all_bytes": self.all_bytes,
        }


@dataclass
class _Group:
    """Inputs with the same names and the same sharding, and their bytes. dims: None where no rule can name it."""

    names: Names
    dims: Dims | None
    text: str
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """Of all of these inputs."""
        return sum(self.sizes.values())


def logical_rules(plan: PlanRecord, roles: Mapping[str, Any] | None = None) -> LogicalRules:
    """The rules that hold most of the inputs' bytes.

    roles: logical names of the dimensions by path of the inputs (`*` for a step), as in ``logical_axes`` of a config;
    by default those of the plan's config. Raises `InputError` where there are none, or one array has a name twice.
    """
    named = roles_of(plan.program, _roles(plan) if roles is None else roles)
    groups: dict[tuple[Names, str], _Group] = {}
    unnamed: list[str] = []
    known = layouts(plan)
    for path, value in zip(plan.program.input_names, plan.program.body.args, strict=False):
        names = named.get(value)
        kind = plan.program.type_of(value)
        if names is None or not any(names):
            if kind.rank:
                unnamed.append(path)
            continue
        told = [name for name in names if name]
        if len(set(told)) < len(told):
            raise InputError(
                f"{path} has a logical name twice, {_named(names)}: rules cannot tell its dimensions apart"
            )
        text = plan.schedule.definitions[value].text(plan.schedule.mesh)
        try:
            spec = spec_of(known[path], plan.schedule.mesh, path)
            dims: Dims | None = tuple(_axes(entry) for entry in spec)
        except UnsupportedError:
            dims = None
        group = groups.setdefault((names, text), _Group(names, dims, text, {}))
        group.sizes[path] = int(kind.bytes)
    every = list(groups.values())
    rules = _best(every)
    unsaid: list[Unsaid] = []
    for group in every:
        dims = applied(rules, group.names)
        if group.dims != dims:
            told = {"names": group.names, "planned": group.text, "ruled": _text(dims)}
            unsaid += [Unsaid(path=path, bytes=size, **told) for path, size in group.sizes.items()]
    total = sum(group.bytes for group in every)
    return LogicalRules(
        rules=rules, unsaid=tuple(unsaid), unnamed=tuple(unnamed), said_bytes=total - sum(u.bytes for u in unsaid),
        all_bytes=total,
    )  # fmt: skip


def applied(rules: Sequence[Rule], names: Names) -> Dims:
    """Mesh axes of each dimension by the rules, as flax applies them: the first rule of a name whose axes are free."""
    dims: list[tuple[str, ...]] = [()] * len(names)
    taken: set[str] = set()
    for name, axes in rules:
        if name in names and not taken & set(axes) and not dims[at := names.index(name)]:
            dims[at] = axes
            taken |= set(axes)
    return tuple(dims)


def _best(groups: Sequence[_Group]) -> tuple[Rule, ...]:
    """Rules that hold most bytes, then most inputs, with the fewest rules; by single changes until none helps."""
    weights: dict[Rule, int] = {}
    for group in groups:
        for name, axes in zip(group.names, group.dims or (), strict=False):
            if name and axes:
                weights[name, axes] = weights.get((name, axes), 0) + group.bytes
    candidates = sorted(weights, key=lambda rule: (-weights[rule], rule))

    def worth(rules: Sequence[Rule]) -> tuple[int, int, int]:
        held = [g for g in groups if g.dims == applied(rules, g.names)]
        return sum(g.bytes for g in held), sum(len(g.sizes) for g in held), -len(rules)

    best: list[Rule] = list(candidates)
    score = worth(best)
    changed = True
    while changed:
        changed = False
        for rule in candidates:
            without = [other for other in best if other != rule]
            options = [without, *([*without[:at], rule, *without[at:]] for at in range(len(without) + 1))]
            for option in options:
                if worth(option) > score:
                    best, score, changed = option, worth(option), True
    return tuple(best)


def _roles(plan: PlanRecord) -> Mapping[str, Any]:
    from autoshard.config.asking import roles_of_config
    from autoshard.config.load import Config
    from autoshard.config.problem import build_problem

    roles: Mapping[str, Any] | None = None if plan.priorities is None else plan.priorities.roles
    if not roles and plan.config is not None:
        config = Config.from_dict(plan.config)
        roles = config.settings.logical_axes
        if config.model is not None:
            roles = roles_of_config(config, build_problem(config))
    if not roles:
        raise InputError(
            "rules need logical names of the inputs' dimensions, and this plan knows none: give logical_axes in the "
            "config, or in Python plan.logical_axis_rules({'state/params/w1': ['embed', 'mlp']})"
        )
    return roles


def _axes(entry: Any) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _named(names: Names) -> str:
    return "(" + ", ".join(name or "-" for name in names) + ")"


def _text(dims: Dims) -> str:
    return "[" + ", ".join("{" + ", ".join(json.dumps(axis) for axis in axes) + "}" for axes in dims) + "]"


def _python(axes: tuple[str, ...]) -> str:
    return json.dumps(axes[0]) if len(axes) == 1 else "(" + ", ".join(json.dumps(axis) for axis in axes) + ")"
