"""A program in explicit mode as a function to call: it brings its mesh along."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh as JaxMesh

from autoshard.interop.place import place_tree
from autoshard.lowering.annotated import AnnotatedInterpreter, Chosen, annotated_function, explicit_mesh
from autoshard.lowering.lower import Lowered


@dataclass(frozen=True, eq=False)
class ExplicitFunction:
    """A jitted function of arrays on an explicit mesh; `mesh` has axes of type `Explicit`."""

    mesh: JaxMesh
    jitted: Any
    in_shardings: Any

    def __call__(self, *args: Any) -> Any:
        with jax.set_mesh(self.mesh):
            return self.jitted(*args)

    def place(self, *args: Any) -> tuple[Any, ...]:
        """Arguments from the host as global arrays with the planned shardings."""
        return place_tree(tuple(args), self.in_shardings)


def explicit_function(
    lowered: Lowered, chosen: Chosen, devices: Sequence[Any] | None = None, **options: Any
) -> ExplicitFunction:
    """The program with the chosen annotations, jitted; `options` go to `jax.jit`."""
    mesh = explicit_mesh(lowered.jax_mesh(devices))
    function = annotated_function(AnnotatedInterpreter(lowered, mesh, chosen), lowered)
    options = {
        "donate_argnums": lowered.donate_argnums,
        "out_shardings": lowered.out_shardings_on(mesh),
        **options,
    }
    return ExplicitFunction(mesh, jax.jit(function, **options), lowered.in_shardings_on(mesh))
