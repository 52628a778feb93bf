"""Facts read from JAX's objects: types, scalars, axis names, source lines."""

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core
from jax.extend import source_info_util

from autoshard.errors import UnsupportedError
from autoshard.frontends.draft import Scalar
from autoshard.program.types import TensorType

_ROUND = ("None", "DEFAULT", "BF16_BF16_F32", "BF16_BF16_BF16")
"""Precisions of matmuls at which the matrix unit of a TPU takes bfloat16, as JAX's objects write themselves."""
_SPEEDS = {
    "HIGH": "high", "BF16_BF16_F32_X3": "high", "TF32_TF32_F32": "high", "TF32_TF32_F32_X3": "highest",
    "HIGHEST": "highest", "BF16_BF16_F32_X6": "highest", "BF16_BF16_F32_X9": "highest", "F32_F32_F32": "highest",
}  # fmt: skip
"""Precisions at which float32 is multiplied in several passes, or outside of the matrix unit, by the rate they have."""
_TAKES_PRECISION = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")

CALLS = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "closed_call": ("call_jaxpr",),
    "eval_jaxpr": ("call_jaxpr",),
    "core_closed_call": ("call_jaxpr",),
    "core_call": ("call_jaxpr",),
    "call": ("call_jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr", "fun_jaxpr"),
    "custom_vjp_call_jaxpr": ("fun_jaxpr", "call_jaxpr"),
    "custom_vmap_call": ("call",),
    "composite": ("jaxpr",),
    "remat_opt": ("fwd_jaxpr",),
}
"""Calls that are inlined, with the parameter that holds the callee."""


def is_extended(dtype: Any) -> bool:
    """Whether elements are no numbers but, say, typed random keys."""
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def open_jaxpr(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """(jaxpr, consts) of an open or closed jaxpr."""
    if isinstance(jaxpr, jax_core.ClosedJaxpr):
        return jaxpr.jaxpr, jaxpr.consts
    return jaxpr, ()


def scan_counts(params: dict[str, Any], operands: int) -> tuple[int, int]:
    """Numbers of constants and carries of a scan: parameters of their own, or (JAX 0.12) in a tree of the operands."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].update(list(range(operands))).unpack()
    return len(list(consts)), len(list(carry))


def tensor_type(aval: Any) -> TensorType:
    """Shape and dtype of an abstract value; `UnsupportedError` where it is no array of known size."""
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
        raise UnsupportedError(
            f"a value of type {aval} is not an array; references (jax.new_ref, mutable arrays), tokens and other "
            "stateful values are not supported. Write the function without them"
        )
    if not all(isinstance(n, int) for n in aval.shape):
        raise UnsupportedError(f"a value has the symbolic shape {aval}; give concrete sizes")
    return TensorType(tuple(int(n) for n in aval.shape), dtype_name(aval.dtype))


def dtype_name(dtype: Any) -> str:
    """The name of a dtype as `TensorType` spells it."""
    return "float0" if dtype == jax.dtypes.float0 else str(dtype)


def scalar_of(array: Any) -> Scalar:
    """The Python scalar of a zero-dimensional array of any dtype (bfloat16, int4, ... too)."""
    item = np.asarray(array)
    if item.dtype == jax.dtypes.float0:  # the gradient of an integer: no bits, by convention a False
        return False
    if item.dtype == np.bool_:
        return bool(item)
    if jnp.issubdtype(item.dtype, np.complexfloating):
        return complex(item)
    if jnp.issubdtype(item.dtype, np.integer):
        return int(item)
    return float(item)


def axis_names(spec: Any, rank: int) -> tuple[tuple[str, ...], ...]:
    """A partition spec as plain data: for each of `rank` dimensions a tuple of axis names."""
    entries = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec]
    return tuple(tuple(map(str, e)) for e in entries) + ((),) * (rank - len(entries))


# -- source lines -----------------------------------------------------------------------------------------------

_LINE = re.compile(r"^(?P<file>.*?):(?P<line>\d+)(?::\d+)*(?: \((?P<function>.*)\))?$", re.DOTALL)
_NOT_USER_CODE = (
    os.path.dirname(os.path.abspath(str(jax.__file__))) + os.sep,
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
)


def key_of(params: Mapping[str, Any]) -> Hashable:
    """Parameters as a key: equal where names, types and values are. A value that has no hash shows when it is used."""
    return tuple((name, type(value), value) for name, value in sorted(params.items()))


def source_line(eqn: Any) -> str:
    """``file.py:123 (function)`` of the user's line, or '' where JAX does not know it."""
    try:
        return _line_at(eqn.source_info.traceback)
    except Exception:  # source lines come from a private part of JAX, and a plan can do without them
        return ""


@lru_cache(maxsize=4096)
def _line_at(traceback: Any) -> str:
    """The line of a traceback; repeated layers have equal ones."""
    info: Any = SimpleNamespace(traceback=traceback)  # all that is read of a `SourceInfo`
    text = source_info_util.summarize(info)
    match = _LINE.match(text)
    if match is None:
        return ""
    function = f" ({match['function']})" if match["function"] else ""
    return f"{os.path.basename(match['file'])}:{match['line']}{function}"


def is_jax_code(jaxpr: Any) -> bool:
    """Whether a callee is defined inside JAX.

    JAX traces such a helper (`jax.nn.relu`) once and keeps the source lines of its first caller. The line of the
    present call is the right one, and does not depend on earlier calls.
    """
    info = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", "") or "")
    where = info.rpartition(" at ")[2]
    return where.startswith(_NOT_USER_CODE)


_COLLECTIVES = {
    "psum": ("all_reduce", "add"), "psum2": ("all_reduce", "add"), "psum_invariant": ("all_reduce", "add"),
    "pmax": ("all_reduce", "max"), "pmin": ("all_reduce", "min"),
    "all_gather": ("all_gather", ""), "all_gather_invariant": ("all_gather", ""),
    "reduce_scatter": ("reduce_scatter", "add"), "all_to_all": ("all_to_all", ""), "ppermute": ("permute", ""),
    "ragged_all_to_all": ("all_to_all", ""),
}  # fmt: skip
_UNKNOWN_COLLECTIVES = frozenset({"pgather", "all_gather_reduced", "pbroadcast", "psend", "precv"})


def attrs_of(kind: str, params: dict[str, Any], where: str) -> dict[str, Any]:
    """What is known of an op beside its kind: of a collective `collective_attrs`; of a matmul or a convolution
    ``full_precision``, where it is asked not to round its operands to bfloat16, and the ``precision`` (``high`` or
    ``highest``) that says how fast it runs then.
    """
    if kind not in _TAKES_PRECISION:
        return collective_attrs(kind, params, where)
    asked = params.get("precision")
    names = [str(p) for p in (asked if isinstance(asked, tuple) else (asked,))]
    if all(name in _ROUND for name in names):
        return {}
    speed = max((_SPEEDS[name] for name in names if name in _SPEEDS), key=len, default=None)
    return {"full_precision": True, **({} if speed is None else {"precision": speed})}


def collective_attrs(kind: str, params: dict[str, Any], where: str) -> dict[str, Any]:
    """For a collective of the user (inside `shard_map`) ``collective``, ``axes`` and ``combiner``; empty for other ops.

    A permute has ``pairs`` too: numbers of senders and receivers within a group, row-major in the order of the mesh.
    ``ragged`` says that only the first operand travels, in slices whose sizes are known when it runs.
    """
    if kind in _UNKNOWN_COLLECTIVES:
        raise UnsupportedError(f"{where}: the collective {kind!r} is not supported inside shard_map")
    if kind not in _COLLECTIVES:
        return {}
    axes = params.get("axes", params.get("axis_name", ()))
    axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    if params.get("axis_index_groups") is not None:
        raise UnsupportedError(f"{where}: {kind} with axis_index_groups is not supported inside shard_map")
    named = tuple(str(a) for a in axes if isinstance(a, str))
    collective, combiner = _COLLECTIVES[kind]
    if not named:
        return {}
    pairs = {"pairs": tuple((int(s), int(t)) for s, t in params["perm"])} if collective == "permute" else {}
    ragged = {"ragged": True} if kind == "ragged_all_to_all" else {}
    return {"collective": collective, "axes": named, "combiner": combiner, **pairs, **ragged}
