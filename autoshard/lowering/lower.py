"""Lowering to JAX: one `jax.shard_map` over the refined mesh, collectives written out.

XLA's partitioner has nothing to decide inside of a `shard_map`, so the compiled program communicates exactly as
planned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jax.sharding import Mesh as JaxMesh

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.jax.function import TracedFunction
from autoshard.interop.jax import auto_abstract_mesh, auto_mesh, spec_to_jax
from autoshard.lowering.arguments import flat_arguments
from autoshard.lowering.called import as_called
from autoshard.lowering.collectives import PlannedCollective, planned_collectives
from autoshard.lowering.contexts import check_meshes, on_mesh
from autoshard.lowering.derivatives import with_derivatives
from autoshard.lowering.interpret import LocalInterpreter
from autoshard.lowering.order import in_order
from autoshard.lowering.other_orders import OrderedFunction
from autoshard.lowering.steps import inverse, permute_all, run_reshard
from autoshard.lowering.walk import check_schedule
from autoshard.program.order import NOTHING, Order
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import sliced
from autoshard.sharding.tensor_sharding import TensorSharding

_SIDES = ("input", "output")
_HOST: dict[str, Any] = {"memory_kind": "pinned_host"}
_DEVICE: dict[str, Any] = {"memory_kind": "device"}


def has_other_orders(program: Program) -> bool:
    """Whether arguments or results are stated in another order of the devices than the plan's."""
    return any(o.where in _SIDES for o in program.orders)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program under a schedule as a JAX function.

    input_layouts, output_layouts: at the boundary, one for each leaf. JAX demands that boundary layouts divide their
    dimensions. Where the schedule cuts an input unevenly, its boundary layout has the leading atoms that divide, and
    the rest is cut inside, locally. order: what the compiler must not reorder, so that memory is as planned. apart:
    values that nothing which reads them is fused with (`autoshard.costs.apart`).
    """

    traced: TracedFunction
    schedule: Schedule
    input_layouts: tuple[Layout, ...]
    output_layouts: tuple[Layout, ...]
    order: Order = NOTHING
    apart: frozenset[int] = frozenset()

    def jax_mesh(self, devices: Sequence[Any] | None = None) -> JaxMesh:
        """The refined mesh on `devices` (by default those that it is planned for, else all of JAX in their order),
        permuted by the mesh's device ids.

        Raises `InputError` where there are too few devices.
        """
        mesh = self.schedule.mesh
        available = self._usual(devices)
        if len(available) < mesh.mesh.size:
            raise InputError(
                f"mesh {mesh.mesh} has {mesh.mesh.size} devices, there are {len(available)}; to simulate them on the "
                f"CPU set XLA_FLAGS=--xla_force_host_platform_device_count={mesh.mesh.size} before JAX starts"
            )
        order = mesh.mesh.device_ids or range(mesh.mesh.size)
        return auto_mesh(np.array([available[i] for i in order], dtype=object).reshape(mesh.sizes), mesh.names)

    def _usual(self, devices: Sequence[Any] | None) -> Sequence[Any]:
        return list(devices) if devices is not None else self.traced.devices or jax.devices()

    def function(
        self, mesh: JaxMesh | AbstractMesh, platform: str | None = None, *, as_they_lie: bool = False
    ) -> Callable[..., Any]:
        """The program as a function of global arrays on a mesh (from `jax_mesh`), with the pytrees of the traced
        function.

        platform: where it will run, by default the platform of the mesh's devices; on "cpu" collectives are put in
        order, and but for "tpu" maxima and minima go so that NaN is not lost. as_they_lie: arrays that are stated in
        another order of the devices come and go with their blocks in that order (see
        `autoshard.lowering.other_orders`), by the planned permutes. Otherwise all arrays lie on `mesh`.
        """
        traced, grid = self.traced, self.schedule.mesh
        if platform is None and isinstance(mesh, JaxMesh):
            platform = mesh.devices.flat[0].platform
        interpreter = LocalInterpreter(traced, self.schedule, self.order, self.apart, platform)
        body = traced.program.body
        inputs = len(traced.in_types)
        args = body.args
        inner = [self.schedule.definitions[v] for v in args]
        consts_layouts = [d.even_part(traced.program.type_of(v).shape, grid) for v, d in zip(args, inner, strict=True)]
        outer = [*self.input_layouts, *consts_layouts[inputs:]]
        handed = [k for k, v in enumerate(args) if not _made_inside(traced.program.type_of(v))]

        orders = traced.program.orders if as_they_lie else ()
        arriving = [o for o in orders if o.where == "input"]
        leaving = [o for o in orders if o.where == "output"]

        def local(*arguments: Any) -> tuple[Any, ...]:
            blocks = [_empty(traced.program.type_of(v), x, grid) for v, x in zip(args, outer, strict=True)]
            for k, block in zip(handed, arguments, strict=True):
                blocks[k] = block
            cut = [
                run_reshard(block, sliced(before, after), traced.program.type_of(value).shape, interpreter.grid)
                for block, value, before, after in zip(blocks, args, outer, inner, strict=True)
            ]
            for order in arriving:
                cut[order.index] = permute_all(cut[order.index], inverse(order.moves), interpreter.grid)
            results = interpreter.block(body, cut)
            for order in leaving:
                results[order.index] = permute_all(results[order.index], order.moves, interpreter.grid)
            return tuple(
                _whole_if_empty(traced.program.type_of(v), x) for v, x in zip(body.results, results, strict=True)
            )

        mapped = jax.shard_map(
            in_order(local) if platform == "cpu" else local,
            mesh=mesh,
            in_specs=tuple(partition_spec(outer[k], grid) for k in handed),
            out_specs=tuple(partition_spec(layout, grid) for layout in self.output_layouts),
            check_vma=False,
        )

        on_host = self._on_host(mesh)

        def fn(*call_args: Any) -> Any:
            leaves = [*flat_arguments(traced, call_args), *traced.consts]
            check_meshes(leaves[:inputs], traced.program.input_names, mesh)
            for k in sorted(traced.program.host_inputs) if on_host else ():
                leaves[k] = jax.device_put(leaves[k], NamedSharding(mesh, partition_spec(outer[k], grid), **_DEVICE))
            with on_mesh(mesh):
                results = list(mapped(*(leaves[k] for k in handed)))
            for k in sorted(traced.program.host_outputs) if on_host else ():
                spec = partition_spec(self.output_layouts[k], grid)
                results[k] = jax.device_put(results[k], NamedSharding(mesh, spec, **_HOST))
            return tree_util.tree_unflatten(traced.out_tree, results)

        return self.finished(fn, mesh, derivatives=not (arriving or leaving))

    def _on_host(self, mesh: JaxMesh | AbstractMesh) -> bool:
        """Whether values are put into host memory; not in program texts for an abstract mesh."""
        program = self.traced.program
        return isinstance(mesh, JaxMesh) and bool(program.host_inputs or program.host_outputs)

    def finished(
        self, fn: Callable[..., Any], mesh: JaxMesh | AbstractMesh, *, derivatives: bool = True
    ) -> Callable[..., Any]:
        """`fn` with the program's name, and the weak types and derivatives of the traced function."""
        name = self.traced.program.name
        fn = self._weakly_typed(fn) if any(self.traced.out_weak) else fn
        fn.__name__ = fn.__qualname__ = name if name.isidentifier() else "autoshard"
        if not derivatives:
            return fn
        return with_derivatives(fn, self.traced.function, self.in_shardings_on(mesh), self.out_shardings_on(mesh))

    def _weakly_typed(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def typed(*call_args: Any) -> Any:
            leaves, tree = tree_util.tree_flatten(fn(*call_args))
            return tree_util.tree_unflatten(tree, map(_weakened, leaves, self.traced.out_weak))

        return typed

    @cached_property
    def fn(self) -> Callable[..., Any]:
        """The function on the mesh of all devices: global arrays in and out, called as the user's; may be jitted."""
        return as_called(self.function(self.jax_mesh()), self.traced)

    def in_shardings_on(self, mesh: JaxMesh | AbstractMesh) -> Any:
        """`NamedSharding` of every input leaf on a mesh, in the pytree of the arguments."""
        there = self.traced.program.host_inputs if self._on_host(mesh) else ()
        shardings = [
            NamedSharding(mesh, partition_spec(x, self.schedule.mesh), **(_HOST if k in there else {}))
            for k, x in enumerate(self.input_layouts)
        ]
        return tree_util.tree_unflatten(self.traced.in_tree, shardings)

    def out_shardings_on(self, mesh: JaxMesh | AbstractMesh) -> Any:
        """`NamedSharding` of every output leaf on a mesh, in the pytree of the result."""
        there = self.traced.program.host_outputs if self._on_host(mesh) else ()
        shardings = [
            NamedSharding(mesh, partition_spec(x, self.schedule.mesh), **(_HOST if k in there else {}))
            for k, x in enumerate(self.output_layouts)
        ]
        return tree_util.tree_unflatten(self.traced.out_tree, shardings)

    @property
    def in_shardings(self) -> Any:
        """`NamedSharding` of every input leaf, as a tuple of pytrees, one for each argument."""
        return self.in_shardings_of_calls()

    def in_shardings_of_calls(self, devices: Sequence[Any] | None = None) -> Any:
        """`in_shardings` on these devices, or on those of the plan."""
        return self._as_they_lie(self.in_shardings_on(self.jax_mesh(devices)), "input", devices)

    @property
    def out_shardings(self) -> Any:
        """`NamedSharding` of every output leaf, in the pytree of the result."""
        return self._as_they_lie(self.out_shardings_on(self.jax_mesh()), "output", None)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The arguments all of whose leaves are donated."""
        donated, start, out = self.traced.program.donated, 0, []
        for index, child in enumerate(self.traced.in_tree.children()):
            leaves = range(start, start + child.num_leaves)
            if child.num_leaves and donated.issuperset(leaves):
                out.append(index)
            start += child.num_leaves
        return tuple(out)

    def jit(self, *, devices: Sequence[Any] | None = None, **jit_kwargs: Any) -> Any:
        """`jax.jit` of the function with its shardings and donations; `jit_kwargs` replace them.

        Where arguments or results are stated in another order of the devices, the result is an `OrderedFunction`, which
        takes and returns them in that order.
        """
        mesh = self.jax_mesh(devices)
        options = {
            "in_shardings": self.in_shardings_on(mesh),
            "out_shardings": self.out_shardings_on(mesh),
            "donate_argnums": self.donate_argnums,
        }
        options |= jit_kwargs
        if not self.has_other_orders:
            return jax.jit(self.function(mesh), **options)
        leaves = [tree_util.tree_leaves(options[key]) for key in ("in_shardings", "out_shardings")]
        there = [self._other_shardings(where, len(x), devices) for where, x in zip(_SIDES, leaves, strict=True)]
        donated, start = set(), 0
        for index, child in enumerate(self.traced.in_tree.children()):
            if index in np.atleast_1d(options["donate_argnums"]):
                donated |= set(range(start, start + child.num_leaves))
            start += child.num_leaves
        return OrderedFunction(
            inner=jax.jit(self.function(mesh, as_they_lie=True), **options), within=self.function(mesh),
            ins=there[0], outs=there[1], in_plan=leaves[0], donated=frozenset(donated),
        )  # fmt: skip

    @property
    def has_other_orders(self) -> bool:
        """Whether arguments or results are stated in another order of the devices than the plan's."""
        return has_other_orders(self.traced.program)

    def _other_shardings(self, where: str, count: int, devices: Sequence[Any] | None) -> list[NamedSharding | None]:
        """For each input or output leaf, its sharding in another order of the devices where one is stated."""
        shardings: list[NamedSharding | None] = [None] * count
        usual = self._usual(devices)
        program = self.traced.program
        on_host = program.host_inputs if where == "input" else program.host_outputs
        for order in self.traced.program.orders:
            if order.where == where:
                mesh = Mesh.from_text(order.mesh)
                grid = np.array([usual[i] for i in mesh.device_ids or range(mesh.size)], dtype=object)
                spec = spec_to_jax(TensorSharding.from_text(order.stated, mesh), mesh)
                other = auto_mesh(grid.reshape(mesh.axis_sizes), mesh.axis_names)
                there = _HOST if order.index in on_host and self._on_host(other) else {}
                shardings[order.index] = NamedSharding(other, spec, **there)
        return shardings

    def _as_they_lie(self, shardings: Any, where: str, devices: Sequence[Any] | None) -> Any:
        leaves, tree = tree_util.tree_flatten(shardings)
        there = self._other_shardings(where, len(leaves), devices)
        return tree_util.tree_unflatten(tree, [a if b is None else b for a, b in zip(leaves, there, strict=True)])

    def stablehlo(self, platform: str = "cpu") -> str:
        """StableHLO text of the program with its collectives written out; needs no devices of the mesh."""
        mesh = auto_abstract_mesh(self.schedule.mesh.sizes, self.schedule.mesh.names)
        arguments = tree_util.tree_unflatten(self.traced.in_tree, self.traced.in_types)
        staged = (
            jax.jit(self.function(mesh, platform, as_they_lie=True))
            .trace(*arguments)
            .lower(lowering_platforms=(platform,))
        )
        return str(staged.as_text())

    @cached_property
    def planned(self) -> list[PlannedCollective]:
        """Every collective of the program, in execution order."""
        return planned_collectives(self.traced.program, self.schedule)


def lower(
    traced: TracedFunction, schedule: Schedule, order: Order = NOTHING, apart: frozenset[int] = frozenset()
) -> Lowered:
    """Write the program as one `shard_map` with exactly the collectives of the schedule.

    order, apart: as in `Lowered`. Needs no devices. Raises `InputError` where schedule and program do not
    fit each other, `UnsupportedError` where an op has no local form under its placement, or an output is cut unevenly.
    """
    check_schedule(traced.program, schedule)
    types, mesh = traced.program.type_of, schedule.mesh
    inputs = []
    for value in traced.program.body.args:
        layout = schedule.definitions[value]
        if layout.unreduced:
            raise UnsupportedError(
                f"input {traced.program.values[value].name!r} is defined as {layout.text(mesh)}: "
                "JAX arrays cannot be partial sums"
            )
        inputs.append(layout.even_part(types(value).shape, mesh))
    outputs = []
    for slot, value in enumerate(traced.program.body.results):
        use = schedule.uses.get(Use(PROGRAM, slot))
        layout = Layout.replicated(types(value).rank) if use is None else use.target
        if not layout.is_even(types(value).shape, mesh):
            raise UnsupportedError(
                f"output {traced.program.output_names[slot]!r} of type {types(value)} "
                f"would leave in {layout.text(mesh)}: "
                "JAX arrays must be cut evenly; pin this output to axes that divide its dimensions"
            )
        outputs.append(Layout.replicated(types(value).rank) if _made_inside(types(value)) else layout)
    lowered = Lowered(traced, schedule, tuple(inputs[: len(traced.in_types)]), tuple(outputs), order, apart)
    # Run every op's local form once, on abstract values, so that an op without one is refused here.
    arguments = tree_util.tree_unflatten(traced.in_tree, traced.in_types)
    jax.eval_shape(lowered.function(auto_abstract_mesh(mesh.sizes, mesh.names), as_they_lie=True), *arguments)
    return lowered


def _made_inside(type_: TensorType) -> bool:
    """Whether an array is empty and therefore made where it is used.

    XLA's partitioner fails on a `shard_map` that takes only empty arrays.
    """
    return type_.elements == 0 and not type_.dtype.startswith("key<")


def _empty(type_: TensorType, layout: Layout, mesh: AtomMesh) -> Any:
    """One device's block of an array that is `_made_inside`; None for others."""
    if not _made_inside(type_):
        return None
    cuts = (prod(mesh.sizes[a] for a in dim) for dim in layout.dims)
    return jnp.zeros([n // cut for n, cut in zip(type_.shape, cuts, strict=True)], type_.dtype)


def _whole_if_empty(type_: TensorType, block: Any) -> Any:
    """A result without elements as a whole: compiled programs hand one out whole on every device, however it is cut."""
    return jnp.zeros(type_.shape, type_.dtype) if _made_inside(type_) else block


def _weakened(x: Any, weak: bool) -> Any:
    """The same numbers, weakly typed where the traced function returns them so (a Python number, say)."""
    if not weak or getattr(x, "weak_type", False):
        return x
    return jax.lax.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def partition_spec(layout: Layout, mesh: AtomMesh) -> PartitionSpec:
    """A layout as JAX writes it, on the refined mesh."""
    return PartitionSpec(*(tuple(mesh.names[a] for a in dim) or None for dim in layout.dims))
