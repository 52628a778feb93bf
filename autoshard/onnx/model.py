"""`Model`: a model file with methods that check its annotations, complete them, and say what they imply."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.onnx import files
from autoshard.onnx.annotate import Annotated, annotated
from autoshard.onnx.check import Checked, check
from autoshard.onnx.files import ModelFile, save
from autoshard.onnx.implied import Transfer, implied
from autoshard.onnx.infer import Completed, infer

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Model", "load", "save"]


@dataclass(frozen=True)
class Model(ModelFile):
    """A `ModelFile` with methods; the work is done in the modules that these name."""

    def check(self, *, configuration: str | None = None, strict: bool = False) -> Checked:
        """Faults of the annotations, those for one configuration or all; see `autoshard.onnx.check`."""
        return check(self, configuration=configuration, strict=strict)

    def infer(self, *, configuration: str | None = None, spread: bool = False) -> Completed:
        """A copy with the missing specs filled in; with `spread`, hints go in both directions first."""
        if spread:
            from autoshard.onnx.spread import spread as spread_hints

            return spread_hints(self, configuration=configuration)
        return infer(self, configuration=configuration)

    def implied(self, *, configuration: str | None = None) -> tuple[Transfer, ...]:
        """The communication that the annotations imply at both ends of every node."""
        return implied(self, configuration=configuration)

    def annotate(self, *arguments: Any, **options: Any) -> Annotated:
        """A copy with specs for a mesh and shardings; see `autoshard.onnx.annotate.annotated`."""
        return annotated(self, *arguments, **options)

    def function(self, *arguments: Any, **options: Any) -> Any:
        """The model as a JAX function, with its arguments; see `autoshard.onnx.function`."""
        from autoshard.onnx.function import function

        return function(self, *arguments, **options)


def load(
    model: "str | os.PathLike[str] | bytes | ModelProto",
    *,
    shapes: Mapping[str, int] | None = None,
    external_data: bool = False,
) -> Model:
    """Read a model (binary, JSON or text protobuf, by the name of the file), or take one that is in memory.

    shapes: numbers for symbolic dimensions. external_data: read weights that are kept in files beside, too.
    `InputError` where it is no sound model, `UnsupportedError` where it is newer than the installed library.
    """
    read = files.load(model, shapes=shapes, external_data=external_data)
    return Model(read.proto, read.path, read.shapes)
