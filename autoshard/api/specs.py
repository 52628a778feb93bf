"""The shardings of a plan for use elsewhere: PartitionSpecs, NamedShardings and Python text, from the plan's file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from autoshard.errors import InputError, UnsupportedError, listing
from autoshard.sharding.layout import AtomMesh, Layout

if TYPE_CHECKING:
    from autoshard.plan_record import PlanRecord


def layouts(plan: PlanRecord) -> dict[str, Layout]:
    """The layout of every input and output by its path, as the planned function takes and returns it.

    Axes that cut a dimension unevenly are left out, because JAX has no such arrays; the function cuts further inside.
    """
    program, schedule = plan.program, plan.schedule
    by_path: dict[str, Layout] = {}
    for name, value in zip(program.input_names, program.body.args, strict=False):
        by_path[name] = schedule.definitions[value].even_part(program.type_of(value).shape, schedule.mesh)
    for name, value, target in zip(program.output_names, program.body.results, plan.output_layouts, strict=True):
        by_path[name] = target.even_part(program.type_of(value).shape, schedule.mesh)
    return by_path


def partition_specs(plan: PlanRecord, argument: str | None = None, *, like: Any = None) -> Any:
    """`jax.sharding.PartitionSpec`s of inputs and outputs, in the axes of the plan's mesh.

    argument: of one argument (or of the result: ``out``); else a dictionary of all of them. like: a pytree of that
    argument's structure, such as the state itself; without it dictionaries by the steps of the paths are made.
    Raises `InputError` for an unknown argument or a tree with other leaves, `UnsupportedError` where a sub-axis cuts
    something, which a PartitionSpec cannot name.
    """
    return _tree(plan, argument, like, lambda name, layout: spec_of(layout, plan.schedule.mesh, name))


def named_shardings(
    plan: PlanRecord, mesh: jax.sharding.Mesh | None = None, argument: str | None = None, *, like: Any = None
) -> Any:
    """The shardings as `NamedSharding`s on a mesh of JAX with the axes of the plan (by default one of all devices).

    Arguments are as for `partition_specs`. Inputs and outputs in host memory have that memory kind.
    """
    own = plan.schedule.mesh.mesh
    if mesh is None:
        from autoshard.interop.jax import mesh_to_jax

        mesh = mesh_to_jax(own, getattr(getattr(plan, "traced", None), "devices", None))
    sizes = dict(zip(own.axis_names, own.axis_sizes, strict=True))
    if dict(mesh.shape) != sizes:
        raise InputError(f"the plan is for the mesh {sizes}, found {dict(mesh.shape)}")
    program = plan.program
    hosted = {program.input_names[k] for k in program.host_inputs}
    hosted |= {program.output_names[k] for k in program.host_outputs}

    def named(name: str, layout: Layout) -> NamedSharding:
        spec = spec_of(layout, plan.schedule.mesh, name)
        return NamedSharding(mesh, spec, memory_kind="pinned_host") if name in hosted else NamedSharding(mesh, spec)

    return _tree(plan, argument, like, named)


def spec_of(layout: Layout, mesh: AtomMesh, name: str = "a value") -> PartitionSpec:
    """A layout in whole axes of the mesh; `UnsupportedError` where a sub-axis cuts a dimension."""
    entries: list[Any] = []
    for dim in layout.dims:
        refs = mesh.refs(dim)
        part = next((ref for ref in refs if ref.is_sub_axis), None)
        if part is not None:
            raise UnsupportedError(
                f"{name} is {layout.text(mesh)}: a PartitionSpec cannot name the sub-axis {part}; use plan.jit(), pin "
                "it to whole axes, or plan with sub_axes={} and no statement that names a part of an axis"
            )
        names = tuple(ref.name for ref in refs)
        entries.append(None if not names else names[0] if len(names) == 1 else names)
    return PartitionSpec(*entries)


def python_text(plan: PlanRecord) -> str:
    """A Python file with the mesh and the specs of all inputs and outputs by path, which needs JAX only."""
    own, specs = plan.schedule.mesh.mesh, {n: spec_of(x, plan.schedule.mesh, n) for n, x in layouts(plan).items()}
    sizes = dict(zip(own.axis_names, own.axis_sizes, strict=True))
    lines = [
        f'"""Shardings of {_plain(plan.program.name)} on {plan.machine.profile.name}, planned by autoshard."""',
        "",
        "import jax",
        "from jax.sharding import NamedSharding",
        "from jax.sharding import PartitionSpec as P",
        "",
        f"MESH = {json.dumps(sizes)}",
        "SPECS = {",
        *(f"    {json.dumps(name)}: P({_entries(spec)})," for name, spec in specs.items()),
        "}",
        "",
        "",
        "def shardings(tree, start, mesh=None):",
        '    """NamedShardings for a pytree; start: the argument it is, or "out" for the result."""',
        "    if mesh is None:  # axes that the compiler propagates along; JAX's default is explicit mode",
        "        types = (jax.sharding.AxisType.Auto,) * len(MESH)",
        "        mesh = jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=types)",
        "    def step(key):",
        '        return str(next(getattr(key, a) for a in ("name", "key", "idx") if hasattr(key, a)))',
        "    def of(path, leaf):",
        '        return NamedSharding(mesh, SPECS["/".join([start, *map(step, path)])])',
        "    return jax.tree_util.tree_map_with_path(of, tree)",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and c not in '"\\')


def _entries(spec: PartitionSpec) -> str:
    return ", ".join(json.dumps(e) if isinstance(e, str) else repr(e).replace("'", '"') for e in spec)


def _tree(plan: PlanRecord, argument: str | None, like: Any, made: Callable[[str, Layout], Any]) -> Any:
    known = layouts(plan)
    if argument is None:
        if like is not None:
            raise InputError("say which argument the tree is: partition_specs('state', like=state)")
        return _nested({name: made(name, layout) for name, layout in known.items()})
    starts = list(dict.fromkeys(name.split("/")[0] for name in known))
    mine = {name: layout for name, layout in known.items() if name.split("/")[0] == argument}
    if not mine:
        raise InputError(f"the plan has no argument {argument!r}; {listing(argument, starts)}")
    if like is None:
        return _nested({name: made(name, layout) for name, layout in mine.items()})[argument]
    from autoshard.frontends.jax.names import leaf_paths

    paths, tree = leaf_paths(argument, like)
    missing = sorted({*mine}.symmetric_difference(paths))
    if missing:
        raise InputError(f"the tree is not that of {argument!r}: {missing[0]!r} is in one of them only")
    return jax.tree.unflatten(tree, [made(name, mine[name]) for name in paths])


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dictionaries by the steps of paths. Where one path ends at a step and another goes on, the longer keeps its
    whole name.
    """
    out: dict[str, Any] = {}
    for path, leaf in flat.items():
        *steps, last = path.split("/")
        at = out
        if any("/".join(steps[:k]) in flat for k in range(1, len(steps) + 1)):
            steps, last = [], path
        for step in steps:
            at = at.setdefault(step, {})
        at[last] = leaf
    return out
