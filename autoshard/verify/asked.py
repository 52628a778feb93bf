"""What a plan was asked for, worked out again: from the config in its file, or from the words of the caller.

What users write is read by the same rooms (config, constraints, request) as for planning; nothing that decides or
prices is used. The result is plain data in the form of plan.json, which `check_asked` compares with a plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.config.load import Config
from autoshard.constraints import (
    Kernel,
    MatchedPin,
    Pin,
    Restricting,
    SameSharding,
    in_memories,
    match_groups,
    match_pins,
    match_restrictions,
    registry,
)
from autoshard.constraints.carry import carried
from autoshard.constraints.in_code import groups_in_code, in_code_given, manual_statements, statements_in_code
from autoshard.constraints.kernels_of import match_kernels
from autoshard.constraints.orders import in_orders
from autoshard.costmodels import Machine, Profile, ProfileError, load_profile, place_mesh
from autoshard.errors import InputError
from autoshard.program.as_json import plain, program_from_json
from autoshard.program.program import Program
from autoshard.request.arguments import match_jax_pins, mesh_given, pins_of_specs, stated_order, statements_given
from autoshard.request.mesh_sizes import MeshSearch
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.units import MemoryAmount, memory_amount
from autoshard.verify.changed import changes_of
from autoshard.verify.plan.memory import room

if TYPE_CHECKING:
    from autoshard.config.workload import Workload
    from autoshard.frontends.jax.function import TracedFunction

_BY_COST = ("joint", "staged")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a plan was asked for, in the words of `autoshard.plan`, which says what each of them means.

    effort, seed, accepted_gap, baselines: None where they are not to be compared. slow_axes: mesh axes between slices.
    sharded_arguments: whether arguments may come with shardings. source: who asked, for messages.
    """

    mesh: Any
    hardware: str | Path | Profile | Machine
    constraints: Any = ()
    memory_limit: Any = None
    carry: Any = None
    in_code: str | None = None
    priorities: Sequence[str | Mapping[str, Any]] = ()
    roles: Mapping[str, Any] | None = None
    slow_axes: Sequence[str] | None = None
    sub_axes: Mapping[str, Sequence[int]] | None = None
    strategy: str | None = None
    share_repeats: Any = True
    objective: str = "serial"
    effort: float | None = None
    seed: int | None = None
    accepted_gap: float | None = None
    baselines: Sequence[Any] | None = None
    sharded_arguments: bool = True
    source: str = "what the caller passed"

    @staticmethod
    def of_config(config: Config, problem: "Workload | None" = None) -> "Asked":
        """What a config asks for. problem: what was built from it; a model tells the logical axes of its inputs."""
        settings, search = config.settings, config.mesh_search
        mesh = {name: {"size": axis.size, "link": axis.link} for name, axis in settings.mesh.items()}
        roles = settings.logical_axes
        if problem is not None and problem.model is not None:
            roles = problem.model.logical_axes
        elif problem is not None or settings.model is None:
            roles = roles or {}  # no input has a batch
        return Asked(
            mesh=mesh if search is None else {"devices": search.devices, "axes": list(search.axes)},
            hardware=config.hardware,
            constraints=config.statements,
            memory_limit=config.memory_limits or None,
            carry=config.carry,
            in_code=config.settings.in_code,
            priorities=config.priorities,
            roles=roles,
            slow_axes=sorted(config.slow_axes),
            strategy=settings.strategy,
            share_repeats=settings.share_repeats,
            objective=settings.objective,
            effort=config.solver.effort,
            seed=config.solver.seed,
            accepted_gap=config.solver.accepted_gap,
            baselines=config.baselines,
            sharded_arguments=settings.specs is not None,
            source=f"the config {config.file}",
        )


def config_of(plan: Mapping[str, Any]) -> Config:
    """The config that a plan carries; where it leaves the sizes of the mesh open, those of the plan are put in.

    Raises `InputError` where it cannot be read, `OSError` where it names a hardware profile whose file is missing.
    """
    settings = dict(plan["config"]["settings"])
    named, folder = settings.get("hardware"), plan["config"].get("folder")
    if isinstance(named, str) and ("/" in named or named.endswith((".yaml", ".yml"))):
        beside = (Path(folder) if folder else Path(str(plan["config"]["file"])).resolve().parent) / named
        if not beside.exists() and not Path(named).exists():
            raise FileNotFoundError(f"the hardware profile {named} is not there")
    config = Config.from_dict(plan["config"])
    if config.mesh_search is None:
        return config
    return config.with_mesh(_searched(config.mesh_search, plan["mesh"]["axes"]))


def derive(asked: Asked, plan: Mapping[str, Any], traced: "TracedFunction | None" = None) -> dict[str, Any]:
    """Statements, mesh, machine, limits, priorities and memories that were asked for, for the program of a plan.

    traced: the function, for what the file does not hold: the shardings that arguments come with, and donation. Without
    it, some keys are missing from the result; ``trust`` lists in words what is then believed. Raises `AutoshardError`
    where `asked` does not fit the program.
    """
    program = program_from_json(plan["program"])
    bare, of_carry = carried(
        replace(program, host_inputs=frozenset(), host_outputs=frozenset(), orders=(), carried=()), asked.carry
    )
    bare = replace(bare, in_code=in_code_given(asked.in_code))
    kernels = match_kernels(_kernels(asked), bare)
    mesh, machine, links = _placed(asked, plan)
    statements_asked = (*statements_given(asked.constraints, registry.stated(), registry.stated_names()), *of_carry)
    mesh, pins = _pins(asked, statements_asked, bare, traced, mesh)
    changes = changes_of(plan, pins, mesh)
    pins = changes.pins
    groups = match_groups([c for c in statements_asked if isinstance(c, SameSharding)], bare) + groups_in_code(bare)
    restrictions = match_restrictions([c for c in statements_asked if isinstance(c, Restricting)], bare, mesh)
    lying = in_orders(in_memories(bare, restrictions), pins, groups)
    limit, limits = _limits(asked.memory_limit, machine, changes.memory_limit)
    stated = [s.to_dict() for s in (*pins, *groups, *restrictions)]
    statements = [*stated, *limits, *(s.to_dict() for s in (*manual_statements(bare), *kernels.statements))]
    facts: dict[str, Any] = {
        "source": asked.source,
        "statements": statements,
        "axes": dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)),
        "device_ids": None if mesh.device_ids is None else list(mesh.device_ids),
        "mesh": mesh.name,
        "machine": machine.to_dict() if changes.machine is None else changes.machine,
        "changed": list(changes.lines),
        "host": {"inputs": sorted(lying.host_inputs), "outputs": sorted(lying.host_outputs)},
        "orders": [asdict(order) for order in lying.orders],
        "in_code": lying.in_code,
        "carried": [list(pair) for pair in lying.carried],
        "strategy": _strategy(asked.strategy),
        "shares": asked.share_repeats is not False,
        "memory_limit": limit,
        "options": {**_options(asked), **changes.options},
        "stages": _stages(asked, changes.stated, mesh),
        "names": [n if isinstance(n, str) else dict(n) for n in asked.priorities],
        "sub_axes": dict(asked.sub_axes or {}),
        "slow": sorted(links if asked.slow_axes is None else asked.slow_axes),
        "trips": 1,
        "trust": [],
    }
    if asked.baselines is not None:
        facts["baselines"] = [b if isinstance(b, str) else str(b["name"]) for b in asked.baselines]
    if asked.roles is not None:
        facts["roles"] = {path: list(axes) for path, axes in asked.roles.items()}
    if traced is not None:
        facts["donated"] = sorted(traced.program.donated)
    else:
        _tell_trust(facts, asked, plan)
    return plain(facts)


def _pins(
    asked: Asked, statements: Sequence[Any], bare: Program, traced: "TracedFunction | None", mesh: Mesh
) -> tuple[Mesh, tuple[MatchedPin, ...]]:
    """All pins, and the mesh in the order of devices that JAX shardings among them name.

    bare: the program without what statements put into it.
    """
    whole = None if traced is None else replace(traced, program=bare)
    all_pins = [c for c in statements if isinstance(c, Pin)]
    of_jax = [pin for pin in all_pins if not isinstance(pin.sharding, TensorSharding)]
    if not isinstance(asked.mesh, Mesh) and not hasattr(asked.mesh, "axis_names"):
        mesh = replace(mesh, device_ids=stated_order(whole or bare, of_jax, mesh.size))
    return mesh, (
        *match_pins([pin for pin in all_pins if pin not in of_jax], bare, mesh, compare=False),
        *match_jax_pins(of_jax, bare, mesh),
        *(() if whole is None else pins_of_specs(whole, mesh)),
        *statements_in_code(bare, mesh)[0],
    )


def _tell_trust(facts: dict[str, Any], asked: Asked, plan: Mapping[str, Any]) -> None:
    """Put in what a plan file is believed in without its function, and leave out what cannot be known."""
    facts["trust"].append("the program itself and what it donates: there is no function")
    if asked.sharded_arguments:
        facts["trust"].append("shardings that arguments come with, and the order of devices that these name")
        facts["sharded_arguments"] = True
        gave_way = any(change["pins"] for change in plan.get("changed") or ())
        if gave_way or any(_of_argument(s) for s in plan["statements"]):
            del facts["device_ids"]
    if asked.priorities and asked.roles is None:
        facts["trust"].append("the logical axes of the inputs")


def _kernels(asked: Asked) -> list[Kernel]:
    """The statements about kernels that were asked for."""
    statements = statements_given(asked.constraints, registry.stated(), registry.stated_names())
    return [statement for statement in statements if isinstance(statement, Kernel)]


def locals_asked(asked: Asked | None, program: Program) -> dict[int, Any]:
    """What a device runs in the place of kernels of a program, by op, as it is asked for."""
    return {} if asked is None else dict(match_kernels(_kernels(asked), program).locals)


def _of_argument(statement: Mapping[str, Any]) -> bool:
    """Whether a statement of a plan is said to be the sharding that an argument came with."""
    return statement["kind"] == "pin" and str(statement.get("source", "")).startswith("argument ")


def _searched(search: MeshSearch, axes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the plan's mesh where the search may find them, else the first ones that it may find."""
    sizes = search.sizes()
    return dict(next((s for s in sizes if list(s.items()) == list(axes.items())), sizes[0]))


def _placed(asked: Asked, plan: Mapping[str, Any]) -> tuple[Mesh, Machine, list[str]]:
    """The mesh, the machine with its axes on links, and the axes between slices."""
    mesh_asked = mesh_given(asked.mesh)
    if not isinstance(mesh_asked, Mesh) and MeshSearch.is_one(mesh_asked):
        mesh_asked = _searched(MeshSearch.read(mesh_asked), plan["mesh"]["axes"])
    sizes: dict[str, Any] = {}
    links: dict[str, str] = {}
    if isinstance(mesh_asked, Mesh):
        mesh = mesh_asked
    else:
        for name, axis in mesh_asked.items():
            sizes[name] = axis["size"] if isinstance(axis, Mapping) else axis
            if isinstance(axis, Mapping) and axis.get("link") is not None:
                links[name] = axis["link"]
        mesh = Mesh.from_dict(sizes)
    slow = [name for name, link in links.items() if link.split("=")[0].strip() == "dcn"]
    if isinstance(asked.hardware, Machine):
        return mesh, asked.hardware, slow
    try:
        profile = asked.hardware if isinstance(asked.hardware, Profile) else load_profile(asked.hardware)
        axes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
        return mesh, place_mesh(profile, axes, links or None), slow
    except ProfileError as error:
        raise InputError(f"hardware: {error}") from error


def _limits(
    stated: Any, machine: Machine, changed: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The limit on device memory and whether it is stated, and the limits that are statements.

    Where none is stated a plan may be limited to what the device has room for; ``none`` lifts that. `changed`: the
    limit that a plan made from another plan has instead.
    """
    device, host = (stated.get("device"), stated.get("pinned_host")) if isinstance(stated, Mapping) else (stated, None)
    statements: list[dict[str, Any]] = []
    limit: dict[str, Any] = {"bytes": room(machine.usable_bytes, machine.profile.memory_rules), "from": "device"}
    if isinstance(device, str) and device.strip().lower() == "none":
        limit = {"bytes": None, "from": "stated"}
    elif device is not None:
        limit = {"bytes": _amount(device).of(machine.hbm_bytes), "from": "stated"}
        statements.append({"kind": "memory_limit", "bytes": limit["bytes"]})
    if host is not None:
        statements.append({"kind": "host_memory_limit", "memory": "pinned_host", "bytes": _amount(host).bytes})
    if changed is not None:
        limit = dict(changed)
        statements = [said for said in statements if said["kind"] != "memory_limit"]
        statements += [] if limit["bytes"] is None else [{"kind": "memory_limit", "bytes": limit["bytes"]}]
    return limit, statements


def _amount(amount: Any) -> MemoryAmount:
    """An amount of memory as users write it; `InputError` where it cannot be read."""
    try:
        return memory_amount(amount)
    except InputError as error:
        raise InputError(f"memory_limit: {error}") from None


def _options(asked: Asked) -> dict[str, Any]:
    """The options of the search, as far as they were asked for."""
    parts = None if asked.sub_axes is None else {axis: list(sizes) for axis, sizes in asked.sub_axes.items()}
    said = {"effort": asked.effort, "seed": asked.seed, "accepted_gap": asked.accepted_gap}
    return {
        **{key: value for key, value in said.items() if value is not None},
        "share_repeats": asked.share_repeats is not False, "sub_axes": parts, "strategy": asked.strategy,
        "objective": asked.objective,
    }  # fmt: skip


def _strategy(asked: str | None) -> str | None:
    """The strategy as a plan records it: None where it decides by cost alone."""
    if asked is None:
        return None
    name, _, rule = (part.strip() for part in asked.partition(":"))
    if name in _BY_COST and rule in ("", "cost"):
        return None
    return f"{name}:{rule}" if rule else name


def _stages(asked: Asked, pins: Sequence[MatchedPin], mesh: Mesh) -> list[dict[str, Any]]:
    """The stages: one for each named strategy, or for each priority in the pins; none where another strategy decides.

    A stage of pins has its priority, its statements in the user's words and its axes; a named one only its number.
    """
    strategy = None if asked.strategy is None else asked.strategy.partition(":")[0].strip()
    if strategy not in (None, "staged"):
        return []
    if asked.priorities:
        return [{"priority": k} for k in range(len(asked.priorities))]
    levels = sorted({p for pin in pins for p in pin.priorities})
    if strategy is None and not any(levels):
        return []
    return [_stage(level, [pin for pin in pins if level in pin.priorities], mesh) for level in levels]


def _stage(level: int, new: Sequence[MatchedPin], mesh: Mesh) -> dict[str, Any]:
    """The stage of one priority, of the pins that have it."""
    axes = {
        ref.name
        for pin in new
        for d in pin.sharding.dims
        if (pin.priority if d.priority is None else d.priority) == level
        for ref in d.axes
    }
    return {
        "priority": level,
        "statements": [replace(pin, source="", written="").cited for pin in new],
        "axes": [name for name in mesh.axis_names if name in axes],
    }
