"""Model files: faults become errors that say what is wrong; weights in other files are read only when asked for.

A `ModelFile` keeps the message as it was read and never changes it. Types of values come from shape inference on a copy
without the weights, with symbolic dimensions replaced where the caller gives numbers.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autoshard.errors import InputError, UnsupportedError
from autoshard.files import decode_text, read_bytes, write_bytes
from autoshard.onnx.installed import onnx_library

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from autoshard.onnx.graph import ValueType

MAX_BYTES = 2**31 - 1
"""What one protobuf message can hold; larger models keep their weights in files beside."""

JSON, TEXT, BINARY = "json", "textproto", "protobuf"
_FORMATS = {
    ".json": JSON,
    ".onnxjson": JSON,
    ".textproto": TEXT,
    ".pbtxt": TEXT,
    ".prototxt": TEXT,
    ".txtpb": TEXT,
}
_SYNTAX = frozenset({".onnxtxt", ".onnxtext"})


@dataclass(frozen=True)
class ModelFile:
    """A model and where it came from.

    proto: the message as read; never changed. path: None where it did not come from a file.
    shapes: numbers for symbolic dimensions, by name.
    """

    proto: "ModelProto"
    path: Path | None = None
    shapes: Mapping[str, int] = field(default_factory=dict)

    @property
    def graph(self) -> "GraphProto":
        """The model's main graph."""
        return self.proto.graph

    @property
    def name(self) -> str:
        """The name by which messages call the model."""
        return str(self.path) if self.path is not None else (self.graph.name or "model")

    @cached_property
    def opsets(self) -> dict[str, int]:
        """Opset version by domain; the default domain is the empty string."""
        versions = {_domain(o.domain): o.version for o in self.proto.opset_import}
        return versions or {"": 1}

    @cached_property
    def initializers(self) -> "dict[str, ValueType]":
        """Type of every weight of the main graph."""
        from autoshard.onnx.graph import initializer_types

        return initializer_types(self.graph)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs, without those that only give an initializer its type."""
        return tuple(i.name for i in self.graph.input if i.name not in self.initializers)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(o.name for o in self.graph.output)

    @cached_property
    def inferred(self) -> "ModelProto":
        """A copy without large weights, with `shapes` put in and everything that shape inference adds."""
        from autoshard.onnx.shapes import inferred

        return inferred(self.proto, self.shapes)

    @cached_property
    def types(self) -> "dict[str, ValueType]":
        """Type of every value of the main graph, as far as it is known; `shapes` are put in."""
        from autoshard.onnx.graph import value_types

        return value_types(self.inferred.graph)


def load(
    model: "str | os.PathLike[str] | bytes | ModelProto",
    *,
    shapes: Mapping[str, int] | None = None,
    external_data: bool = False,
) -> ModelFile:
    """Read a model (binary, JSON or text protobuf, by the name of the file), or take one that is in memory.

    shapes: numbers for symbolic dimensions. external_data: read weights that are kept in files beside, too.
    Raises `InputError` where it is no valid model, `UnsupportedError` where it is newer than the installed library.
    """
    onnx = onnx_library()
    path = None if isinstance(model, bytes | onnx.ModelProto) else Path(os.fspath(cast(Any, model)))
    if path is not None:
        proto = parse(_content(path), str(path), _format(path))
    else:
        proto = parse(model, "model", BINARY) if isinstance(model, bytes) else cast("ModelProto", model)
    from autoshard.onnx.graph import check_graph
    from autoshard.onnx.shapes import check_shapes_asked

    check_versions(proto, str(path or "model"))
    if (odd := _no_text(proto)) is not None:
        raise InputError(f"{path or 'model'}: {odd} is no UTF-8 text, as all names in a model are")
    check_external_paths(proto, path)
    check_graph(proto, str(path or "model"))
    check_shapes_asked(proto, shapes or {})
    if external_data:
        if path is None:
            raise InputError("weights outside of a model are found beside its file; load it from there")
        _read_external(proto, path)
    return ModelFile(proto, path, dict(shapes or {}))


def _no_text(message: Any) -> str | None:
    """A field of text that holds other bytes, with them: the protobuf library hands these out as they are."""
    for of, value in message.ListFields():
        several = [value] if isinstance(value, str | bytes) or not hasattr(value, "__len__") else value
        if of.type == of.TYPE_STRING:
            odd = next((v for v in several if isinstance(v, bytes)), None)
            if odd is not None:
                return f"{of.full_name.removeprefix('onnx.')} {odd[:40]!r}"
        elif of.type == of.TYPE_MESSAGE:
            found = next((f for inner in several if (f := _no_text(inner)) is not None), None)
            if found is not None:
                return found
    return None


def save(model: "ModelProto", path: str | os.PathLike[str]) -> None:
    """Write a model whole or not at all, in the form that the name of the file asks for."""
    onnx_library()
    from google.protobuf import json_format, text_format

    path = Path(path)
    form = _format(path)
    if form == JSON:
        data = json_format.MessageToJson(model, preserving_proto_field_name=True).encode()
    elif form == TEXT:
        data = text_format.MessageToString(model).encode()
    else:
        try:
            data = model.SerializeToString(deterministic=True)
        except Exception as error:  # protobuf has several kinds for a message that is too large
            raise InputError(
                f"cannot write {path}: {error}; keep the weights outside of the file (onnx.save_model with "
                "save_as_external_data=True)"
            ) from None
    write_bytes(path, data)


def parse(data: bytes, name: str, form: str) -> "ModelProto":
    """The message in `data`; `InputError` where there is none."""
    onnx = onnx_library()
    from google.protobuf import json_format, text_format
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        if form == JSON:
            json_format.Parse(decode_text(data, name, what="ONNX model"), proto)
        elif form == TEXT:
            text_format.Parse(decode_text(data, name, what="ONNX model"), proto)
        else:
            proto.ParseFromString(data)
    except DecodeError:
        raise InputError(f"{name} is no ONNX model, or a part of one: its bytes cannot be read to the end") from None
    except (json_format.ParseError, text_format.ParseError) as error:
        raise InputError(f"{name} is no ONNX model in the form {form}: {_parser_words(error)}") from None
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be read") from None
    if not proto.HasField("graph") or not proto.HasField("ir_version"):
        missing = "graph" if proto.HasField("ir_version") else "IR version"
        raise InputError(f"{name} is no ONNX model: it has no {missing}")
    return proto


def _parser_words(error: Exception) -> str:
    """What the parser said, without texts of Python's own: ``Failed to parse irVersion field: 'x' is not a number``."""
    message = " ".join(str(error).split())
    message = re.sub(r"invalid literal for int\(\) with base \d+: (.*?)\.*$", r"\1 is not a number", message)
    return re.sub(r"(unhashable type|'\w+' object|unsupported operand|expected string)\b.*$", "wrong type", message)[
        :300
    ]


def check_versions(proto: "ModelProto", name: str) -> None:
    """Raise `UnsupportedError` where the installed library does not know the IR or opset version."""
    onnx = onnx_library()
    if proto.ir_version < 1:
        raise InputError(f"{name} has IR version {proto.ir_version}; versions start at 1")
    if proto.ir_version > onnx.IR_VERSION:
        raise UnsupportedError(
            f"{name} has IR version {proto.ir_version}; onnx {onnx.__version__} knows up to {onnx.IR_VERSION}: "
            "install a newer onnx, or save the model for an older one"
        )
    if not proto.opset_import and proto.ir_version >= 3 and proto.graph.node:
        raise InputError(f"{name} imports no operators (opset_import); the file may be cut short")
    newest = onnx.defs.onnx_opset_version()
    seen: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = _domain(entry.domain)
        shown = domain or "ai.onnx"
        if seen.setdefault(domain, entry.version) != entry.version:  # merged models may repeat equal entries
            raise InputError(f"{name} imports opsets {seen[domain]} and {entry.version} of {shown}")
        if entry.version < 1:
            raise InputError(f"{name} imports opset {entry.version} of {shown}; versions start at 1")
        if not domain and entry.version > newest:
            raise UnsupportedError(
                f"{name} imports opset {entry.version}; onnx {onnx.__version__} knows opsets up to {newest}: "
                "install a newer onnx, or convert the model"
            )


def check_external_paths(proto: "ModelProto", path: Path | None) -> None:
    """`InputError` for weights outside of the file that do not lie in its folder or beneath it."""
    from autoshard.onnx.graph import all_tensors

    external = onnx_library().TensorProto.EXTERNAL
    folder = None if path is None else path.absolute().parent.resolve()
    for tensor in all_tensors(proto):
        if tensor.data_location == external:
            _check_location(tensor, folder, str(path or "model"))


def _check_location(tensor: Any, folder: Path | None, name: str) -> None:
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    what = f"{name}: the data of {tensor.name!r} lie in {location!r}"
    if not location or "\0" in location:
        raise InputError(f"{name}: the data of {tensor.name!r} lie outside of the file, and it does not say where")
    if location.startswith(("/", "\\")) or Path(location).is_absolute() or location[1:2] == ":":
        raise InputError(f"{what}, an absolute path; only paths within the model's folder are read")
    if ".." in location.replace("\\", "/").split("/"):
        raise InputError(f"{what}, outside of the model's folder; only paths within it are read")
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdigit()):
            raise InputError(f"{what} with {key} {text!r}; it must be a whole number of bytes")
    if folder is not None and not (folder / location).resolve().is_relative_to(folder):
        raise InputError(f"{what}, a link that leaves the model's folder; only paths within it are read")


def _read_external(proto: "ModelProto", path: Path) -> None:
    from onnx.external_data_helper import load_external_data_for_model

    try:
        load_external_data_for_model(proto, str(path.absolute().parent))
    except Exception as error:  # the library passes on errors of many kinds
        raise InputError(f"{path}: weights outside of the file cannot be read: {error}") from None


def _content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0  # read_bytes raises the better error
    if size > MAX_BYTES:
        raise InputError(
            f"ONNX model {path} has {size} bytes; a message holds at most {MAX_BYTES}: keep weights outside of it "
            "(onnx.save_model with save_as_external_data=True)"
        )
    return read_bytes(path, what="ONNX model", max_bytes=MAX_BYTES)


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in _SYNTAX:
        raise UnsupportedError(
            f"{path}: the text syntax of ONNX has no sharding annotations; save the model as .onnx, .json or .textproto"
        )
    return _FORMATS.get(suffix, BINARY)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
