"""A program in explicit mode as a function: to find its annotations, to compile it, and to call it with its mesh."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import tree_util
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import Mesh as JaxMesh

from autoshard.errors import UnsupportedError
from autoshard.frontends.jax.function import TracedFunction
from autoshard.interop.place import place_tree
from autoshard.lowering.annotated import AnnotatedInterpreter, Chosen
from autoshard.lowering.arguments import flat_arguments
from autoshard.lowering.called import as_called
from autoshard.lowering.lower import Lowered
from autoshard.lowering.typed_forms import Site


def explicit_mesh(mesh: JaxMesh) -> JaxMesh:
    """The same devices with axes of type `Explicit`."""
    return JaxMesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * len(mesh.axis_names))


def abstract_explicit_mesh(lowered: Lowered) -> AbstractMesh:
    """The refined mesh without devices, with axes of type `Explicit`."""
    mesh = lowered.schedule.mesh
    return AbstractMesh(mesh.sizes, mesh.names, axis_types=(AxisType.Explicit,) * len(mesh.names))


def typed_arguments(lowered: Lowered, mesh: JaxMesh | AbstractMesh) -> tuple[Any, ...]:
    """Types of the arguments, with their planned shardings on a mesh."""
    shardings = tree_util.tree_leaves(lowered.in_shardings_on(mesh))
    leaves = [
        jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=s, weak_type=t.weak_type)
        for t, s in zip(lowered.traced.in_types, shardings, strict=True)
    ]
    return tree_util.tree_unflatten(lowered.traced.in_tree, leaves)


def annotated_function(interpreter: AnnotatedInterpreter, lowered: Lowered) -> Callable[..., Any]:
    """The program as a function of global arrays, to be jitted inside of the context of its mesh."""
    traced = lowered.traced
    body = traced.program.body

    def fn(*call_args: Any) -> Any:
        leaves = flat_arguments(traced, call_args)
        consts = [
            interpreter.placed(c, interpreter.goal(v), Site("const", v), v, None)
            for c, v in zip(traced.consts, body.args[len(leaves) :], strict=True)
        ]
        return tree_util.tree_unflatten(traced.out_tree, interpreter.block(body, [*leaves, *consts]))

    return lowered.finished(fn, interpreter.mesh, derivatives=False)


def find_annotations(lowered: Lowered) -> AnnotatedInterpreter:
    """Trace the program on abstract values, each in the form of the plan; the interpreter has what was found.

    A partial sum that its only use refuses is summed where it is made, which takes one annotation less.
    """
    mesh = abstract_explicit_mesh(lowered)
    at_once: frozenset[int] = frozenset()
    notes: dict[str, None] = {}
    while True:
        interpreter = AnnotatedInterpreter(lowered, mesh, None, at_once)
        interpreter.notes = notes
        with jax.sharding.use_abstract_mesh(mesh):
            jax.eval_shape(annotated_function(interpreter, lowered), *typed_arguments(lowered, mesh))
        if interpreter.refused <= at_once:
            return interpreter
        at_once |= interpreter.refused


def staged(lowered: Lowered, chosen: Chosen, devices: Sequence[Any] | None = None) -> Any:
    """The program with these annotations, lowered for devices and ready to be compiled; `RefusedError` where JAX
    refuses it.
    """
    mesh = explicit_mesh(lowered.jax_mesh(devices))
    function = annotated_function(AnnotatedInterpreter(lowered, mesh, chosen), lowered)
    jitted = jax.jit(function, out_shardings=lowered.out_shardings_on(mesh))
    with jax.set_mesh(mesh):
        return jitted.lower(*typed_arguments(lowered, mesh))


def check_version() -> None:
    """`UnsupportedError` where the installed JAX has no explicit sharding mode."""
    wanted = ("AxisType", "reshard", "auto_axes", "use_abstract_mesh")
    missing = [f"jax.sharding.{name}" for name in wanted if not hasattr(jax.sharding, name)]
    missing += [] if hasattr(jax, "set_mesh") else ["jax.set_mesh"]
    if missing:
        raise UnsupportedError(
            f"explicit mode needs JAX 0.10 or newer; JAX {jax.__version__} has no {', '.join(missing)}; use "
            "plan.lower('constraints') with this version"
        )


@dataclass(frozen=True, eq=False)
class ExplicitFunction:
    """A jitted function on an explicit mesh, called as the user's function; `mesh` has axes of type `Explicit`."""

    mesh: JaxMesh
    jitted: Any
    in_shardings: Any
    traced: TracedFunction

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with jax.set_mesh(self.mesh):
            return as_called(self.jitted, self.traced)(*args, **kwargs)

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
    return ExplicitFunction(mesh, jax.jit(function, **options), lowered.in_shardings_on(mesh), lowered.traced)
