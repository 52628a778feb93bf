"""Faults of a config that its schema cannot see: keys that do not go together, and words without a meaning."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from autoshard.config.messages import shown
from autoshard.config.schema import SpecError, check_spec
from autoshard.config.yaml_text import Document, KeyPath
from autoshard.constraints import registry
from autoshard.constraints.in_config import ConfigKey
from autoshard.devices import MAX_SIMULATED_DEVICES
from autoshard.errors import InputError, listing
from autoshard.request.mesh_sizes import MAX_DEVICES
from autoshard.sharding.mesh import Mesh
from autoshard.units import MemoryAmount

if TYPE_CHECKING:
    from autoshard.config.load import Config


def entry_path(document: Document, key: ConfigKey, index: int, entry: Any) -> KeyPath:
    """Where the entry number `index` under a key stands: in a list, or in a mapping by one of its fields."""
    path: KeyPath = (key.name, getattr(entry, key.by)) if key.by else ()
    data = document.data.get(key.name)
    return path if path and isinstance(data, Mapping) else (key.name, index)


def key_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    """Faults between keys that are right by themselves: where, and a message."""
    yield from _program_faults(config)
    yield from _mesh_faults(config)
    yield from _statement_faults(config)
    host = config.memory_limits.get("pinned_host")
    if isinstance(host, MemoryAmount) and host.bytes is None:
        yield ("memory_limit", "pinned_host"), "a share of what is not known; give an amount such as 64GiB"
    yield from _baseline_faults(config)
    yield from _priority_faults(config)
    settings = config.settings
    if settings.strategy is not None:
        from autoshard.strategies.choice import StrategyName

        try:
            StrategyName.parse(settings.strategy)
        except InputError as error:
            yield ("strategy",), str(error)
    if settings.run is not None:
        if settings.model is None:
            yield ("run",), "only models of the library can be run after solving, since they bring their data"
        if settings.devices == "simulated" and config.mesh.size > MAX_SIMULATED_DEVICES:
            yield (
                ("run",),
                f"a mesh of {config.mesh.size} devices cannot be run here: "
                f"at most {MAX_SIMULATED_DEVICES} are simulated",
            )


def _program_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    from autoshard.config import onnx_model

    yield from onnx_model.faults(config)
    if config.settings.model_file is not None:
        return
    settings = config.settings
    if settings.model is None and settings.function is None:
        yield (), "name what to plan: either model: {name: ...} or function: module:function"
        return
    if settings.model is not None:
        for key in ("function", "args", "specs", "argnames", "donate", "logical_axes"):
            if getattr(settings, key) is not None:
                yield (key,), f"key {key!r} does not go with 'model', which brings its own"
        return
    if (settings.args is None) == (settings.specs is None):
        stated = "none" if settings.args is None else "both"
        yield ("function",), f"describe the arguments of the function by either 'args' or 'specs', found {stated}"
        return
    names = settings.argnames
    if settings.args is not None:
        if not isinstance(settings.args, list | dict):
            yield ("args",), f"expected a list, or a mapping from argument names, found {shown(settings.args)}"
            return
        if isinstance(settings.args, dict):
            if names is not None:
                yield ("argnames",), "'args' is a mapping and names the arguments already"
            names = list(settings.args)
        elif names is not None and len(names) != len(settings.args):
            yield ("argnames",), f"{len(names)} names for {len(settings.args)} arguments"
        try:
            check_spec(settings.args)
        except SpecError as error:
            yield ("args", *error.path), str(error)
    count = len(settings.args) if settings.args is not None else None
    for index, argument in enumerate(settings.donate or ()):
        if isinstance(argument, str):
            # without argnames the names come from the function's signature, which is read once it is imported
            if names is not None and argument not in names:
                yield ("donate", index), f"no argument {argument!r} to donate; {listing(argument, names)}"
        elif isinstance(argument, bool) or not isinstance(argument, int):
            yield ("donate", index), f"expected the name or number of an argument, found {shown(argument)}"
        elif argument < 0 or (count is not None and argument >= count):
            yield ("donate", index), f"there is no argument number {argument}; they are 0 to {(count or 1) - 1}"


def unknown_hardware(hardware: str) -> str | None:
    """What is wrong with a name of a machine that there is none of; None for a name that there is, and for a path."""
    from autoshard.costmodels.load import ALIASES, canonical_name, list_calibrated, list_profiles

    packaged = [*list_profiles(), *list_calibrated()]
    is_path = "/" in hardware or hardware.endswith((".yaml", ".yml"))
    if is_path or canonical_name(hardware) in packaged:
        return None
    near = difflib.get_close_matches(hardware, [*packaged, *ALIASES], n=1)
    guess, choices = f"did you mean {near[0]!r}? " if near else "", ", ".join(packaged)
    return f"no hardware profile {hardware!r}; {guess}Choices: {choices}; or the path of a YAML file"


def _mesh_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    from autoshard.costmodels.errors import ProfileError
    from autoshard.costmodels.links import read_links
    from autoshard.costmodels.load import load_profile
    from autoshard.costmodels.place import place_mesh

    devices = prod(axis.size for axis in config.settings.mesh.values())
    if devices > MAX_DEVICES:
        yield ("mesh",), f"the mesh has {devices} devices; at most {MAX_DEVICES} can be planned for"
        return
    unknown = unknown_hardware(config.settings.hardware)
    if unknown is not None:
        yield ("hardware",), unknown
        return
    try:
        profile = load_profile(config.hardware)
    except ProfileError as error:
        yield ("hardware",), str(error)
        return
    sizes = {axis: section.size for axis, section in config.settings.mesh.items()}
    sound = True
    for axis, link in config.links.items():
        try:
            read_links(profile, sizes, {axis: link})
        except ProfileError as error:
            sound = False
            yield ("mesh", axis, "link"), str(error)
    if sound:
        try:
            place_mesh(profile, sizes, config.links)
        except ProfileError as error:
            yield ("mesh",), str(error)


def _statement_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    for kind in registry.kinds():
        if kind.config is None or kind.stated is None:
            continue
        for index, entry in enumerate(config.settings.statements_of(kind)):
            path = entry_path(config.document, kind.config, index, entry)
            yield from _on_every_mesh(config, partial(kind.stated.config_faults, entry, path))


def _on_every_mesh(
    config: "Config", faults_on: Callable[[Mesh], Iterator[tuple[KeyPath, str]]]
) -> list[tuple[KeyPath, str]]:
    """Faults on the mesh of a config; where its sizes are open, none if there are sizes without any."""
    first = list(faults_on(config.mesh))
    if not first or config.mesh_search is None:
        return first
    sizes, differ = config.mesh_search.sizes(), False
    for one in sizes:
        others = list(faults_on(Mesh.from_dict(one)))
        if not others:
            return []
        differ = differ or others != first
    hint = f"; that is on {config.mesh}, and none of the {len(sizes)} meshes that are searched fits" if differ else ""
    return [(path, text + hint) for path, text in first]


def _priority_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    if not config.priorities:
        return
    from autoshard.planning.named_stages import check_names

    if config.settings.model is None and config.settings.logical_axes is None:
        yield (
            ("priorities",),
            "priorities by name of a function need 'logical_axes': a name for each dimension of its inputs, "
            "such as {params/w1: [embed, mlp], batch/x: [batch, null]}",
        )
    if any(pin.priority or any(d.priority for d in pin.parsed.dims) for pin in config.pins):
        yield ("priorities",), "stages are named here and by the priorities of pins; use one of the two"
    try:
        check_names(config.priorities, config.mesh, config.slow_axes)
    except InputError as error:
        yield ("priorities",), str(error).replace("baseline", "priority")


def _baseline_faults(config: "Config") -> Iterator[tuple[KeyPath, str]]:
    rules = config.settings.logical_axis_rules
    if not config.settings.baselines and rules is None:
        return
    from autoshard.strategies.named import named_strategy, strategy_from_rules
    from autoshard.strategies.names import parts_of

    if config.settings.model is None and config.settings.logical_axes is None:
        yield (
            ("baselines",),
            "baselines of a function need 'logical_axes': a name for each dimension of its inputs, "
            "such as {params/w1: [embed, mlp], batch/x: [batch, null]}",
        )
    names = []
    for index, item in enumerate(config.settings.baselines or ()):
        names.append(item if isinstance(item, str) else item.name)
        try:
            if isinstance(item, str) and config.mesh_search is not None:
                parts_of(item)  # its axes cannot be checked before their sizes are known
            elif isinstance(item, str):
                named_strategy(item, config.mesh, config.slow_axes)
            else:
                strategy_from_rules(item.name, item.rules, config.mesh)
        except InputError as error:
            yield ("baselines", index), str(error)
        if names[-1] in names[:-1]:
            yield ("baselines", index), f"two baselines are called {names[-1]!r}"
    if rules is not None:
        try:
            strategy_from_rules("logical_axis_rules", rules, config.mesh)
        except InputError as error:
            yield ("logical_axis_rules",), str(error)
