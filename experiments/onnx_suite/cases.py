"""The node suite of the onnx package: which cases there are, and what our function makes of one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from glob import escape
from typing import Any

import jax
import numpy as np

from autoshard.errors import AutoshardError, UnsupportedError
from autoshard.onnx.function import Imported, function
from autoshard.onnx.ops.registry import NeedsValueError, NotMappedError
from autoshard.onnx.tracing import narrowed

FOLDED = "shape depends on data: worked out with known inputs"
NOT_TENSORS = "needs strings, sequences or optionals"


_RELATIVE = {"float16": 2e-3, "bfloat16": 2e-2}
"""Besides the suite's tolerances; absolute ones are also 1e-6 of the largest number (these, of the small types)."""


@cache
def cases() -> dict[str, Any]:
    """All cases of the suite by name, in order."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


@dataclass(frozen=True)
class Outcome:
    """What became of a case: passed, wrong, not mapped, or why it is none of ours.

    known: inputs taken as constants. cut: dimensions of inputs and outputs that the shardings drawn for it cut.
    """

    name: str
    kind: str
    text: str = ""
    known: tuple[str, ...] = ()
    cut: int = 0


def imported(model: Any, inputs: dict[str, Any]) -> tuple[Imported, tuple[str, ...]]:
    """The function of a case, with the inputs that decide shapes as constants, found one after the other."""
    known: dict[str, Any] = {}
    while True:
        shapes = {name: x.shape for name, x in inputs.items() if name not in known}
        made = function(model, shapes, constants=known)
        try:
            jax.eval_shape(made, *made.args)
        except NeedsValueError as error:
            more = [error.value] if error.value in inputs else [n for n, x in inputs.items() if x.ndim <= 1]
            if all(name in known for name in more):
                raise
            known.update({name: inputs[name] for name in more})
            continue
        return made, tuple(known)


def has_other_types(case: Any) -> bool:
    graph = case.model.graph
    everything = [*graph.input, *graph.output]
    return any(
        i.type.WhichOneof("value") != "tensor_type" or i.type.tensor_type.elem_type == 8 for i in everything
    )  # fmt: skip


def judge(case: Any, run: Any = None) -> Outcome:
    """One case, all its data sets. run: calls the function and says how many dimensions are cut; by default jitted."""
    if has_other_types(case):
        return Outcome(case.name, NOT_TENSORS)
    known: tuple[str, ...] = ()
    cut = 0
    try:
        for inputs, outputs in case.data_sets:
            names = [i.name for i in case.model.graph.input]
            feeds = {n: _data(x) for n, x in zip(names, inputs)}
            made, known = imported(case.model, feeds)
            if not made.inputs and not made.weights:
                return Outcome(case.name, FOLDED, "", known)
            args = {n: narrowed(x, n, made.notes) for n, x in feeds.items() if n not in known}
            weights = {t.name: _array(t) for t in case.model.graph.initializer if t.name in made.weights}
            found, cut = (run or _jitted)(made, weights, args)
            for info, want in zip(case.model.graph.output, outputs):
                fault = difference(_data(want), np.asarray(found[info.name]), case.rtol, case.atol)
                if fault:
                    return Outcome(case.name, "wrong", f"{info.name}: {fault}", known, cut)
    except NotMappedError as error:
        return Outcome(case.name, "not mapped", error.op)
    except UnsupportedError as error:
        return Outcome(case.name, "not supported", str(error), known)
    except AutoshardError as error:
        return Outcome(case.name, "error", str(error), known)
    return Outcome(case.name, "passed", "", known, cut)


MESHES = ({"x": 2, "y": 2, "z": 2}, {"x": 2, "y": 3})
"""Eight devices, and six of them, which cut what is a multiple of three."""
MOST_PADDING = 1.25
"""How much longer a dimension of an input may be for being cut evenly: what the planner considers."""
DRAWS = 30


def sharded(made: Imported, weights: Any, inputs: Any) -> tuple[Any, int]:
    """Planned by autoshard with shardings of inputs and of half the outputs drawn at random, and run as planned.

    Drawn again where nothing is cut. Gives the results, and how many dimensions the drawn shardings cut.
    """
    import random

    import autoshard

    draw = random.Random(",".join(f"{n}{x.shape}" for n, x in inputs.items()))
    outputs = jax.eval_shape(made, weights, inputs)
    pins: list[tuple[str, list[str]]] = []
    mesh: dict[str, int] = {}
    for _ in range(DRAWS):
        mesh = draw.choice(MESHES)
        pins = [(f"inputs/{escape(n)}", drawn(x.shape, mesh, draw, MOST_PADDING)) for n, x in inputs.items()]
        pins += [(f"out/{escape(n)}", drawn(x.shape, mesh, draw, 1)) for n, x in outputs.items() if draw.random() < 0.5]
        if cuts(pins):
            break
    plan = autoshard.plan(
        made.__call__, weights, inputs, mesh=mesh, hardware="tpu_v5e", effort=0.1, argnames=("weights", "inputs"),
        constraints=[autoshard.Pin(name, "[" + ", ".join(f"{{{a}}}" for a in dims) + "]") for name, dims in pins],
    )  # fmt: skip
    return plan.jit()(*plan.place(weights, inputs)), cuts(pins)


def drawn(shape: tuple[int, ...], mesh: dict[str, int], draw: Any, padding: float) -> list[str]:
    """For every dimension the axis that cuts it, or none; most that can be cut are, while there are axes."""
    free = draw.sample(sorted(mesh), len(mesh))
    dims = []
    for size in shape:
        fitting = [a for a in free if size > 1 and -(-size // mesh[a]) * mesh[a] <= padding * size]
        dims.append(f'"{fitting[0]}"' if fitting and draw.random() < 0.7 else "")
        free = [a for a in free if f'"{a}"' != dims[-1]]
    return dims


def cuts(pins: list[tuple[str, list[str]]]) -> int:
    return sum(bool(axis) for _, dims in pins for axis in dims)


def _jitted(made: Imported, weights: Any, inputs: Any) -> tuple[Any, int]:
    return jax.jit(made.__call__)(weights, inputs), 0


def _data(given: Any) -> np.ndarray:
    """Data of a case: arrays, or messages where NumPy has no type for them."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)


def _array(tensor: Any) -> np.ndarray:
    from onnx import numpy_helper

    return narrowed(numpy_helper.to_array(tensor), tensor.name, set())


def difference(want: np.ndarray, found: np.ndarray, rtol: float, atol: float) -> str:
    """Why two arrays are not the same; empty where they are, within the suite's tolerances."""
    if want.shape != found.shape:
        return f"shape {found.shape}, expected {want.shape}"
    kind = np.dtype(want.dtype)
    if found.dtype not in (kind, jax.dtypes.canonicalize_dtype(kind)):
        return f"type {found.dtype}, expected {want.dtype}"
    text = f"found {found.reshape(-1)[:6]}, expected {want.reshape(-1)[:6]}"
    if kind == np.bool_ or np.issubdtype(kind, np.integer) or kind.name.startswith(("int", "uint")):
        return "" if np.array_equal(want.astype(np.int64), found.astype(np.int64)) else text
    wide = np.complex128 if kind.kind == "c" else np.float64
    a, b = want.astype(wide), found.astype(wide)
    if kind.name.startswith("float") and kind.itemsize == 1:
        return "" if np.array_equal(a, b, equal_nan=True) else text
    rtol = max(rtol, _RELATIVE.get(kind.name, 0.0))
    finite = np.abs(a[np.isfinite(a)])
    atol = max(atol, _RELATIVE.get(kind.name, 1e-6) * float(finite.max(initial=0.0)))
    return "" if np.allclose(b, a, rtol=rtol, atol=atol, equal_nan=True) else text
