"""Ops that have no mapping to JAX, each with the reason and what to try instead."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from autoshard.onnx.ops.families import mapped_ops
from autoshard.onnx.ops.registry import full_name


@dataclass(frozen=True)
class Unmapped:
    """Ops that cannot be planned for one reason. advice: what to try; ``{node}`` and ``{out}`` stand for names."""

    why: str
    advice: str
    ops: tuple[str, ...]


_CUT = "cut the model behind it (onnx.utils.extract_model), so that {out!r} becomes an input"

UNMAPPED = (
    Unmapped(
        "the size of its result depends on the data that it decodes, and a plan needs sizes before there is data",
        "decode images before the model: " + _CUT + " with a stated size",
        ("ImageDecoder",),
    ),
    Unmapped(
        "it draws random numbers that no other system would draw alike, and a plan is verified by its results",
        "make the numbers before the model: " + _CUT,
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    ),
    Unmapped(
        "strings are no tensors of JAX",
        "turn texts into numbers before the model: " + _CUT,
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    ),
    Unmapped(
        "sequences and optionals are no tensors",
        "write it with tensors (Concat and Split in the place of sequences)",
        ("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
         "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
         "SplitToSequence"),
    ),
    Unmapped(
        "of ai.onnx.ml only ArrayFeatureExtractor, Binarizer and TreeEnsemble have a mapping",
        "write it with ops of ai.onnx, such as MatMul, Sub and Div",
        tuple(f"ai.onnx.ml::{name}" for name in (
            "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer", "LabelEncoder",
            "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor",
            "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "ZipMap",
        )),
    ),
    Unmapped(
        "it differentiates a graph",
        "import the model without it, and plan a JAX function that takes jax.grad of autoshard.onnx's function",
        ("ai.onnx.preview.training::Gradient",),
    ),
)  # fmt: skip
"""All live ops of opset 7 and newer, in the domains of ONNX, that the table has no function for."""

_BY_NAME = {op: entry for entry in UNMAPPED for op in entry.ops}


def unmapped(domain: str, name: str) -> Unmapped | None:
    """Why an op of ONNX has no mapping; None for all others."""
    return _BY_NAME.get(full_name(domain, name))


def reason(domain: str, name: str, output: str) -> str:
    """What an error says of an op without a mapping: why there is none, and what to try."""
    entry = unmapped(domain, name)
    if entry is not None:
        return f"{entry.why}; {entry.advice.format(out=output)}"
    op = full_name(domain, name)
    near = get_close_matches(op, mapped_ops(), n=2, cutoff=0.75)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return f"it has no mapping to JAX; {guess}give the model a function of that name and domain, made of ops of ai.onnx"
