"""Custom kernels in a jaxpr: their names, and what is known of them without running them, as plain data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from autoshard.frontends.jax.facts import dtype_name
from autoshard.frontends.jax.pallas import counted_work, grid_facts, kernel_name, work_facts
from autoshard.rules.kernels import CUDNN, KERNEL_KINDS

_MASKED = "splash_attention_kernel.py"
"""The file of kernels that skip the blocks of their second operand that are 0."""


def is_kernel(kind: str) -> bool:
    """Whether a primitive is a custom kernel: code that neither we nor XLA can look into."""
    return kind in KERNEL_KINDS


def kernel_facts(eqn: Any, arrays: Mapping[int, Any]) -> dict[str, Any]:
    """The entry ``kernel`` in the attrs of an op.

    Always ``name``, ``file`` (that of its function, '' where it is not known) and ``work`` (None where nothing is
    known). Of a `pallas_call` what `grid_facts` says; of a `custom_partitioning` its ``rule``; of others ``params``.
    arrays: operands whose numbers are known, by position.
    """
    kind, params = str(eqn.primitive.name), eqn.params
    if kind == "pallas_call":
        name, file = kernel_name(params)
        work = work_facts(params)
        if file == _MASKED and work["bytes"] is None and 1 in arrays:
            visited = np.count_nonzero(np.asarray(arrays[1])) / max(1, np.size(arrays[1]))
            work = {key: float(n * visited) if key in ("flop", "transcendentals") else n for key, n in work.items()}
            work["from"] = "its body, at the places of its grid that its mask does not skip"
        return {"name": name, "file": file, "work": work, **grid_facts(params)}
    if kind == "custom_partitioning":
        info = str(getattr(params["call"].jaxpr.debug_info, "func_src_info", "") or "")
        name, _, place = info.partition(" at ")
        return {
            "name": name or kind, "file": place.rpartition(":")[0].rpartition("/")[2], "work": None,
            "rule": _shardy_rule(eqn),
        }  # fmt: skip
    if kind in CUDNN:
        plain = {k: v for k, v in params.items() if isinstance(v, bool | int | float | str)}
        return {"name": kind, "file": "", "work": None, "params": plain}
    name = params.get("target_name") or params.get("kernel_name") or params.get("name") or kind
    return {"name": str(name), "file": "", "work": None}


def called_facts(eqn: Any) -> dict[str, Any]:
    """The entry ``kernel`` in the attrs of a call of a jitted function that is said to be a kernel."""
    return {"name": str(eqn.params["name"]), "file": "", "work": counted_work(eqn.params["jaxpr"])}


def _shardy_rule(eqn: Any) -> dict[str, Any] | None:
    """The `sharding_rule` of a `custom_partitioning` as plain data: factors of each dimension; None without one."""
    rule: Any = eqn.params.get("sharding_rule")
    if callable(rule) and not hasattr(rule, "operand_mappings"):
        rule = _called(rule, eqn)
    if not hasattr(rule, "operand_mappings"):
        return None

    def tensors(mappings: Any, variables: Any) -> list[list[list[str]]]:
        out = []
        for mapping, var in zip(mappings, variables, strict=True):
            dims = [[d] if isinstance(d, str) else list(d) for d in mapping]
            if (dims and dims[0][0].startswith("…")) or (dims and dims[0][0].startswith("...")):
                batch = len(var.aval.shape) - (len(dims) - 1)
                dims[:1] = [[f"{dims[0][0]}_{k}"] for k in range(batch)]
            out.append(dims)
        return out

    kept = [*getattr(rule, "need_replication_factors", ()), *getattr(rule, "permutation_factors", ())]
    return {
        "operands": tensors(rule.operand_mappings, eqn.invars), "results": tensors(rule.result_mappings, eqn.outvars),
        "sizes": {str(f): int(n) for f, n in rule.factor_sizes.items()},
        "reduction": [str(f) for f in rule.reduction_factors], "whole": [str(f) for f in kept],
    }  # fmt: skip


def _called(rule: Any, eqn: Any) -> Any:
    """The rule that a function makes for these types; None where it cannot be called without a mesh, or says text."""
    from jax.experimental.custom_partitioning import custom_partitioning

    class Shaped:
        def __init__(self, aval: Any) -> None:
            self.shape, self.rank, self.element_type = tuple(aval.shape), len(aval.shape), dtype_name(aval.dtype)

    try:
        matched = rule(
            *eqn.params.get("static_args", ()), None, [Shaped(v.aval) for v in eqn.invars],
            [Shaped(v.aval) for v in eqn.outvars],
        )  # fmt: skip
        text, words = matched if isinstance(matched, tuple | list) and len(matched) == 2 else (matched, {})
        if isinstance(text, str):
            holder: Any = custom_partitioning(lambda: None)
            holder.def_partition(partition=lambda *_: None, sharding_rule=text, **words)
            return holder.sharding_rule
        return text
    except Exception:  # the user's function, which may need a mesh: then it says nothing to us
        return None
