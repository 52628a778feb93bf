"""A config file, read and checked; every error says where in the file, what was found and what to try."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from autoshard.config.changes import with_changes
from autoshard.config.key_faults import entry_path, key_faults, unknown_hardware
from autoshard.config.messages import fault_line, shown, told
from autoshard.config.schema import ModelSection, RunSection, Settings, SolverSection, schema
from autoshard.config.schema_faults import schema_faults
from autoshard.config.yaml_text import Document, load_yaml
from autoshard.constraints import Pin, Statement, registry
from autoshard.constraints.carry import carry_groups
from autoshard.constraints.in_config import ConfigKey
from autoshard.errors import InputError
from autoshard.files import read_text
from autoshard.request.mesh_sizes import MeshSearch
from autoshard.sharding.mesh import Mesh
from autoshard.trust import Trust
from autoshard.units import MemoryAmount

MAX_BYTES = 4 * 2**20
"""Largest config file that is read."""


class ConfigError(InputError):
    """A config is malformed or impossible; one line for each fault, with its place."""


@dataclass(frozen=True)
class Config:
    """A checked config.

    file: its path, as given. settings: its keys, with defaults. raw: its data, for plan.json.
    mesh_search: set where the sizes of the mesh are open. Then `mesh` has the first sizes that the machine allows, and
        `with_mesh` makes the config with other sizes.
    folder: where the config lay, where a plan tells it; else that of the file. trusted: whether code that it names may
        be imported: False of the config in a plan by somebody else (see `autoshard.trust`).
    """

    file: str
    settings: Settings
    raw: Mapping[str, Any] = field(repr=False)
    document: Document = field(repr=False, compare=False)
    mesh_search: MeshSearch | None = None
    folder: str | None = None
    trusted: bool = True

    def with_mesh(self, sizes: Mapping[str, int]) -> "Config":
        """The same config with a mesh of these sizes; baselines that need more axes than the mesh has are left out."""
        data = {**self.raw, "mesh": dict(sizes)}
        if isinstance(data.get("baselines"), list):
            mesh = Mesh.from_dict(dict(sizes))
            data["baselines"] = [b for b in data["baselines"] if not isinstance(b, str) or _has_axes(b, mesh)]
        config = config_from_document(replace(self.document, data=data), self.folder)
        return replace(config, trusted=self.trusted)

    @property
    def directory(self) -> Path:
        """The directory of the file, where paths and modules in the config are looked for."""
        return _directory(self.file, self.folder)

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return Path(self.file).stem

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh; where its sizes are open, the first ones that the machine allows."""
        return Mesh.from_dict({name: axis.size for name, axis in self.settings.mesh.items()})

    @property
    def links(self) -> dict[str, str]:
        """The link of each axis that names one."""
        return {name: axis.link for name, axis in self.settings.mesh.items() if axis.link is not None}

    @property
    def hardware(self) -> str:
        """Name of a profile, or the path of one as seen from the working directory."""
        return _hardware_path(self.settings.hardware, self.directory)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Everything stated in the file but memory limits, with places."""
        return self._stated[0]

    @property
    def annotation_notes(self) -> tuple[str, ...]:
        """What is to be told of the annotations of an ONNX model: which were taken and which were not."""
        return self._stated[1]

    @cached_property
    def _stated(self) -> tuple[tuple[Statement, ...], tuple[str, ...]]:
        statements: list[Statement] = []
        for kind in registry.kinds():
            if kind.config is not None and kind.stated is not None:
                for index, entry in enumerate(self.settings.statements_of(kind)):
                    statements.append(kind.stated.from_config(entry, self._source(kind.config, index, entry)))
        if isinstance(self.settings.carry, Mapping):
            statements += carry_groups(self.settings.carry, self.place("carry"))
        if self.settings.model_file is None:
            return tuple(statements), ()
        from autoshard.config.onnx_model import statements_of

        pins, notes = statements_of(self, [statement for statement in statements if isinstance(statement, Pin)])
        return (*pins, *(statement for statement in statements if not isinstance(statement, Pin))), notes

    @property
    def carry(self) -> bool | str | None:
        """Whether carried state is looked for; pairs that the file states are among the statements."""
        return False if isinstance(self.settings.carry, Mapping) else self.settings.carry

    def _source(self, key: ConfigKey, index: int, entry: Any) -> str:
        """The place of an entry under a key."""
        path = entry_path(self.document, key, index, entry)
        return str(self.document.place(path, of_key=True))

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The pins with their places in the file."""
        return tuple(statement for statement in self.statements if isinstance(statement, Pin))

    @property
    def model(self) -> ModelSection | None:
        """The model of the library that the config names; None for functions and ONNX files."""
        return self.settings.model

    @property
    def solver(self) -> SolverSection:
        """The options of the solver."""
        return self.settings.solver

    @property
    def run(self) -> RunSection | None:
        """The run after planning; None where the config asks for none."""
        return self.settings.run

    @property
    def time_limit_s(self) -> float | None:
        """Seconds of wall clock that planning may take."""
        return self.settings.time_limit

    @property
    def memory_limit(self) -> MemoryAmount | Literal["none"] | None:
        """The limit on device memory; ``none`` where it is lifted, None where nothing is stated. ``.of(hbm_bytes)``
        gives bytes.
        """
        return None if self.settings.limits is None else self.settings.limits.device

    @property
    def memory_limits(self) -> dict[str, MemoryAmount | Literal["none"]]:
        """The stated limits by kind of memory, as `autoshard.plan` takes them."""
        limits = self.settings.limits
        limits_by_kind = {} if limits is None else {"device": limits.device, "pinned_host": limits.pinned_host}
        return {kind: amount for kind, amount in limits_by_kind.items() if amount is not None}

    @property
    def baselines(self) -> tuple[str | dict[str, Any], ...]:
        """The baselines: names, and ``{"name", "rules"}`` of the user's strategies; for a model a few by default."""
        from autoshard.strategies.names import default_baselines

        listed = self.settings.baselines
        baselines: list[str | dict[str, Any]] = []
        if listed is None and self.settings.model is not None:
            baselines += default_baselines(self.mesh)
        for item in listed or ():
            baselines.append(item if isinstance(item, str) else {"name": item.name, "rules": dict(item.rules)})
        if self.settings.logical_axis_rules is not None:
            baselines.append({"name": "logical_axis_rules", "rules": dict(self.settings.logical_axis_rules)})
        return tuple(baselines)

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
        """The config as a plan in memory carries it: enough to find program and statements with `Config.from_dict`.

        plan.json has ``file`` and ``settings`` only; the rest is told by the run beside it and by what the user allows.
        """
        told = {"folder": str(self.directory), "trusted": Trust.GIVEN if self.trusted else None}
        return {"file": self.file, "settings": dict(self.raw), **told}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Config":
        """The config that a plan carries; `autoshard.trust.placed_config` says where it lay, and what it may import."""
        try:
            file, settings = data["file"], data["settings"]
        except (KeyError, TypeError):
            raise InputError("the config in this plan lacks 'file' or 'settings'") from None
        config = config_from_document(Document(settings, str(file)), data.get("folder"))
        return replace(config, trusted=data.get("trusted") is Trust.GIVEN)


def load_config(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Config:
    """Read and check a config file. Neither JAX nor code named by the config is imported.

    changes: ``KEY=VALUE``, applied before the check (`config.changes`).
    """
    text = read_text(path, what="config", max_bytes=MAX_BYTES)
    return config_from_document(with_changes(load_yaml(text, str(path)), changes))


def load_config_text(text: str, name: str, changes: Sequence[str] = ()) -> Config:
    """A config from text instead of a file; paths in it are relative to the working directory. name: the text in
    messages.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{name}: a config is at most {MAX_BYTES} bytes long")
    return config_from_document(with_changes(load_yaml(text, name), changes))


def config_from_document(document: Document, folder: str | None = None) -> Config:
    """Check data against the schema, then the keys against each other. `ConfigError` lists every fault found.

    folder: where paths in it are looked for, if that is not the folder of the file.
    """
    if not isinstance(document.data, Mapping):
        raise ConfigError(
            f"{document.place(())}: a config is a mapping with keys such as model, mesh and hardware, "
            f"found {shown(document.data)}"
        )
    if str(document.data.get("format", "")).startswith("autoshard-"):
        raise ConfigError(
            f"{document.file} is an answer of autoshard and no config; `autoshard show {document.file}` prints a plan, "
            "and `autoshard solve` takes the config that it was made of"
        )
    data, search = document.data, None
    if MeshSearch.is_one(data.get("mesh")):
        try:
            search = MeshSearch.read(data["mesh"])
            data = {**data, "mesh": _first_sizes(search, data.get("hardware"), _directory(document.file, folder))}
        except InputError as error:
            raise ConfigError(fault_line(document, ("mesh",), str(error))) from None
    try:
        settings = schema().model_validate(data)
    except ValidationError as error:
        faults, hardware = list(schema_faults(error, document)), data.get("hardware")
        unknown = unknown_hardware(hardware) if isinstance(hardware, str) else None
        faults += [] if unknown is None else [fault_line(document, ("hardware",), unknown)]
        raise ConfigError(told(faults)) from None
    config = Config(document.file, settings, document.data, document, search, folder)
    faults = list(key_faults(config))
    if faults:
        raise ConfigError(told([fault_line(document, path, message) for path, message in faults]))
    return config


def _has_axes(baseline: str, mesh: Mesh) -> bool:
    from autoshard.strategies.named import named_strategy

    try:
        named_strategy(baseline, mesh)
    except InputError:
        return False
    return True


def _first_sizes(search: MeshSearch, hardware: Any, directory: Path) -> dict[str, int]:
    """The first sizes that the machine allows; any where the machine itself is at fault, which is reported later."""
    from autoshard.costmodels.errors import ProfileError

    try:
        allowed, others = search.allowed(_hardware_path(str(hardware), directory))
    except ProfileError:
        return search.sizes()[0]
    if not allowed:
        raise InputError(f"no sizes of {', '.join(search.axes)} fit the machine: {others[0][1]}")
    return allowed[0]


def _directory(file: str, folder: str | None) -> Path:
    return Path(file).resolve().parent if folder is None else Path(folder)


def _hardware_path(hardware: str, directory: Path) -> str:
    if not ("/" in hardware or hardware.endswith((".yaml", ".yml"))) or Path(hardware).is_absolute():
        return hardware
    beside = directory / hardware
    return str(beside) if beside.exists() else hardware
