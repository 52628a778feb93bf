"""Shardy's import and export passes around its propagation, in the order of the jaxlib that is installed."""

import re
from functools import cache

from jaxlib.mlir import passmanager

from autoshard.frontends.mlir.context import mlir_context

PIPELINE = "sdy-propagation-pipeline"
ADD_EDGES = "sdy-add-data-flow-edges"
SINK_EDGES = "func.func(sdy-sink-data-flow-edges)"

_PROPAGATE = re.compile(r",sdy-user-priority-propagate\{[^}]*\},")
_SAVES = re.compile(r"sdy-save-module(?:\{[^}]*\})?,")
_GATHERS_SUB_AXES = "sdy-remove-sub-axes-in-input-output-shardings,"


def import_passes() -> str:
    """The passes before propagation: constants split, calls inlined, data-flow edges added, constraints applied."""
    return _around_propagation()[0]


def export_passes(*, keep_sub_axes: bool = False) -> str:
    """The passes after it: shardings closed, reshards inserted, what was only for propagation dropped.

    keep_sub_axes: without the pass that gathers the sub-axis which an argument or a result of the module ends on.
    """
    passes = _around_propagation()[1]
    return passes.replace(_GATHERS_SUB_AXES, "") if keep_sub_axes else passes


@cache
def _around_propagation() -> tuple[str, str]:
    with mlir_context():
        whole = str(passmanager.PassManager.parse(f"builtin.module({PIPELINE})"))
    passes = _SAVES.sub("", whole.removeprefix("builtin.module(").removesuffix(")"))
    before, after = _PROPAGATE.split(passes)
    return before, after
