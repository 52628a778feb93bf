"""Stages by the names of strategies: "batch first, then Megatron, then ZeRO" as a list of names or of rules (S2.5).

Each strategy gets the mesh axes that it has in the mix of all of them. Its shardings of inputs are propagated to the
ops. A stage starts from both, and then fixes the placements of its axes. Statements hold in every stage.
"""

from collections.abc import Collection, Mapping, Sequence

from autoshard.constraints import MatchedPin
from autoshard.errors import InputError
from autoshard.formulation.fixed import Cut, Fixed
from autoshard.plan_record import NamedPriorities
from autoshard.planning.problem import Problem
from autoshard.planning.spread import factor_cuts, spread
from autoshard.planning.stages import StagePlan
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.named import (
    NamedStrategy,
    Roles,
    check_rules,
    named_strategy,
    statements,
    strategy_from_rules,
)
from autoshard.strategies.names import assign_axes, parts_of

Named = str | Mapping[str, object]
"""A name such as ``fsdp``, or ``{"name": ..., "rules": {logical axis: mesh axes}}``."""

_ON_ROWS = {"zero1": "data"}
"""Parts that use the axes of another part."""


def named_stages(
    problem: Problem, names: Sequence[Named], roles: Roles | None, slow: Collection[str] = ()
) -> list[StagePlan]:
    """One stage for each strategy, in order.

    roles: the logical axes of the inputs. slow: mesh axes between slices. Raises `InputError` for unknown names, for
    strategies that need more axes than the mesh has, where no logical axes are known, and for rules about none of them.
    """
    if roles is None:
        raise InputError("priorities by name need to know the logical axes of the inputs; give logical_axes")
    strategies = [_strategy(item, names, problem.mesh.mesh, slow) for item in names]
    for item, strategy in zip(names, strategies, strict=True):
        if isinstance(item, Mapping):
            check_rules(strategy, roles)
    out: list[StagePlan] = []
    for priority, strategy in enumerate(strategies):
        stated = statements(strategy, problem.program, problem.mesh.mesh, roles)
        pins = [
            *problem.pins,
            *(MatchedPin(strategy.name, sharding, (value,), ()) for value, sharding in sorted(stated.spread.items())),
        ]
        pins = _agreeing(pins, len(problem.pins))
        propagated = spread(problem.program, problem.mesh, pins, problem.groups, problem.restrictions)
        inputs: dict[int, Cut] = {}
        for value, sharding in stated.pins.items():
            cut = tuple(
                tuple(a for ref in d.axes for a in problem.mesh.atoms_for(ref) if problem.mesh.sizes[a] > 1)
                for d in sharding.dims
            )
            if any(cut):
                inputs[value] = cut
        atoms = frozenset(a for cut in inputs.values() for atoms in cut for a in atoms)
        fixed = Fixed(ops=factor_cuts(propagated, problem.program, problem.mesh), values=inputs)
        words = tuple(f"{strategy.name}: {logical} on {', '.join(axes)}" for logical, axes in strategy.rules.items())
        out.append(StagePlan(priority, problem.pins, atoms, words, fixed, strategy.name))
    return out


def named_words(names: Sequence[Named], roles: Roles | None, slow: Collection[str] = ()) -> NamedPriorities | None:
    """The arguments of `named_stages` besides the problem, for the plan's record; None where there are no names."""
    if not names or roles is None:
        return None
    return NamedPriorities(
        names=tuple(name if isinstance(name, str) else dict(name) for name in names),
        roles={path: tuple(axes) for path, axes in roles.items()}, slow=tuple(sorted(slow)),
    )  # fmt: skip


def _agreeing(pins: Sequence[MatchedPin], stated: int) -> list[MatchedPin]:
    """The stated pins, and those of the strategy's pins that are on values without a stated pin."""
    taken = {v for pin in pins[:stated] for v in pin.values}
    return [pin for k, pin in enumerate(pins) if k < stated or not taken.intersection(pin.values)]


def _strategy(item: Named, names: Sequence[Named], mesh: Mesh, slow: Collection[str]) -> NamedStrategy:
    if not isinstance(item, str):
        rules = item.get("rules")
        if not isinstance(rules, Mapping):
            raise InputError(f"a stage is a name such as data, or a mapping with name and rules; found {item!r}")
        return strategy_from_rules(str(item.get("name", "rules")), rules, mesh)
    parts = [part for name in names if isinstance(name, str) for part in parts_of(name)]
    mixed = [part for part in dict.fromkeys(parts) if part not in _ON_ROWS or _ON_ROWS[part] not in parts]
    axes, _ = assign_axes("+".join(mixed), mesh, slow)
    own = {a for part in parts_of(item) for a in axes[part if part in axes else _ON_ROWS[part]]}
    sizes = {name: size for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True) if name in own}
    return named_strategy(item, Mesh.from_dict(sizes), slow)


def check_names(names: Sequence[Named], mesh: Mesh, slow: Collection[str] = ()) -> None:
    """Raise `InputError` where a list of stages cannot be on a mesh, whatever the program is."""
    for item in names:
        _strategy(item, names, mesh, slow)
