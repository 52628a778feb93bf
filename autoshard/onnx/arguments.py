"""Arguments to run an imported model with: the weights of its files, and inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoshard.errors import InputError

if TYPE_CHECKING:
    from autoshard.onnx.files import ModelFile
    from autoshard.onnx.function import Imported

WHOLE_NUMBERS_BELOW = 4
"""Random whole numbers are small: they are often indices, and nothing says how many there are."""


def read_weights(made: "Imported", model: "ModelFile") -> dict[str, np.ndarray]:
    """The weights of a model as JAX computes with them; `InputError` where a file with some is missing."""
    from onnx import TensorProto, numpy_helper

    from autoshard.onnx.names import stored_tensors
    from autoshard.onnx.tracing import narrowed

    weights: dict[str, np.ndarray] = {}
    folder = str(model.path.absolute().parent) if model.path is not None else ""
    for name, tensor in stored_tensors(made.model.graph).items():
        if name not in made.weights:
            continue
        if tensor.data_location == TensorProto.EXTERNAL and model.path is None:
            raise InputError(f"weight {name!r} lies outside of the model; load it from its file")
        try:
            array = numpy_helper.to_array(tensor, folder)
        except Exception as error:  # reading the other file raises errors of many kinds
            raise InputError(f"weight {name!r} cannot be read: {error}") from None
        weights[name] = narrowed(np.asarray(array), f"weight {name!r}", made.notes)
    return weights


def random_inputs(made: "Imported", seed: int) -> dict[str, np.ndarray]:
    """A random array for every input: normal floats, small whole numbers, or truth values, by its type."""
    random = np.random.default_rng(seed)
    return {name: _random(random, spec) for name, spec in made.inputs.items()}


def _random(random: np.random.Generator, spec: Any) -> np.ndarray:
    kind = np.dtype(spec.dtype)
    if kind == np.bool_:
        return random.integers(0, 2, spec.shape).astype(bool)
    if kind.kind in "iu" or kind.name.startswith(("int", "uint")):
        most = 2 if kind.name.endswith(("int2", "int4")) else WHOLE_NUMBERS_BELOW
        return random.integers(0, most, spec.shape).astype(kind)
    return random.standard_normal(spec.shape).astype(kind)


def make_arguments(made: "Imported", model: "ModelFile", seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The arguments of an imported model: weights from its files, random inputs."""
    return read_weights(made, model), random_inputs(made, seed)
