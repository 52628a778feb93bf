"""Does the lowered program compute what the original one does? Both are run, and every output is compared.

Where an output is beyond its tolerance, the original program is run again with the last bits of its inputs moved: an
output that leaves the tolerance then as well, or moves nearly as far, is not determined to that precision, and no run
can judge it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoshard.errors import InputError
from autoshard.program.program import Program

TOLERANCES: Mapping[str, float] = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 5e-3,
    "bfloat16": 3e-2,
}
"""Largest error of an output relative to its largest element, by element type: about 200 roundings of float32, 8 of
float16 and 4 of bfloat16, as sums are taken in another order. Other types must be equal."""

FLOAT8_TOLERANCE = 0.25
"""The tolerance for 8-bit floats, whose roundings are of 3 to 12%."""

NUDGES = 3
"""Runs of the original program with other last bits of its inputs, made if an output is beyond its tolerance, and as
many with inputs moved by the last bit of 1: values inside of a program are often near 1 where its inputs are small (the
exponentials of a softmax), and there the last bits of the inputs are lost."""
MOST_OVER_NUDGED = 10.0
"""An output that is not determined may differ by this many times as much as nudges move it: nudges change the inputs
alone, sums in another order change all values in between as well."""
MOST_OVER_NEAR = 3.0
"""The same for an output that nudges leave within the tolerance: a few of them are no proof that rounding alone cannot
move it as far as the sharded run does, which is a little beyond."""


def program_tolerances(program: Program) -> dict[str, float]:
    """Tolerances for the outputs of a program: every inexact output is judged by the coarsest type inside of it.

    A float32 gradient of a bfloat16 forward pass is known to bfloat16 precision only.
    """
    return _coarsest(v.type.dtype for v in program.values)


def _coarsest(inside: Iterable[str]) -> dict[str, float]:
    tolerances = [FLOAT8_TOLERANCE if d.startswith("float8") else TOLERANCES.get(d, 0.0) for d in inside]
    return {dtype: max([tolerance, *tolerances]) for dtype, tolerance in TOLERANCES.items()}


@dataclass(frozen=True, slots=True)
class OutputError:
    """The error of one output.

    scale: largest finite absolute value of the reference. error: largest absolute difference over `scale`
    (absolute where the reference is all zero); infinite where one side has a NaN or infinity the other lacks.
    nudged: the largest error of the reference itself, likewise, when the last bits of its inputs move; None where that
    was not measured.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float
    error: float
    tolerance: float
    nudged: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def undetermined(self) -> bool:
        """Whether it is beyond the tolerance, but the reference moves about as far with the last bits of its inputs."""
        if self.ok or self.nudged is None:
            return False
        most = MOST_OVER_NUDGED if self.nudged > self.tolerance else MOST_OVER_NEAR
        return self.error <= most * self.nudged

    def __str__(self) -> str:
        sign = "<=" if self.ok else ">"
        what = f"{self.name} {self.dtype}{list(self.shape)}"
        own = "" if self.nudged is None else f"; last bits of the inputs move it by {self.nudged:.2g}"
        return f"{what}: {self.error:.2g} {sign} {self.tolerance:.2g} of {self.scale:.3g}{own}"


def _share_of_tolerance(output: OutputError) -> tuple[float, str]:
    return (output.error / output.tolerance if output.tolerance else output.error), output.name


@dataclass(frozen=True, slots=True)
class NumericReport:
    """Errors of all outputs."""

    outputs: tuple[OutputError, ...]

    @property
    def ok(self) -> bool:
        """Whether every output is within its tolerance."""
        return all(o.ok for o in self.outputs)

    @property
    def wrong(self) -> tuple[OutputError, ...]:
        """Outputs beyond the tolerance for which the program's own sensitivity is no explanation."""
        return tuple(o for o in self.outputs if not (o.ok or o.undetermined))

    @property
    def undetermined(self) -> tuple[OutputError, ...]:
        """Outputs that no run can judge: see `OutputError.undetermined`."""
        return tuple(o for o in self.outputs if o.undetermined)

    @property
    def worst(self) -> OutputError | None:
        """The output whose error is largest relative to its tolerance."""
        return max(self.outputs, key=_share_of_tolerance, default=None)

    def __str__(self) -> str:
        vague = self.undetermined
        bad = [str(o) for o in (*self.wrong, *vague)]
        head = f"{len(self.outputs)} outputs, {len(bad)} outside of the tolerance"
        if vague:
            ratio = max(o.error / o.nudged if np.isfinite(o.error) and o.nudged else 1.0 for o in vague)
            head += (
                f", {len(vague)} of them not determined: the unsharded program leaves the tolerance there as well, or "
                f"moves nearly as far, when its inputs move by their last bits; largest error over its own: {ratio:.2g}"
            )
        lines = bad[:20] or ([f"worst: {self.worst}"] if self.outputs else [])
        return "\n  ".join([head, *lines])


def numeric_check(
    sharded: Callable[..., Any],
    reference: Callable[..., Any],
    args: Sequence[Any],
    *,
    names: Sequence[str] = (),
    tolerances: Mapping[str, float] | None = None,
) -> NumericReport:
    """Run both functions on the same arguments and compare every output leaf.

    sharded: the lowered function (for example ``lowered.jit(donate_argnums=())``); it must not donate `args`.
    reference: the original function; it is jitted here, and runs on one device.
    tolerances: by element type; by default the coarsest type inside of the reference decides, as in
        `program_tolerances`.

    Where an output is beyond its tolerance, `OutputError.nudged` says how well the reference itself determines it.
    """
    import jax

    staged = jax.jit(reference).trace(*args)
    allowed = _coarsest(_SHORT[t] for t in set(_NARROW.findall(str(staged.jaxpr))))
    unsharded = staged.lower().compile()
    allowed = {**allowed, **(tolerances or {})}
    expected = unsharded(*args)
    report = compare_outputs(sharded(*args), expected, names=names, tolerances=allowed)
    if report.ok:
        return report
    moved = [0.0] * len(report.outputs)
    for seed, least in ((seed, least) for least in (0.0, 1.0) for seed in range(NUDGES)):
        again = compare_outputs(unsharded(*nudged(args, seed, least)), expected, names=names, tolerances=allowed)
        moved = [max(m, o.error) for m, o in zip(moved, again.outputs, strict=True)]
    return NumericReport(tuple(o if o.ok else replace(o, nudged=m) for o, m in zip(report.outputs, moved, strict=True)))


def nudged(args: Sequence[Any], seed: int, least: float = 0.0) -> tuple[Any, ...]:
    """The same arguments with the last bit of every inexact element moved up or down, at random; of elements smaller
    than `least`, that is moved by its last bit.
    """
    import jax

    rng = np.random.default_rng(seed)

    def moved(x: Any) -> Any:
        if not hasattr(x, "dtype") or not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
            return x
        step = float(jax.numpy.finfo(x.dtype).eps) * rng.choice([-1.0, 1.0], np.shape(x))
        wide = np.complex128 if jax.numpy.issubdtype(x.dtype, jax.numpy.complexfloating) else np.float64
        exact = np.asarray(x).astype(wide)
        size = np.where(np.abs(exact) < least, least, exact)
        changed = jax.numpy.asarray((exact + size * step).astype(x.dtype))
        return jax.device_put(changed, x.sharding) if getattr(x, "committed", False) else changed

    return tuple(jax.tree.map(moved, tuple(args)))


_SHORT = {"bf16": "bfloat16", "f16": "float16", "f8": "float8"}
"""Narrow floats as a jaxpr prints them."""
_NARROW = re.compile(r"\b(bf16|f16|f8)\w*(?:<\w+>)?\[")
"""One of them in the type of an array, perhaps with its memory; functions may be called so, too."""


def compare_outputs(
    found: Any, expected: Any, *, names: Sequence[str] = (), tolerances: Mapping[str, float] | None = None
) -> NumericReport:
    """Compare two pytrees of arrays leaf by leaf."""
    from jax import tree_util

    ours, tree = tree_util.tree_flatten_with_path(found)
    theirs, other = tree_util.tree_flatten(expected)
    if tree != other:
        raise InputError(f"the results have different structure: {tree} and {other}")
    allowed = {**TOLERANCES, **(tolerances or {})}
    labels = list(names) if names else [f"out{tree_util.keystr(path)}" for path, _ in ours]
    return NumericReport(
        tuple(_error(label, a, b, allowed) for label, (_, a), b in zip(labels, ours, theirs, strict=True))
    )


def _error(name: str, found: Any, expected: Any, allowed: Mapping[str, float]) -> OutputError:
    dtype = str(expected.dtype)
    a, b = _plain(found), _plain(expected)
    if str(found.dtype) != dtype or a.shape != b.shape:
        return OutputError(f"{name} (found {found.dtype}{list(a.shape)})", dtype, b.shape, 0.0, np.inf, 0.0)
    tolerance = allowed.get(dtype, 0.0)
    if not np.issubdtype(b.dtype, np.inexact):
        different = float(np.any(a != b))
        return OutputError(name, dtype, b.shape, float(np.max(np.abs(b.astype(np.float64)), initial=0)), different, 0.0)
    finite = np.isfinite(b)
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return OutputError(name, dtype, b.shape, scale, np.inf, tolerance)
    difference = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    return OutputError(name, dtype, b.shape, scale, difference / scale if scale else difference, tolerance)


def _plain(x: Any) -> np.ndarray:
    """The array on the host, in double precision where it is inexact; random keys as their words, float0 as False."""
    import jax

    if x.dtype == jax.dtypes.float0:
        return np.zeros(x.shape, np.bool_)
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        x = jax.random.key_data(x)
    out = np.asarray(x)
    if jax.numpy.issubdtype(out.dtype, np.complexfloating):
        return out.astype(np.complex128)
    return out.astype(np.float64) if jax.numpy.issubdtype(out.dtype, np.inexact) else out


def random_arguments(types: Sequence[Any], *, seed: int = 0, integers_below: int = 8) -> list[Any]:
    """One array for each abstract value: small non-negative floats, integers in ``0 .. integers_below - 1``, keys,
    float0.

    Non-negative, because optimizer states may hold squares.
    """
    import jax

    rng = np.random.default_rng(seed)
    out = []
    for k, t in enumerate(types):
        if jax.numpy.issubdtype(t.dtype, jax.dtypes.extended):
            keys = jax.random.split(jax.random.key(seed + k, impl=t.dtype), max(1, int(np.prod(t.shape))))
            out.append(keys.reshape(t.shape))
        elif jax.numpy.issubdtype(t.dtype, np.inexact):
            out.append(jax.numpy.asarray(rng.uniform(0, 0.1, t.shape), t.dtype))
        elif t.dtype == jax.dtypes.float0:
            out.append(np.zeros(t.shape, t.dtype))
        elif t.dtype == np.bool_:
            out.append(jax.numpy.asarray(rng.integers(0, 2, t.shape), t.dtype))
        else:
            out.append(jax.numpy.asarray(rng.integers(0, integers_below, t.shape), t.dtype))
    return out


def arguments_like(specs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Random arrays of the types that JAX makes of these; numbers stay as they are, weakly typed."""
    import jax
    from jax import tree_util

    def type_of(leaf: Any) -> Any:
        extended = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended)
        return leaf if extended else jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    leaves, tree = tree_util.tree_flatten(specs)
    fresh = iter(random_arguments([type_of(leaf) for leaf in leaves if hasattr(leaf, "dtype")]))
    return tuple(tree_util.tree_unflatten(tree, [next(fresh) if hasattr(x, "dtype") else x for x in leaves]))
