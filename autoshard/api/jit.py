"""`autoshard.jit`: a function that is planned when it is first called, and runs as planned."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from autoshard.api.agreed import check_agreed
from autoshard.errors import InputError
from autoshard.interrupts import heeded

if TYPE_CHECKING:
    from pathlib import Path

    from autoshard.api.plans import Plan
    from autoshard.costmodels import Machine, Profile
    from autoshard.frontends.jax.function import TracedFunction

AXES = ("data", "model")
"""Axes of the mesh where the caller gives none; their sizes are searched."""
_SETTINGS = tuple(
    f"jax_{name}"
    for name in (
        "enable_x64", "default_matmul_precision", "numpy_dtype_promotion", "numpy_rank_promotion",
        "threefry_partitionable", "default_prng_impl", "random_seed_offset", "softmax_custom_jvp",
        "high_dynamic_range_gumbel", "accurate_erf_inv",
    )
)  # fmt: skip
"""Settings of JAX, most of them with a context (``jax.enable_x64(True)``), that say what a traced function computes."""
_OF_FUNCTION = ("donate_argnums", "static_argnums", "static_argnames", "argnames", "effects")


@overload
def jit(f: Callable[..., Any], **words: Any) -> PlannedFunction: ...


@overload
def jit(f: None = None, **words: Any) -> Callable[[Callable[..., Any]], PlannedFunction]: ...


def jit(
    f: Callable[..., Any] | None = None,
    *,
    mesh: Any = None,
    hardware: str | Path | Profile | Machine | None = None,
    keep: bool = True,
    **words: Any,
) -> Any:
    """A function like `f` that is planned at its first call and runs as planned, as `jax.jit` compiles at the first.

    mesh: as for `autoshard.plan`; where none is given, all devices that JAX sees along ``data`` and ``model``, whose
        sizes are searched too. hardware: the machine that these devices are (``tpu_v5e``), by their kind where not
        given.
    keep: keep plans on disk (``~/.cache/autoshard/plans``, or the folder that ``AUTOSHARD_PLANS`` names), by program,
        mesh, machine, statements and versions: the next process that calls the function starts from there.
    words: other keywords of `autoshard.plan`: constraints, memory_limit, donate_argnums, static_argnums, carry,
        time_limit and so on.

    Arguments of other shapes, types or static values are planned anew, and so is a call under other settings of JAX by
    which functions are traced (``jax.enable_x64``, ``jax.default_matmul_precision``). `InputError` where there are
    fewer devices than the mesh has; other errors are those of `autoshard.plan`.

    >>> import jax.numpy as jnp
    >>> double = jit(lambda x: 2 * x, mesh={"data": 1}, hardware="cpu_sim", keep=False)
    >>> double(jnp.ones(4)).tolist(), double.plan.status
    ([2.0, 2.0, 2.0, 2.0], 'optimal')
    """
    if f is None:
        return functools.partial(jit, mesh=mesh, hardware=hardware, keep=keep, **words)
    if not callable(f):
        raise InputError(f"jit takes a function, found {type(f).__name__}")
    return PlannedFunction(f, mesh, hardware, keep, words)


class PlannedFunction:
    """The result of `autoshard.jit`, called like the function. `plan` is the plan of its last call."""

    def __init__(
        self,
        function: Callable[..., Any],
        mesh: Any,
        hardware: str | Path | Profile | Machine | None,
        keep: bool,
        words: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self._mesh, self._hardware, self._keep, self._words = mesh, hardware, keep, dict(words)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self._ready: dict[Any, list[_Ready]] = {}
        self._last: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The plan of the last call (or of the last `planned` or `lower`)."""
        if self._last is None:
            raise InputError(
                f"{self.__name__} has no plan yet: it is made at the first call, or by planned(*arguments)"
            )
        return self._last

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ready, arrays = self._for(args, kwargs)
        return ready(arrays, args, kwargs)

    def planned(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for arguments like these (arrays, or anything with shape and dtype); nothing is executed."""
        return self._for(args, kwargs)[0].plan

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The lowered stage for arguments like these, with `compile`, as by the ``lower`` of a jitted function."""
        return self.planned(*args, **kwargs).jit().lower(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Ready, tuple[Any, ...]]:
        """The plan (with its compiled function) that serves these arguments, and the arrays among them."""
        from autoshard.frontends.jax.held import HeldChangedError

        if kwargs:
            from autoshard.frontends.jax.calls import bound

            args, kwargs = bound(self.function, args, kwargs)
        known = self._ready.setdefault(_signature(args, kwargs), [])
        for ready in known:
            try:
                arrays = ready.arrays(args, kwargs)
            except HeldChangedError:  # in every step of a loop: it is planned for none
                raise
            except InputError:  # planned for other static values
                continue
            self._last = ready.plan
            return ready, arrays
        ready = _Ready(self._plan(args, kwargs))
        known.append(ready)
        self._last = ready.plan
        return ready, ready.arrays(args, kwargs)

    @heeded()
    def _plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        from autoshard.api.kept import keep, kept_plan, key_of, with_stated_locals
        from autoshard.api.verbs import plan_request
        from autoshard.constraints.kernels_of import called_names
        from autoshard.frontends.jax.dead_work import FORGOTTEN
        from autoshard.frontends.jax.function import trace
        from autoshard.request.arguments import argument_numbers
        from autoshard.request.request import request_of

        words = dict(self._words)
        told = {name: words.pop(name) for name in _OF_FUNCTION if name in words}
        for name in ("donate_argnums", "static_argnums"):
            if name in told:
                told[name] = argument_numbers(told[name], name)
        told["loop_parts"] = words.get("loop_parts")
        specs, named = _types((args, kwargs))
        traced: TracedFunction = trace(
            self.function, *specs, keywords=named, kernels=called_names(words.get("constraints", ())), **told
        )
        for note in traced.program.warnings:
            if FORGOTTEN in note:  # nobody looks for notes of a plan that they did not ask for
                warnings.warn(f"{self.__name__}: {note}", stacklevel=5)
        request = request_of(traced, mesh=self._mesh_given(), hardware=self._machine(), **words)
        request = replace(request, frontier=False)  # nobody who calls a function waits for plans that it does not run
        key = key_of(request) if self._keep else None
        plan = None if key is None else kept_plan(key, request)
        if plan is None:
            plan = plan_request(request)
            if key is not None:
                keep(key, plan)
        return with_stated_locals(plan, words.get("constraints", ()))

    def _mesh_given(self) -> Any:
        if self._mesh is not None:
            return self._mesh
        import jax

        count = len(jax.devices())
        return {"data": 1} if count == 1 else {"devices": count, "axes": list(AXES)}

    def _machine(self) -> Any:
        if self._hardware is not None:
            return self._hardware
        import jax

        from autoshard.costmodels import ProfileError
        from autoshard.costmodels.devices import profile_of_device

        try:
            return profile_of_device(jax.devices()[0].device_kind)
        except ProfileError as error:
            raise InputError(f"hardware: {error}") from None


class _Ready:
    """A plan with its compiled function."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._compared = plan, False

    @functools.cached_property
    def _run(self) -> Any:
        return self.plan.lower(self.plan.runs_as).jit_of_arrays()

    @functools.cached_property
    def _shardings(self) -> Any:
        return self.plan.in_shardings

    def arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments that are arrays; `InputError` where static arguments differ from those of the plan."""
        call = self.plan.lowered.traced.call
        return args if call is None else call.taken(args, kwargs)

    def __call__(self, arrays: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import jax
        from jax.core import Tracer

        from autoshard.interop.place import with_own_buffers

        call = self.plan.lowered.traced.call
        if not self._compared and not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays)):
            check_agreed(self.plan)
            self._compared = True
        placed = jax.tree.map(_placed, arrays, self._shardings)
        placed = with_own_buffers(placed, arrays, self.plan.program.donated)
        results = self._run(*placed)
        return results if call is None else call.given_back(results, placed, args, kwargs)


def _placed(value: Any, sharding: Any) -> Any:
    """The value in the plan's sharding; unchanged where it has that sharding already, and inside of another trace.

    Where other processes have devices too, each copies its own shards, and a Python number stays one.
    """
    import jax
    from jax.core import Tracer

    from autoshard.interop.place import place_tree, renamed

    if isinstance(value, Tracer):
        return value
    if isinstance(value, jax.Array) and value.sharding.is_equivalent_to(sharding, value.ndim):
        return renamed(value, sharding)
    if not sharding.is_fully_addressable:
        return place_tree(value, sharding) if hasattr(value, "dtype") else value
    return jax.device_put(value, sharding)


def _types(tree: Any) -> Any:
    """The same tree with shapes and dtypes for arrays: where an argument lies is no statement about the plan, though in
    explicit mode it is a part of its type.
    """
    import jax

    from autoshard.frontends.jax.stated import Lying, explicit_sharding

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if (sharding := explicit_sharding(leaf)) is not None:
            return Lying(leaf.shape, leaf.dtype, sharding, getattr(leaf, "weak_type", False))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))

    return jax.tree.map(one, tree)


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A key that is equal for calls that one plan may serve: tree, shapes and dtypes of arrays, other leaves that
    are static, and the settings of JAX by which a function is traced.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    settings = tuple(getattr(jax.config, name, None) for name in _SETTINGS)
    return tree, tuple(_leaf(leaf) for leaf in leaves), settings


def _leaf(leaf: Any) -> Any:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype), bool(getattr(leaf, "weak_type", False))
    if isinstance(leaf, bool | int | float | complex):
        return _number(leaf)  # an argument, or static: `_Ready.arrays` tells
    try:
        hash(leaf)
    except TypeError:
        return type(leaf), id(leaf)
    return type(leaf), leaf


def _number(leaf: complex) -> Any:
    """As of the array that it becomes, which a step may have returned in its place: ``{"step": 0}`` at first."""
    import jax

    try:
        aval = jax.typeof(leaf)
    except OverflowError:
        return type(leaf)
    return tuple(aval.shape), str(aval.dtype), bool(aval.weak_type)
