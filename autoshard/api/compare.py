"""`autoshard.compare`: strategies side by side on a function, one's own among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoshard.api.verbs import request_of_call
from autoshard.errors import InputError
from autoshard.interrupts import heeded
from autoshard.planning import build_model
from autoshard.program.program import Program
from autoshard.questions.compare import Comparison, compare_strategies
from autoshard.request.asking import asked
from autoshard.request.own import OwnStrategy, named_own, stated_by, task_of
from autoshard.request.request import Request
from autoshard.request.specs import with_stated
from autoshard.strategies.choice import NAMES, StrategyName

if TYPE_CHECKING:
    from autoshard.strategies.stated import StatedShardings

Strategies = Sequence[str | OwnStrategy] | Mapping[str, str | OwnStrategy]


@heeded()
def compare(
    f: Callable[..., Any], *specs: Any, mesh: Any, hardware: Any, strategies: Strategies = NAMES, **words: Any
) -> Comparison:
    """Solve one program by several strategies: cost, regret against the proven bound, peak memory and seconds of each.

    f, specs, mesh, hardware, and what else is given by name are as in `autoshard.plan`; `baselines` get rows too.
    strategies: names (docs/strategies.md) and functions of your own, in a list or by the names of their rows,
        ``{"mine": function, "joint": "joint"}``. A function is called with a `Task` and returns shardings: a mapping
        from names or patterns of values to shardings, a list of `Pin`, or PartitionSpecs as `jax.jit` takes them. What
        they leave open follows by propagation, and is solved where that leaves a choice. Strategies that decide by cost
        start from what the others found, so that ``joint`` is never worse than yours.

    Raises what `autoshard.plan` raises, and `InputError` where a function fails or states what does not fit. A strategy
    that cannot hold beside the statements or within the memory limit has a row with the reason.
    """
    request, _ = request_of_call(f, specs, mesh=mesh, hardware=hardware, **words)
    return compare_request(request, named_own(strategies))


@heeded()
def compare_request(
    request: Request, strategies: Sequence[tuple[str, str | StrategyName | OwnStrategy]], *, baselines: bool = True
) -> Comparison:
    """The comparison of strategies, by the names of their rows, on a request. baselines: those of the request too."""
    if request.mesh_search is not None:
        raise InputError("a comparison needs the sizes of the mesh; let solve find them first")
    named: dict[StrategyName, str] = {}
    for name, strategy in strategies:
        if isinstance(strategy, str | StrategyName):
            parsed = StrategyName.parse(strategy) if isinstance(strategy, str) else strategy
            if parsed in named:
                raise InputError(f"strategies: {parsed} is named twice")
            named[parsed] = name
    model = build_model(asked(request).problem, request.options.progress, deadline=request.options.deadline)
    problem, traced = model.problem, request.traced
    own: list[StatedShardings] = []
    if len(named) < len(strategies):
        task = task_of(problem, traced, request.roles)
        own = [stated_by(name, s, task, traced) for name, s in strategies if not isinstance(s, str | StrategyName)]
    told = list(request.baselines) if baselines else []
    if not isinstance(traced, Program):
        told = with_stated(told, traced, problem.program, problem.mesh.mesh) if baselines else []
    comparison = compare_strategies(
        model, list(named), own=own, baselines=told, roles=request.roles, slow=request.between_slices,
        options=request.options,
    )  # fmt: skip
    rows = {(row.kind, row.strategy): row for row in comparison.rows}
    for parsed, name in named.items():
        rows["strategy", str(parsed)] = replace(rows["strategy", str(parsed)], strategy=name)
    keys = [
        ("strategy", str(StrategyName.parse(s) if isinstance(s, str) else s))
        if isinstance(s, str | StrategyName)
        else ("own", name)
        for name, s in strategies
    ]
    keys += [key for key in rows if key not in keys]
    return replace(comparison, rows=tuple(rows[key] for key in keys))
