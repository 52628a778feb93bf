"""A config file, read and checked; every error says where in the file, what was found and what to try."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from autoshard.config.mesh_sizes import MeshSearch
from autoshard.config.schema import (
    MAX_DEVICES,
    ModelSection,
    PinSection,
    RunSection,
    Schema,
    SolverSection,
    SpecError,
    check_spec,
)
from autoshard.config.yaml_text import Document, KeyPath, Place, load_yaml
from autoshard.constraints.carry import carry_groups
from autoshard.constraints.groups import SameSharding
from autoshard.constraints.manual import REPLICATED
from autoshard.constraints.model import Pin
from autoshard.constraints.restrictions import (
    AxisOnly,
    Barrier,
    ManualComputation,
    MaxReshards,
    MemoryKind,
    NoCollective,
    Replicated,
    Restricting,
)
from autoshard.devices import MAX_SIMULATED_DEVICES
from autoshard.errors import InputError
from autoshard.files import read_text
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.units import MemoryAmount

MAX_BYTES = 4 * 2**20
_MOST_FAULTS, _LONGEST_LINE = 20, 600
"""Largest config file that is read."""


class ConfigError(InputError):
    """A config says something malformed or impossible; one line for each fault, with its place."""


@dataclass(frozen=True)
class Config:
    """A checked config.

    file: where it came from, as given. settings: its keys, with defaults. raw: its data, for plan.json.
    mesh_search: set where the sizes of the mesh are open; then `mesh` has the first ones that the machine allows, and
        `with_mesh` makes the config of others.
    """

    file: str
    settings: Schema
    raw: Mapping[str, Any] = field(repr=False)
    document: Document = field(repr=False, compare=False)
    mesh_search: MeshSearch | None = None

    def with_mesh(self, sizes: Mapping[str, int]) -> "Config":
        """The same with a mesh of these sizes; baselines that need more axes than it has are left out."""
        data = {**self.raw, "mesh": dict(sizes)}
        if isinstance(data.get("baselines"), list):
            mesh = Mesh.from_dict(dict(sizes))
            data["baselines"] = [b for b in data["baselines"] if not isinstance(b, str) or _has_axes(b, mesh)]
        return config_from_document(replace(self.document, data=data))

    @property
    def directory(self) -> Path:
        """Paths and modules in the config are looked for here."""
        return Path(self.file).resolve().parent

    @property
    def name(self) -> str:
        return Path(self.file).stem

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh.from_dict({name: axis.size for name, axis in self.settings.mesh.items()})

    @property
    def links(self) -> dict[str, str]:
        """The link of each axis that names one."""
        return {name: axis.link for name, axis in self.settings.mesh.items() if axis.link is not None}

    @property
    def hardware(self) -> str:
        """Name of a profile, or the path of one as seen from the working directory."""
        return _hardware_path(self.settings.hardware, self.directory)

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        """The pins with their places in the file."""
        found = []
        for index, pin in enumerate(self.settings.pins):
            found.append(Pin(pin.pattern, pin.sharding, str(_pin_place(self.document, index, pin)), pin.priority))
        return tuple(found)

    @cached_property
    def same_sharding(self) -> tuple[SameSharding, ...]:
        """The sharding groups with their places in the file."""
        return tuple(
            SameSharding(patterns, source=str(self.document.place(("same_sharding", index))))
            for index, patterns in enumerate(self.settings.same_sharding)
        )

    @cached_property
    def restrictions(self) -> tuple[Restricting, ...]:
        """All but pins and groups: replication, kept axes, few reshards, manual computations and so on; with places."""
        settings = self.settings
        found: list[Restricting] = []
        for index, one in enumerate(settings.replicated):
            found.append(Replicated(one.pattern, one.axes, self._listed("replicated", index)))
        for index, one in enumerate(settings.axis_only):
            path = ("axis_only", one.axis)
            by_axis = path in self.document.values
            place = str(self.document.place(path, of_key=True)) if by_axis else self._listed("axis_only", index)
            found.append(AxisOnly(one.axis, one.patterns, place))
        for index, one in enumerate(settings.no_collective):
            found.append(NoCollective(one.axis, one.pattern, self._listed("no_collective", index)))
        for index, one in enumerate(settings.max_reshards):
            found.append(MaxReshards(one.limit, one.axis, one.pattern, self._listed("max_reshards", index)))
        for index, one in enumerate(settings.barriers):
            found.append(Barrier(one.pattern, one.direction, self._listed("barriers", index)))
        for index, one in enumerate(settings.memory_kinds):
            found.append(MemoryKind(one.pattern, one.kind, self._listed("memory_kinds", index)))
        for index, one in enumerate(settings.manual_computations):
            place = self._listed("manual_computations", index)
            found.append(ManualComputation(one.region, one.axes, one.in_shardings, one.out_shardings, place))
        return tuple(found)

    def _listed(self, key: str, index: int) -> str:
        path = (key, index)
        return str(self.document.place(path if path in self.document.values else (key,)))

    @property
    def statements(self) -> tuple[Pin | SameSharding | Restricting, ...]:
        """Everything stated in the file but the memory limit."""
        pairs = self.settings.carry
        stated = carry_groups(pairs, self.place("carry")) if isinstance(pairs, Mapping) else ()
        return (*self.pins, *self.same_sharding, *self.restrictions, *stated)

    @property
    def carry(self) -> bool | str | None:
        """Whether carried state is looked for; pairs that the file states are among the statements."""
        return False if isinstance(self.settings.carry, Mapping) else self.settings.carry

    @property
    def model(self) -> ModelSection | None:
        return self.settings.model

    @property
    def solver(self) -> SolverSection:
        return self.settings.solver

    @property
    def run(self) -> RunSection | None:
        return self.settings.run

    @property
    def time_limit_s(self) -> float | None:
        return self.settings.time_limit

    @property
    def memory_limit(self) -> MemoryAmount | Literal["none"] | None:
        """Of a device; ``none`` where it is lifted, None where nothing is stated. Use ``.of(hbm_bytes)`` for bytes."""
        return None if self.settings.memory_limit is None else self.settings.memory_limit.device

    @property
    def memory_limits(self) -> dict[str, MemoryAmount | Literal["none"]]:
        """By kind of memory, as `autoshard.plan` takes them; empty where nothing is stated."""
        limits = self.settings.memory_limit
        found = {} if limits is None else {"device": limits.device, "pinned_host": limits.pinned_host}
        return {kind: amount for kind, amount in found.items() if amount is not None}

    @property
    def baselines(self) -> tuple[str | dict[str, Any], ...]:
        """Names, and ``{"name", "rules"}`` of strategies of one's own; for a model a few by default."""
        from autoshard.strategies.names import default_baselines

        given = self.settings.baselines
        found: list[str | dict[str, Any]] = []
        if given is None and self.settings.model is not None:
            found += default_baselines(self.mesh)
        for item in given or ():
            found.append(item if isinstance(item, str) else {"name": item.name, "rules": dict(item.rules)})
        if self.settings.logical_axis_rules is not None:
            found.append({"name": "logical_axis_rules", "rules": dict(self.settings.logical_axis_rules)})
        return tuple(found)

    @property
    def priorities(self) -> tuple[str | dict[str, Any], ...]:
        """Strategies to be decided one after the other: names, and ``{"name", "rules"}``."""
        return tuple(
            item if isinstance(item, str) else {"name": item.name, "rules": dict(item.rules)}
            for item in self.settings.priorities
        )

    @property
    def slow_axes(self) -> frozenset[str]:
        """Mesh axes between slices, which named strategies use for data parallelism only."""
        return frozenset(axis for axis, link in self.links.items() if link.split("=")[0].strip() == "dcn")

    def place(self, *path: str | int) -> str:
        """``file:line:column`` of a value of the config, for messages of later stages."""
        return str(self.document.place(path))

    def to_dict(self) -> dict[str, Any]:
        """For plan.json: enough to find program and statements again with `Config.from_dict`."""
        return {"file": self.file, "settings": dict(self.raw)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Config":
        """The config that a plan carries."""
        try:
            file, settings = data["file"], data["settings"]
        except (KeyError, TypeError):
            raise InputError("the config in this plan lacks 'file' or 'settings'") from None
        return config_from_document(Document(settings, str(file)))


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read and check a config file. Neither JAX nor code named by the config is imported."""
    text = read_text(path, what="config", max_bytes=MAX_BYTES)
    return config_from_document(load_yaml(text, str(path)))


def config_from_document(document: Document) -> Config:
    """Check data against the schema, then against itself. `ConfigError` lists every fault found."""
    if not isinstance(document.data, Mapping):
        raise ConfigError(
            f"{document.place(())}: a config is a mapping with keys such as model, mesh and hardware, "
            f"found {_shown(document.data)}"
        )
    data, search = document.data, None
    if MeshSearch.is_one(data.get("mesh")):
        try:
            search = MeshSearch.read(data["mesh"])
            data = {**data, "mesh": _first_sizes(search, data.get("hardware"), document)}
        except InputError as error:
            raise ConfigError(_line(document, ("mesh",), str(error))) from None
    try:
        settings = Schema.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_told(list(_schema_faults(error, document)))) from None
    config = Config(document.file, settings, document.data, document, search)
    faults = list(_cross_faults(config))
    if faults:
        raise ConfigError(_told([_line(document, path, message) for path, message in faults]))
    return config


def _told(lines: Sequence[str]) -> str:
    """Faults one a line; what a line repeats of the file is cut, and of very many faults the first are told."""
    shown = [line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..." for line in lines[:_MOST_FAULTS]]
    rest = len(lines) - len(shown)
    return "\n".join([*shown, *([f"and {rest} more faults"] if rest else [])])


def _has_axes(baseline: str, mesh: Mesh) -> bool:
    from autoshard.strategies.named import named_strategy

    try:
        named_strategy(baseline, mesh)
    except InputError:
        return False
    return True


def _first_sizes(search: MeshSearch, hardware: Any, document: Document) -> dict[str, int]:
    """The first sizes that the machine allows; any where the machine itself is at fault, which is told later."""
    from autoshard.costmodels.errors import ProfileError

    if search.devices > MAX_DEVICES:
        raise InputError(f"the mesh has {search.devices} devices; at most {MAX_DEVICES} can be planned for")
    try:
        allowed, others = search.allowed(_hardware_path(str(hardware), Path(document.file).resolve().parent))
    except ProfileError:
        return search.sizes()[0]
    if not allowed:
        raise InputError(f"no sizes of {', '.join(search.axes)} fit the machine: {others[0][1]}")
    return allowed[0]


# ------------------------------------------------------------------ faults found by the schema


def _schema_faults(error: ValidationError, document: Document) -> Iterator[str]:
    for fault in error.errors():
        path, of_key = _without_choices(fault["loc"], document.data), False
        kind, context, found = fault["type"], fault.get("ctx", {}), fault["input"]
        if fault["loc"][-1] == "str" and isinstance(found, Mapping):
            continue  # what is wrong with it as a mapping is told
        expected = _EXPECTED.get(kind)
        if kind == "extra_forbidden":
            message = f"unknown key {path[-1]!r}; {listing(str(path[-1]), _known_keys(path[:-1]))}"
            path, of_key = path, True
        elif kind == "missing":
            message = f"key {path[-1]!r} is missing"
            path = path[:-1]
        elif kind == "value_error":
            message = str(context.get("error", fault["msg"]))
            path = _option_path(path, message, document)
        elif kind == "literal_error":
            message = f"expected {context['expected']}, found {_shown(found)}"
        elif expected is not None:
            message = f"expected {expected}, found {_shown(found)}"
        else:
            message = f"{fault['msg'].removeprefix('Input ')}, found {_shown(found)}"
        yield _line(document, path, message, of_key=of_key)


def _without_choices(path: KeyPath, data: Any) -> KeyPath:
    """The path in the file: pydantic also names which of several forms it tried (``baselines[0].BaselineSection``)."""
    found: list[str | int] = []
    for step in path:
        if isinstance(data, Mapping) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        elif _is_form(step):
            continue
        found.append(step)
    return tuple(found)


def _is_form(step: str | int) -> bool:
    return isinstance(step, str) and (
        step.endswith("Section") or step in ("str", "bool") or step.startswith("literal[")
    )


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _known_keys(section: KeyPath) -> list[str]:
    """The keys that a section of the file may have, as its schema says."""
    field = Schema.model_fields.get(str(section[0])) if section else None
    model = Schema if field is None else next(_models_in(field.annotation), Schema)
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The schemas of mappings that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _option_path(path: KeyPath, message: str, document: Document) -> KeyPath:
    """For faults of model options, which name the option in their message: the place of that option."""
    if path != ("model",) or not isinstance(document.data["model"], Mapping):
        return path
    words = re.findall(r"\w+", message)
    if words[:2] == ["no", "model"]:
        return (*path, "name")
    return next(((*path, word) for word in words if word in document.data["model"]), path)


# ------------------------------------------------------------------ faults between keys


def _cross_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    yield from _program_faults(config)
    yield from _mesh_faults(config)
    yield from _pin_faults(config)
    yield from _restriction_faults(config)
    yield from _manual_faults(config)
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


def _program_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
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
        found = "none" if settings.args is None else "both"
        yield ("function",), f"describe the arguments of the function by either 'args' or 'specs', found {found}"
        return
    names = settings.argnames
    if settings.args is not None:
        if not isinstance(settings.args, list | dict):
            yield ("args",), f"expected a list, or a mapping from argument names, found {_shown(settings.args)}"
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
            # without names here they come from the function's signature, which is read when it is imported
            if names is not None and argument not in names:
                yield ("donate", index), f"no argument {argument!r} to donate; {listing(argument, names)}"
        elif isinstance(argument, bool) or not isinstance(argument, int):
            yield ("donate", index), f"expected the name or number of an argument, found {_shown(argument)}"
        elif argument < 0 or (count is not None and argument >= count):
            yield ("donate", index), f"there is no argument number {argument}; they are 0 to {(count or 1) - 1}"


def _mesh_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    from autoshard.costmodels.errors import ProfileError
    from autoshard.costmodels.links import read_links
    from autoshard.costmodels.load import ALIASES, list_profiles, load_profile
    from autoshard.costmodels.place import place_mesh

    given = config.settings.hardware
    devices = prod(axis.size for axis in config.settings.mesh.values())
    if devices > MAX_DEVICES:
        yield ("mesh",), f"the mesh has {devices} devices; at most {MAX_DEVICES} can be planned for"
        return
    known = [*list_profiles(), *ALIASES]
    is_path = "/" in given or given.endswith((".yaml", ".yml"))
    if not is_path and given.lower() not in known:
        near = difflib.get_close_matches(given, known, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        choices = ", ".join(list_profiles())
        yield ("hardware",), f"no hardware profile {given!r}; {guess}Choices: {choices}; or the path of a YAML file"
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


def _pin_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    for index, section in enumerate(config.settings.pins):
        path = _pin_path(config.document, index, section)
        try:
            pin = Pin(section.pattern, section.sharding)
        except InputError as error:
            yield path, str(error).removeprefix(f"pin {section.pattern!r}: ")
            continue
        for message in pin.parsed.violations(config.mesh, what=f"pin {section.pattern!r}"):
            yield path, message


def _restriction_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Axes that the mesh lacks, and patterns that are empty."""
    known = list(config.settings.mesh)
    for key in ("replicated", "axis_only", "no_collective", "max_reshards", "barriers"):
        for index, section in enumerate(getattr(config.settings, key)):
            path = (key, section.axis) if key == "axis_only" and isinstance(config.raw.get(key), dict) else (key, index)
            axes = getattr(section, "axes", None) or [getattr(section, "axis", None)]
            for axis in axes:
                if axis is not None and axis not in known:
                    yield path, f"the mesh has no axis {axis!r}; {listing(axis, known)}"
            patterns = getattr(section, "patterns", None) or [section.pattern]
            if any(not p.strip() for p in patterns):
                yield path, "expected a pattern such as params/**, found an empty text"


def _manual_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Axes that the mesh lacks, and shardings that cannot be read."""
    known = list(config.settings.mesh)
    for index, one in enumerate(config.settings.manual_computations):
        path: KeyPath = ("manual_computations", index)
        for axis in one.axes:
            if axis not in known:
                yield (*path, "axes"), f"the mesh has no axis {axis!r}; {listing(axis, known)}"
        for key in ("in_shardings", "out_shardings"):
            given = getattr(one, key)
            for name, text in given.items() if isinstance(given, dict) else enumerate(given):
                try:
                    sharding = None if text.strip() == REPLICATED else TensorSharding.from_text(text)
                except InputError as error:
                    yield (*path, key, name), str(error)
                    continue
                for message in () if sharding is None else sharding.violations(config.mesh, what=f"{text}"):
                    yield (*path, key, name), message
        if any(not p.strip() for p in one.region):
            yield (*path, "region"), "expected ops such as scope:attn or model.py:12-20, found an empty text"


def _priority_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
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


def _baseline_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
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
                parts_of(item)  # which axes it gets is known when their sizes are
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


# ------------------------------------------------------------------ saying it


def _line(document: Document, path: KeyPath, message: str, *, of_key: bool = False) -> str:
    place = document.place(path, of_key=of_key) if document.values else Place(document.file, 1, 1)
    return f"{place}: {key_text(path)}: {message}" if path else f"{place}: {message}"


def key_text(path: KeyPath) -> str:
    """A path of keys as people write it.

    >>> key_text(("pins", 0, "sharding"))
    'pins[0].sharding'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _pin_path(document: Document, index: int, section: PinSection) -> KeyPath:
    as_mapping = ("pins", section.pattern)
    return as_mapping if as_mapping in document.values or not document.values else ("pins", index)


def _pin_place(document: Document, index: int, section: PinSection) -> Place:
    return document.place(_pin_path(document, index, section), of_key=True)


def _hardware_path(given: str, directory: Path) -> str:
    if not ("/" in given or given.endswith((".yaml", ".yml"))) or Path(given).is_absolute():
        return given
    beside = directory / given
    return str(beside) if beside.exists() else given


def listing(wanted: str, known: Iterable[str], *, most: int = 40) -> str:
    """The end of a message about an unknown name: the nearest known one, then the choices."""
    known = list(known)
    near = difflib.get_close_matches(wanted, known, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{guess}Choices: {', '.join(known[:most]) or 'none'}{rest}"


def _shown(found: Any) -> str:
    if isinstance(found, Mapping):
        return "a mapping"
    if isinstance(found, list):
        return "a list"
    if found is None:
        return "nothing"
    text = repr(found)
    return text if len(text) <= 60 else text[:57] + "..."
