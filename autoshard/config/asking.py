"""The request that a config makes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoshard.config.load import Config
from autoshard.config.workload import Workload
from autoshard.request.request import Request
from autoshard.search_options import SearchOptions

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction


def request_of_config(config: Config, problem: Workload, traced: "TracedFunction", options: SearchOptions) -> Request:
    """The request that a config makes.

    problem: the workload that the config names; `traced`: its function. options: with deadline and progress; effort,
    seed and gap are taken from the config. Where it states no effort, a search with a deadline is endless.
    """
    stated = "effort" in config.solver.model_fields_set
    options = options.like(config.solver).but(endless=options.deadline.left() is not None and not stated)
    request = Request(
        traced=traced,
        mesh=_mesh(config),
        hardware=config.hardware,
        statements=config.statements,
        memory_limit=config.memory_limits or None,
        carry=config.carry,
        in_code=config.settings.in_code,
        loop_parts=config.settings.loop_parts,
        priorities=config.priorities,
        roles=roles_of_config(config, problem),
        slow_axes=config.slow_axes,
        baselines=config.baselines,
        strategy=config.settings.strategy,
        objective=config.settings.objective,
        form=config.settings.form,
        share_repeats=config.settings.share_repeats is not False,
        price_sharing=config.settings.share_repeats == "price",
        solver_memory=config.solver.memory,
        options=options,
        config=config.to_dict(),
        notes=(*problem.notes(), *config.annotation_notes),
        model_flop=None if problem.model is None else float(problem.model.model_flop_per_step),
    )
    search = config.mesh_search
    if search is None:
        return request
    return replace(
        request, mesh={"devices": search.devices, "axes": list(search.axes)},
        resized=lambda sizes: request_of_config(config.with_mesh(sizes), problem, traced, options),
    )  # fmt: skip


def roles_of_config(config: Config, problem: Workload) -> Mapping[str, Any] | None:
    """The logical axes of the inputs: those of the config, or of the library's model."""
    return config.settings.logical_axes if problem.model is None else problem.model.logical_axes


def _mesh(config: Config) -> dict[str, Any]:
    return {name: {"size": axis.size, "link": axis.link} for name, axis in config.settings.mesh.items()}
