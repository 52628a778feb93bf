"""The solver: numbers in, numbers out; no tensors, no JAX.

Everything but the network and the solution is loaded on first use, so that importing this package
loads no compiled engine.
"""

from typing import TYPE_CHECKING, Any

from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Evaluation, Usage, evaluate, usage_profile
from autoshard.solver.solution import Solution

if TYPE_CHECKING:
    from autoshard.solver.driver import anything, solve
    from autoshard.solver.incumbent import Progress

_LAZY = {
    "anything": "autoshard.solver.driver",
    "solve": "autoshard.solver.driver",
    "Progress": "autoshard.solver.incumbent",
}

__all__ = [
    "IMPOSSIBLE",
    "CostNetwork",
    "Edge",
    "Evaluation",
    "Progress",
    "Solution",
    "Usage",
    "anything",
    "evaluate",
    "solve",
    "usage_profile",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
