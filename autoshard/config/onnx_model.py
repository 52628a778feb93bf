"""A config whose model is an ONNX file: its function, and pins by the file's names and annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.constraints import Pin
from autoshard.errors import AutoshardError, InputError, listing

if TYPE_CHECKING:
    from autoshard.config.load import Config
    from autoshard.config.workload import Workload
    from autoshard.onnx.model import Model

ENDINGS = (".onnx", ".json", ".textproto", ".pbtxt", ".prototxt")
"""Endings of the names of files with ONNX models."""
KEYS = ("shapes", "annotations", "configuration")
"""Keys that a config may have only for an ONNX model."""
_PATTERN = ("weights/", "inputs/", "out/", "@", "scope:", "**")


def is_file(model: Any) -> bool:
    """Whether the ``model`` of a config is an ONNX file and not a model of the library."""
    return isinstance(model, str) and model.lower().endswith(ENDINGS)


def faults(config: Config) -> list[tuple[tuple[str, ...], str]]:
    """Keys that do not go together: path and message."""
    settings = config.settings
    if settings.model_file is None:
        return [
            ((key,), f"key {key!r} goes with an ONNX model only, such as model: encoder.onnx")
            for key in KEYS
            if getattr(settings, key) is not None
        ]
    taken = ("function", "args", "specs", "argnames", "donate")
    return [
        ((key,), f"key {key!r} does not go with an ONNX model, which brings its own")
        for key in taken
        if getattr(settings, key) is not None
    ]


def model_of(config: Config, *, with_shapes: bool = False) -> Model:
    """The model without its external weights; `InputError` with the place in the config where it cannot be read.

    with_shapes: replace symbolic dimensions by the sizes in the config.
    """
    from autoshard.onnx.model import load

    try:
        model = load(_path(config))
        return replace(model, shapes=_symbols(model, config.settings.shapes or {})) if with_shapes else model
    except AutoshardError as error:
        raise type(error)(f"{config.place('model')}: model: {error}") from None


def _symbols(model: Model, shapes: Mapping[str, Any]) -> dict[str, int]:
    """Sizes of symbolic dimensions by name, those that follow from whole shapes of inputs included."""
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    for info in model.graph.input:
        shape = shapes.get(info.name)
        for dim, size in zip(info.type.tensor_type.shape.dim, shape if isinstance(shape, list) else ()):
            if dim.dim_param:
                sizes.setdefault(dim.dim_param, size)
    return sizes


def _path(config: Config) -> Path:
    assert config.settings.model_file is not None
    return config.directory / config.settings.model_file


def problem_of(config: Config) -> Workload:
    """The function of the model, planned with the shapes that the config states. Weights are not read."""
    from autoshard.config.workload import Workload
    from autoshard.onnx.function import function

    model = model_of(config)
    try:
        function_of_model = function(model, config.settings.shapes or {})
    except InputError as error:
        key = "shapes" if config.settings.shapes is not None else "model"
        raise InputError(f"{config.place(key)}: {error}") from None

    def arguments(seed: int) -> tuple[Any, ...]:
        from autoshard.onnx.arguments import make_arguments

        return make_arguments(function_of_model, model, seed)

    name = Path(config.settings.model_file or "").stem
    planned, args = function_of_model.__call__, function_of_model.args
    workload = Workload(name, planned, args, ("weights", "inputs"), (), arguments=arguments)
    return replace(workload, notes=lambda: sorted(function_of_model.notes))


def statements_of(config: Config, pins: Sequence[Pin]) -> tuple[tuple[Pin, ...], tuple[str, ...]]:
    """The pins of a config with ONNX names as the program's paths, then those that the file's annotations make; and
    notes on the annotations.

    A name is that of a weight, an input, an output or any other value. Pins of the config win over annotations.
    """
    from autoshard.onnx.names import names_of

    model = model_of(config)
    paths = names_of(model.proto)
    stated = tuple(pin if _is_pattern(pin.pattern, paths) else _on_path(pin, paths, model) for pin in pins)
    how = config.settings.annotations
    if how is None:
        return stated, _ignored_note(model, config.settings.model_file or "")
    if how == "ignore":
        return stated, ()
    from autoshard.onnx.function import function
    from autoshard.onnx.stated import NO_VALUE, stated_shardings

    taken = {pin.pattern for pin in stated}
    shapes = function(model, config.settings.shapes or {}).value_shapes()
    with_sizes = replace(model, shapes=_symbols(model, config.settings.shapes or {}))
    read = stated_shardings(with_sizes, config.mesh, shapes, configuration=config.settings.configuration)
    taken_pins, left = [], {why: list(names) for why, names in read.left.items()}
    for name, sharding, source in read.shardings:
        pattern = paths.get(name)
        if pattern is None or pattern in taken:
            left.setdefault(_PINNED if pattern in taken else NO_VALUE, []).append(name)
        elif how == "hints":
            opened = tuple(replace(d, is_open=True) for d in sharding.dims)
            taken_pins.append(Pin(pattern, replace(sharding, dims=opened), source, HINT_PRIORITY))
        else:
            taken_pins.append(Pin(pattern, sharding, source))
    file = config.settings.model_file or ""
    notes = [_annotation_note(file, how, len(taken_pins), left)]
    if read.senseless:
        notes.append(
            f"annotations of {file}: the specs of {_shown(read.senseless)} make no sense together (autoshard check "
            "says why); the plan takes each by itself"
        )
    if read.stages:
        notes.append(
            f"annotations of {file}: {read.stages} state pipeline stages, which are not planned: all devices "
            "run every node"
        )
    return (*stated, *taken_pins), tuple(notes)


def _ignored_note(model: Model, file: str) -> tuple[str, ...]:
    """What is told of annotations where the config does not say what they mean."""
    from autoshard.onnx.structure import nodes_of_model

    count = sum(bool(node.device_configurations) for _, _, _, node in nodes_of_model(model.proto))
    if not count:
        return ()
    nodes = "1 node is" if count == 1 else f"{count} nodes are"
    return (f"{file}: {nodes} annotated, which this plan ignores; annotations: pins, or hints, takes what they say",)


def _shown(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


_PINNED = "the config pins them"
_NAMED = 3
"""Names that a note names."""


def _annotation_note(file: str, how: str, taken: int, left: Mapping[str, Sequence[str]]) -> str:
    """How many of the placements that annotations state were taken, how many were not and why."""
    where = f" ({how}, open and of priority {HINT_PRIORITY})" if how == "hints" else f" ({how})"
    text = f"annotations of {file}{where}: {taken} {'placement' if taken == 1 else 'placements'} taken"
    parts = []
    for why, names in left.items():
        parts.append(f"{len(names)}, as {why}: {_shown(names)}")
    return text + (f"; not taken: {'; '.join(parts)}" if parts else "")


HINT_PRIORITY = 1
"""The priority of annotations that are hints: they are open, and count after the pins of the config."""


def _is_pattern(pattern: str, paths: Mapping[str, str]) -> bool:
    return pattern not in paths and (pattern.startswith(_PATTERN) or pattern == "out")


def _on_path(pin: Pin, paths: Mapping[str, str], model: Model) -> Pin:
    """The pin on the path of the value that it names; a pattern with ``*``, ``?`` or ``[`` stays as it is.

    `InputError` where the model has no such value.
    """
    from autoshard.onnx.names import stored_tensors
    from autoshard.onnx.structure import nodes_of_model

    path = paths.get(pin.pattern)
    if path is not None:
        return Pin(path, pin.parsed, pin.source, pin.priority)
    if any(sign in pin.pattern for sign in "*?["):
        return pin
    inside = (node for path, _, _, node in nodes_of_model(model.proto) if path)
    if any(pin.pattern in node.output for node in inside):
        why = "is inside of a function or of a body; pin what the node around it takes or makes"
    elif pin.pattern in stored_tensors(model.graph):
        why = "is a constant of the program, which is not placed"
    else:
        why = f"is no value of {model.name}; {listing(pin.pattern, sorted(paths))}"
    raise InputError(f"{pin.source}: pin {pin.pattern!r} {why}")
