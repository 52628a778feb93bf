"""The node suite of the onnx package: which cases there are, and what our function makes of one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

from autoshard.errors import AutoshardError, UnsupportedError
from autoshard.onnx.function import Imported, function
from autoshard.onnx.ops.registry import NeedsValueError, NotMappedError
from autoshard.onnx.walk import narrowed

NOT_TENSORS = "needs strings, sequences or optionals"


@cache
def cases() -> dict[str, Any]:
    """All cases of the suite by name, in order."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


@dataclass(frozen=True)
class Outcome:
    """What became of a case: passed, wrong, not mapped, or why it is none of ours. known: inputs taken as constants."""

    name: str
    kind: str
    text: str = ""
    known: tuple[str, ...] = ()


def imported(model: Any, inputs: dict[str, Any]) -> tuple[Imported, tuple[str, ...]]:
    """The function of a case, with the inputs that decide shapes as constants, found one after the other."""
    known: dict[str, Any] = {}
    while True:
        shapes = {name: x.shape for name, x in inputs.items() if name not in known}
        made = function(model, shapes, constants=known)
        try:
            jax.eval_shape(made, *made.args)
        except NeedsValueError as error:
            if error.value not in inputs or error.value in known:
                raise
            known[error.value] = inputs[error.value]
            continue
        return made, tuple(known)


def has_other_types(case: Any) -> bool:
    graph = case.model.graph
    everything = [*graph.input, *graph.output]
    return any(
        i.type.WhichOneof("value") != "tensor_type" or i.type.tensor_type.elem_type == 8 for i in everything
    )  # fmt: skip


def judge(case: Any, run: Any = None) -> Outcome:
    """One case, all its data sets. run: calls the function; by default jitted on one device."""
    if has_other_types(case):
        return Outcome(case.name, NOT_TENSORS)
    known: tuple[str, ...] = ()
    try:
        for inputs, outputs in case.data_sets:
            names = [i.name for i in case.model.graph.input]
            feeds = {n: np.asarray(x) for n, x in zip(names, inputs)}
            made, known = imported(case.model, feeds)
            args = {n: narrowed(x, n, made.notes) for n, x in feeds.items() if n not in known}
            weights = {t.name: _array(t) for t in case.model.graph.initializer if t.name in made.weights}
            found = (run or _jitted)(made, weights, args)
            for info, want in zip(case.model.graph.output, outputs):
                fault = difference(np.asarray(want), np.asarray(found[info.name]), case.rtol, case.atol)
                if fault:
                    return Outcome(case.name, "wrong", f"{info.name}: {fault}", known)
    except NotMappedError as error:
        return Outcome(case.name, "not mapped", error.op)
    except UnsupportedError as error:
        return Outcome(case.name, "not supported", str(error), known)
    except AutoshardError as error:
        return Outcome(case.name, "error", str(error), known)
    return Outcome(case.name, "passed", "", known)


def _jitted(made: Imported, weights: Any, inputs: Any) -> Any:
    return jax.jit(made.__call__)(weights, inputs)


def _array(tensor: Any) -> np.ndarray:
    from onnx import numpy_helper

    return narrowed(numpy_helper.to_array(tensor), tensor.name, set())


def difference(want: np.ndarray, found: np.ndarray, rtol: float, atol: float) -> str:
    """Why two arrays are not the same; empty where they are, within the suite's tolerances."""
    if want.shape != found.shape:
        return f"shape {found.shape}, expected {want.shape}"
    kind = np.dtype(want.dtype)
    narrow = jax.dtypes.canonicalize_dtype(kind)
    if found.dtype not in (kind, narrow):
        return f"type {found.dtype}, expected {want.dtype}"
    if kind.kind in "iub":
        same = np.array_equal(want.astype(np.int64 if kind.kind != "b" else kind), found.astype(np.int64 if kind.kind != "b" else kind))  # noqa: E501
        return "" if same else f"found {found.reshape(-1)[:6]}, expected {want.reshape(-1)[:6]}"
    wide = np.complex128 if kind.kind == "c" else np.float64
    a, b = want.astype(wide), found.astype(wide)
    small = kind.itemsize <= 2 and kind.name not in ("float16", "bfloat16")
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(kind.name, rtol)
    if small:
        same = np.array_equal(a, b, equal_nan=True)
    else:
        same = np.allclose(b, a, rtol=max(rtol, tolerance), atol=max(atol, tolerance * 1e-1 if tolerance != rtol else atol), equal_nan=True)  # noqa: E501
    return "" if same else f"found {found.reshape(-1)[:6]}, expected {want.reshape(-1)[:6]}"
