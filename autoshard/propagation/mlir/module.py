"""Propagation over MLIR modules: the same module with sdy shardings comes back.

With a strategy, this is the work of Shardy's pass of that name. Data-flow edges are added before it and sunk afterwards
where the module has ops that need them and has none. Without a strategy, it is Shardy's whole pipeline with user
priorities: its import passes (constants split, calls inlined, data-flow edges added, constraints applied), our
propagation, its export passes. Rules come from Shardy's own registry.
"""

from jaxlib.mlir import ir

from autoshard.errors import InputError
from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
from autoshard.frontends.mlir.functions import check_functions
from autoshard.garbage import uncollected
from autoshard.propagation.engine import Strategy, run_propagation
from autoshard.propagation.mlir.graph import ModuleGraph, build_module_graph
from autoshard.propagation.mlir.groups import open_conflicting_groups
from autoshard.propagation.mlir.ops import DATA_FLOW, EDGE, FUNC_EDGE, NAMED
from autoshard.propagation.mlir.passes import ADD_EDGES, SINK_EDGES, export_passes, import_passes


def propagate_mlir(
    text: str | bytes,
    *,
    strategy: Strategy | str | None = None,
    conservative: bool = False,
    keep_sub_axes: bool = False,
) -> str:
    """The module with the shardings that propagation finds.

    text: StableHLO with sdy shardings, as text or bytecode.
    strategy: None for the whole pipeline with user priorities; basic, aggressive, op-priority or user-priority for that
        step alone. conservative: pass no sub-axes. keep_sub_axes: let arguments and results of the module end on a
        sub-axis; the pipeline otherwise gathers it (S0.32).
    Raises `InputError` where the module is malformed.
    """
    module = parse_module(text)
    with mlir_context(), ir.Location.unknown():
        propagate_module(module, strategy=strategy, conservative=conservative, keep_sub_axes=keep_sub_axes)
        return module_text(module)


def propagate_module(
    module: ir.Module,
    *,
    strategy: Strategy | str | None = None,
    conservative: bool = False,
    keep_sub_axes: bool = False,
) -> None:
    """As `propagate_mlir`, on a parsed module, in place; call it within the module's context."""
    chosen = Strategy.USER_PRIORITY if strategy is None else Strategy.from_text(str(strategy))
    check_functions(module, inlines_calls=strategy is None)
    with uncollected():
        _propagate_module(module, strategy, chosen, conservative, keep_sub_axes)


def _propagate_module(
    module: ir.Module, strategy: Strategy | str | None, chosen: Strategy, conservative: bool, keep_sub_axes: bool
) -> None:
    add_edges = strategy is not None and needs_edges(module)
    if strategy is None:
        has_named = _has_named_computations(module)
        try:
            run_passes(module, import_passes())
        except InputError as error:
            if not has_named:
                raise
            raise InputError(
                f"{error}; Shardy's import passes cannot handle every named computation: name a strategy "
                "(--strategy user-priority does without these passes), or write it as a function and a call"
            ) from None
    elif add_edges:
        run_passes(module, ADD_EDGES)
    _propagate(module, chosen, conservative)
    if strategy is None:
        run_passes(module, export_passes(keep_sub_axes=keep_sub_axes))
    elif add_edges:
        run_passes(module, SINK_EDGES)


def _propagate(module: ir.Module, strategy: Strategy, conservative: bool) -> ModuleGraph:
    flag = str(conservative).lower()
    groups = open_conflicting_groups(module)
    run_passes(module, f"func.func(sdy-populate-op-sharding-rules{{conservative-propagation={flag}}})")
    built = build_module_graph(module, groups)
    run = run_propagation(built.graph, strategy, conservative=conservative)
    built.write(list(run.erased))
    run_passes(module, "func.func(sdy-drop-sharding-rules)")
    return built


def needs_edges(module: ir.Module) -> bool:
    """Whether there are loops, branches or manual computations but no data-flow edge on any of them.

    Not where there are named computations: an edge on one is not valid outside of the whole pipeline.
    """
    has = {"edge": False, "op": False}

    def visit(op: ir.Operation) -> ir.WalkResult:
        has["edge"] |= op.name in (EDGE, FUNC_EDGE, NAMED)
        has["op"] |= op.name in DATA_FLOW
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return has["op"] and not has["edge"]


def _has_named_computations(module: ir.Module) -> bool:
    has_any = False

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal has_any
        has_any |= op.name == NAMED
        return ir.WalkResult.INTERRUPT if has_any else ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return has_any
