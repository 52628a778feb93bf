"""The models of the standing end-to-end set: files in packages, and two that are made."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
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
    assert spec is not None and spec.origin is not None, f"install {name}"
    return Path(spec.origin).parent


def skeletons() -> list[Case]:
    """The nine CNNs of the onnx package, at full width."""
    folder = package("onnx") / "backend" / "test" / "data" / "light"
    return [Case(p.stem.removeprefix("light_"), p) for p in sorted(folder.glob("light_*.onnx"))]


def packaged() -> list[Case]:
    """A text recogniser and a classifier of file types, with their real weights."""
    rec = next((package("rapidocr_onnxruntime") / "models").glob("*rec*.onnx"))
    magika = next((package("magika") / "models" / "standard_v3_3").glob("*.onnx"))
    return [
        Case("ocr_rec", rec, {"x": [8, 3, 48, 320]}),
        Case("magika", magika, {"bytes": [8, 2048]}, {"bytes": 257}),
    ]


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
