"""autoshard: decide how every tensor is split over a mesh of accelerators, with a proven gap.

>>> import autoshard
>>> autoshard.Mesh.from_dict({"data": 2, "model": 4}).size
8

The names below are imported when they are first used, so that ``import autoshard`` is instant.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would be most of this one's time
if TYPE_CHECKING:
    from typing import Any

    from autoshard.api.compare import compare
    from autoshard.api.jit import jit
    from autoshard.api.plans import Plan
    from autoshard.api.verbs import plan
    from autoshard.constraints import (
        AxisOnly,
        Barrier,
        Kernel,
        ManualComputation,
        MaxReshards,
        MemoryKind,
        NoCollective,
        Pin,
        Replicated,
        SameSharding,
    )
    from autoshard.errors import (
        AutoshardError,
        InfeasibleError,
        InputError,
        NotFoundError,
        OutOfTimeError,
        RuleError,
        ShardingError,
        UnsupportedError,
    )
    from autoshard.frontends.mlir.check import check_mlir
    from autoshard.propagation import propagate
    from autoshard.propagation.mlir.explain import explain_mlir
    from autoshard.propagation.mlir.module import propagate_mlir
    from autoshard.questions.compare import Comparison
    from autoshard.request.own import Task
    from autoshard.rules import register_rule
    from autoshard.sharding.mesh import Mesh
    from autoshard.sharding.tensor_sharding import TensorSharding

__version__ = "0.1.0"

_HOMES = {
    "AutoshardError": "autoshard.errors",
    "AxisOnly": "autoshard.constraints",
    "Barrier": "autoshard.constraints",
    "Comparison": "autoshard.questions.compare",
    "InfeasibleError": "autoshard.errors",
    "InputError": "autoshard.errors",
    "Kernel": "autoshard.constraints",
    "ManualComputation": "autoshard.constraints",
    "MaxReshards": "autoshard.constraints",
    "MemoryKind": "autoshard.constraints",
    "Mesh": "autoshard.sharding.mesh",
    "NoCollective": "autoshard.constraints",
    "NotFoundError": "autoshard.errors",
    "OutOfTimeError": "autoshard.errors",
    "Pin": "autoshard.constraints",
    "Plan": "autoshard.api.plans",
    "Replicated": "autoshard.constraints",
    "RuleError": "autoshard.errors",
    "SameSharding": "autoshard.constraints",
    "ShardingError": "autoshard.errors",
    "Task": "autoshard.request.own",
    "TensorSharding": "autoshard.sharding.tensor_sharding",
    "UnsupportedError": "autoshard.errors",
    "check_mlir": "autoshard.frontends.mlir.check",
    "compare": "autoshard.api.compare",
    "explain_mlir": "autoshard.propagation.mlir.explain",
    "jit": "autoshard.api.jit",
    "plan": "autoshard.api.verbs",
    "propagate": "autoshard.propagation",
    "propagate_mlir": "autoshard.propagation.mlir.module",
    "register_rule": "autoshard.rules",
}

__all__ = [
    "AutoshardError",
    "AxisOnly",
    "Barrier",
    "Comparison",
    "InfeasibleError",
    "InputError",
    "Kernel",
    "ManualComputation",
    "MaxReshards",
    "MemoryKind",
    "Mesh",
    "NoCollective",
    "NotFoundError",
    "OutOfTimeError",
    "Pin",
    "Plan",
    "Replicated",
    "RuleError",
    "SameSharding",
    "ShardingError",
    "Task",
    "TensorSharding",
    "UnsupportedError",
    "check_mlir",
    "compare",
    "explain_mlir",
    "jit",
    "plan",
    "propagate",
    "propagate_mlir",
    "register_rule",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'autoshard' has no attribute {name!r}")
    attribute = getattr(import_module(home), name)
    globals()[name] = attribute
    return attribute
