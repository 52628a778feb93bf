"""A model ready to plan: its train step, abstract arguments, the names of their dimensions, and its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax

from autoshard.errors import InputError
from autoshard.models import parameters
from autoshard.models.options import TrainingOptions
from autoshard.models.parameters import Axes
from autoshard.models.training import LossFunction, initial_state, optimizer, state_specs, train_step


@dataclass(frozen=True, kw_only=True)
class ModelProgram:
    """A train step and everything needed to plan, check and run it.

    `step(state, batch) -> (state, metrics)`; `state` is `{"params", "opt", "step"}` (int32 step; models may add more),
    `metrics` is `{"loss"}`. `specs` are `(state, batch)` as pytrees of `ShapeDtypeStruct`. `logical_axes` maps path
    patterns (`state/params/layers/*/wq`, where `*` is one path element) to one logical name per dimension; every input
    leaf matches exactly one pattern. `matmul_params` counts the parameters that one token is multiplied with (of a
    mixture of experts: its `experts_per_token` experts); for a conv net the whole kernels. `forward_matmul_flop` is the
    matmul and convolution work of one forward pass over the batch (multiply-add = 2), without recomputation and without
    the dispatch and combine of experts. `init(seed)` and `batches(seed)` are the only members that make real arrays;
    `init(seed, place)` hands each of them, from the host, to `place(path in the state, array)`.
    """

    name: str
    options: TrainingOptions
    step: Callable[[Any, Any], tuple[Any, Any]]
    loss: Callable[[Any, Any], jax.Array]
    specs: tuple[Any, Any]
    init: Callable[..., Any]
    batches: Callable[[int], Iterator[dict[str, Any]]]
    logical_axes: Mapping[str, Axes]
    param_count: int
    active_param_count: int
    matmul_params: int
    forward_matmul_flop: int
    argnames: tuple[str, ...] = ("state", "batch")
    donate_argnums: tuple[int, ...] = (0,)

    @property
    def model_flop_per_step(self) -> int:
        """FLOP of one train step: each matmul of the forward pass has two of its size in the backward pass."""
        return 3 * self.forward_matmul_flop

    def axes_of(self, path: str) -> Axes:
        """Logical names of one input leaf, `state/params/layers/wq`; an unknown path is an `InputError`."""
        for pattern, axes in self.logical_axes.items():
            if fnmatchcase(path, pattern):
                return axes
        raise InputError(f"model {self.name!r} has no input {path!r}; patterns: {', '.join(self.logical_axes)}")

    def paths(self) -> tuple[str, ...]:
        """Paths of all input leaves, in the order of the flattened arguments."""
        named = dict(zip(self.argnames, self.specs, strict=True))
        return tuple(
            f"{argument}/{parameters.path_string(path)}"
            for argument, tree in named.items()
            for path, _ in jax.tree_util.tree_leaves_with_path(tree)
        )


def assemble(
    options: TrainingOptions,
    table: Any,
    loss_function: LossFunction,
    *,
    batch_specs: dict[str, jax.ShapeDtypeStruct],
    batch_axes: dict[str, Axes],
    batches: Callable[[int], Iterator[dict[str, Any]]],
    forward_matmul_flop: int,
    extra_table: dict[str, Any] | None = None,
) -> ModelProgram:
    """Put a model together from its table of parameters and its loss.

    `extra_table` describes state that is not trained, in float32. Nothing is allocated here.
    """
    extra_table = extra_table or {}
    tx = optimizer(options, table)
    params_specs = parameters.specs(table, options.param_dtype)
    specs = state_specs(params_specs, parameters.specs(extra_table, "float32"), tx)

    def init(seed: int = 0, place: parameters.Place = parameters.on_default_device) -> Any:
        params = parameters.initial(table, options.param_dtype, seed, place, "params/")
        return initial_state(params, parameters.initial(extra_table, "float32", seed, place), specs, place)

    def loss(state: Any, batch: Any) -> jax.Array:
        extra = {name: state[name] for name in extra_table}
        return loss_function(state["params"], extra, batch)[0]

    axes: dict[str, Axes] = {}
    for path, names in parameters.logical_axes(table).items():
        axes[f"state/params/{path}"] = names
        axes[f"state/opt/*/mu/{path}"] = names
        axes[f"state/opt/*/nu/{path}"] = names
    axes |= {"state/opt/*/count": (), "state/step": ()}
    axes |= {f"state/{path}": names for path, names in parameters.logical_axes(extra_table).items()}
    axes |= {f"batch/{path}": names for path, names in batch_axes.items()}

    return ModelProgram(
        name=options.model,
        options=options,
        step=train_step(loss_function, tx),
        loss=loss,
        specs=(specs, batch_specs),
        init=init,
        batches=batches,
        logical_axes=axes,
        param_count=parameters.total(table),
        active_param_count=parameters.total(table, lambda p: p.active),
        matmul_params=parameters.total(table, lambda p: p.matmul),
        forward_matmul_flop=forward_matmul_flop,
    )
