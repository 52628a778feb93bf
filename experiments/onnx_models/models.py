"""The models of the standing end-to-end set: files in packages, and two that are made."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A model file, the sizes of its symbolic dimensions, and inputs that are no random numbers."""

    name: str
    path: Path
    shapes: dict[str, Any] = field(default_factory=dict)
    whole_below: dict[str, int] = field(default_factory=dict)


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return Path(spec.origin).parent


def cases(folder: Path) -> dict[str, Callable[[], Case]]:
    """All of them by name, each made when it is asked for; what is made lies in the folder."""
    light = package("onnx") / "backend" / "test" / "data" / "light"
    return {
        "ocr_rec": text_recogniser, "magika": classifier, "transformer": lambda: transformer(folder),
        **{p.stem.removeprefix("light_"): partial(skeleton, p, folder) for p in sorted(light.glob("light_*.onnx"))},
    }  # fmt: skip


def skeleton(path: Path, folder: Path) -> Case:
    """A CNN of the onnx package, at full width, with weights drawn at random."""
    return Case(path.stem.removeprefix("light_"), _filled(path, folder))


def _filled(path: Path, folder: Path) -> Path:
    """The model with weights in the place of its constants of 0.02, which let activations overflow.

    As He et al. initialise: of deviation sqrt(2 / inputs of an output), scales and variances 1, the rest 0.
    """
    import onnx
    from onnx import numpy_helper

    random = np.random.default_rng(0)
    model = onnx.load(path)
    graph = model.graph
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    ones = _scales(graph)
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in known:
            kept.append(node)
            continue
        shape = tuple(known[node.input[0]].tolist())
        if len(shape) > 1:
            drawn = random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        else:
            drawn = np.full(shape, float(node.output[0] in ones), np.float32)
        graph.initializer.append(numpy_helper.from_array(drawn, node.output[0]))
    used = {name for node in kept for name in node.input}
    tensors = [t for t in graph.initializer if t.name in used]
    names = {t.name for t in tensors}
    inputs = [i for i in graph.input if i.name not in names and i.name in used]
    fields: list[tuple[Any, list[Any]]] = [(graph.node, kept), (graph.initializer, tensors), (graph.input, inputs)]
    for held, new in fields:
        copies = list(new)
        del held[:]
        held.extend(copies)
    model.ir_version = 8  # initializers are no inputs
    _levelled(model)
    onnx.save(model, folder / path.name)
    return folder / path.name


def _levelled(model: Any) -> None:
    """Scale the last weights so that scores have deviation 1; else one class takes all, or all get the same."""
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    makers = {name: node for node in model.graph.node for name in node.output}
    scored = model.graph.output[0].name
    scored = makers[scored].input[0] if makers[scored].op_type == "Softmax" else scored
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    del seen.graph.output[:]
    seen.graph.output.append(onnx.helper.make_empty_tensor_value_info(scored))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(seen.SerializeToString(), options)
    shapes = {i.name: i.shape for i in session.get_inputs()}
    random = np.random.default_rng(0)
    (scores,) = session.run(None, {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()})
    node = makers[scored]
    while node.op_type not in ("Gemm", "MatMul", "Conv"):
        node = makers[node.input[0]]
    name = node.input[1]
    while name in makers:  # a Reshape
        name = makers[name].input[0]
    weight = next(t for t in model.graph.initializer if t.name == name)
    scaled = numpy_helper.to_array(weight) / np.asarray(scores).std(dtype=np.float32)
    weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))


def _scales(graph: Any) -> set[str]:
    """What activations are multiplied with, or divided by."""
    found = {name for n in graph.node if n.op_type == "BatchNormalization" for name in (n.input[1], n.input[4])}
    found |= {name for n in graph.node if n.op_type == "Mul" for name in n.input}
    return found | {n.input[0] for n in graph.node if n.op_type == "Unsqueeze" and n.output[0] in found}


def text_recogniser() -> Case:
    """With its real weights."""
    path = next((package("rapidocr_onnxruntime") / "models").glob("*rec*.onnx"))
    return Case("ocr_rec", path, {"x": [8, 3, 48, 320]})


def classifier() -> Case:
    """Of file types, with its real weights."""
    path = next((package("magika") / "models" / "standard_v3_3").glob("*.onnx"))
    return Case("magika", path, {"bytes": [8, 2048]}, {"bytes": 257})


def transformer(folder: Path) -> Case:
    """An encoder with random weights, as PyTorch exports it."""
    import torch

    torch.manual_seed(0)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(1000, 128)
            layer = torch.nn.TransformerEncoderLayer(128, 8, 512, batch_first=True, norm_first=True, activation="gelu")
            self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = torch.nn.Linear(128, 1000)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.encoder(self.embed(tokens)))

    path = folder / "transformer.onnx"
    tokens = torch.randint(0, 1000, (8, 32))
    torch.onnx.export(Encoder().eval(), (tokens,), str(path), input_names=["tokens"], output_names=["logits"])
    return Case("transformer", path, {}, {"tokens": 1000})


def inputs_of(case: Case, made: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs for a case; whole numbers below what the model takes."""
    from autoshard.onnx.arguments import random_inputs

    found = random_inputs(made, seed)
    random = np.random.default_rng(seed)
    for name, below in case.whole_below.items():
        found[name] = random.integers(0, below, found[name].shape).astype(found[name].dtype)
    return found
