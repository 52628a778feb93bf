"""JAX functions as programs: traced with abstract values, named by pytree path, never executed."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import tree_util

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.draft import DraftOp, mark_zeros, number, prune
from autoshard.frontends.jax.calls import Call, Options, argument_names, read_call
from autoshard.frontends.jax.dead_work import LiveWork
from autoshard.frontends.jax.effects import effects_given
from autoshard.frontends.jax.equal import merge_equal
from autoshard.frontends.jax.facts import key_of
from autoshard.frontends.jax.in_place import UPDATED
from autoshard.frontends.jax.names import RESULT, names_of_inputs, path_of, paths_of, unique
from autoshard.frontends.jax.parts import Loop, Parts, parts_given
from autoshard.frontends.jax.placement import lone_groups
from autoshard.frontends.jax.read import JaxOp, JaxprReader
from autoshard.frontends.jax.stated import (
    StatedSharding,
    abstracted,
    comes_unread,
    donated_by_jit,
    lies,
    stated_by,
    traced_with,
)
from autoshard.program.program import Origin, Program, Value
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType

__all__ = ["JaxOp", "Options", "StatedSharding", "TracedFunction", "argument_names", "trace"]

_MOST_BYTES = 2**53


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """A program together with all that is needed to run it again.

    program: values, ops and rules, free of JAX objects; arguments of its body are the inputs, then the constants.
    jax_ops: by op id the primitive, parameters and context (`JaxOp` says which of them count for region ops).
    consts: arrays the function closes over, one for each body argument after the inputs.
    in_tree: tree of the tuple of arguments, those by keyword last. out_tree: tree of the result. Both are without
        static leaves (see `call`).
    in_types: abstract value of each input leaf, weak types kept.
    function: the traced function of the arrays in `in_tree`; it still has its derivative rules, the program does not.
    call: how the user's function is called; None where it takes arrays by position alone.
    out_weak: whether each output leaf is weakly typed.
    in_stated: the sharding of each input leaf that was a `ShapeDtypeStruct` with a `NamedSharding`, otherwise None.
    in_lies: the same of each leaf that was an array on several devices, which is no statement.
    in_unread: names of input leaves that come with another kind of sharding, which states nothing.
    devices: those that it is planned for, in the order of their ids, where a mesh names them; None for those of JAX.
    loops: the loops that can run in parts, in order of their places in the code.
    in_parts: the same function traced with other parts of its loops. part_notes: a sentence on each loop that does
        not run in the parts that were asked for.
    """

    program: Program
    jax_ops: dict[int, JaxOp]
    consts: tuple[Any, ...]
    in_tree: Any
    out_tree: Any
    in_types: tuple[jax.ShapeDtypeStruct, ...]
    function: Callable[..., Any]
    out_weak: tuple[bool, ...] = ()
    in_stated: tuple[StatedSharding | None, ...] = ()
    call: Call | None = None
    loops: tuple[Loop, ...] = ()
    in_parts: Callable[[Sequence[int]], "TracedFunction"] | None = None
    part_notes: tuple[str, ...] = ()
    in_lies: tuple[StatedSharding | None, ...] = ()
    in_unread: tuple[str, ...] = ()
    devices: tuple[Any, ...] | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments as trees of `jax.ShapeDtypeStruct`."""
        return tuple(jax.tree_util.tree_unflatten(self.in_tree, self.in_types))

    @property
    def argument_names(self) -> list[str]:
        """Names of the arguments in `in_tree`, as the names of inputs begin."""
        count, start, names = len(self.in_tree.children()), 0, []
        usual = argument_names(self.function, count, None)
        for k, child in enumerate(self.in_tree.children()):
            inputs = self.program.input_names[start : start + child.num_leaves]
            names.append(inputs[0].split("/")[0] if inputs else usual[k])
            start += child.num_leaves
        return names


def trace(
    f: Callable[..., Any],
    *specs: Any,
    donate_argnums: int | Iterable[int] | None = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    keywords: Mapping[str, Any] | None = None,
    effects: str | None = None,
    kernels: Sequence[str] = (),
    loop_parts: int | Sequence[int] | str | None = None,
    name: str | None = None,
    argnames: Sequence[str] | None = None,
) -> TracedFunction:
    """Trace ``f(*specs, **keywords)`` to a program, without executing it or allocating its arguments.

    specs, keywords: pytrees whose leaves have a shape and dtype (`jax.ShapeDtypeStruct`, arrays) or are Python scalars
        (weakly typed, as in `jax.jit`); other leaves are static (see `autoshard.frontends.jax.calls`).
    donate_argnums: arguments whose buffers the program may reuse, all their leaves; static_argnums, static_argnames:
        arguments that are no arrays. By default those of a `jax.jit` around `f`; what another `jit` around it donates
        (of flax NNX, of equinox) counts too.
    effects: for debug output (`jax.debug.print`, `jax.debug.callback`): ``refuse``, or ``drop`` to leave it out.
    kernels: names of jitted functions that are kernels: ops of their own instead of the ops in them.
    loop_parts: in how many parts loops run whose iterations do not wait for each other
        (`autoshard.frontends.jax.parts`): a number, or one for each in order of their places in the code.
    argnames: first keys of the input names; by default the parameter names of `f`.

    Inputs are named by argument and pytree keys (``state/params/layers/wq``, ``state/opt/0/mu/layers/wq``), outputs
    ``out/...`` (``out`` where the function returns one array), other values by op (``dot_general:12``); names of
    block arguments show the operand that feeds them (``scan:5/state/params/layers/wq``).

    Calls are inlined and dead code is removed, bodies of loops and branches included: a scan may have fewer
    carries, operands and results than its jaxpr. The program's blocks and attrs count, not the jaxpr.

    Raises `UnsupportedError` for side effects, callbacks and mutable references; `InputError` for arguments that do not
    fit the function.

    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    >>> w = {"w": jax.ShapeDtypeStruct((8, 2), jnp.float32)}
    >>> traced = trace(lambda params, x: jnp.tanh(x @ params["w"]), w, x)
    >>> traced.program.input_names, [op.kind for op in traced.program.body.ops]
    (('params/w', 'x'), ['dot_general', 'tanh'])
    """
    if not callable(f):
        raise InputError(f"what is planned is a function, found {f!r}")
    call = read_call(f, specs, keywords or {}, Options(donate_argnums, static_argnums, static_argnames), argnames)
    names = [call.names[k] for k in call.open]
    arrays = call.arrays(call.arguments)
    abstract = tuple(tree_util.tree_map(abstracted, spec) for spec in arrays)
    in_tree = tree_util.tree_structure(abstract)
    function = call.traced()
    traced = traced_with(function, arrays, abstract)
    parts = Parts(parts_given(loop_parts), kernels)
    jaxpr = parts.rewritten(_without_high_level_types(traced))
    reader = JaxprReader(effects_given(effects), kernels)
    body = reader.read(jaxpr)
    work = LiveWork(body)
    prune(body, [True] * len(body.results))
    forgotten = work.note(body)
    if merge_equal(body):
        prune(body, [True] * len(body.results))
    mark_zeros(body)

    leaves = len(jaxpr.in_avals)
    input_names = names_of_inputs(names, abstract)
    for value, input_name in zip(body.args[:leaves], input_names, strict=True):
        value.name = input_name
    consts = _drop_unused_consts(body, leaves, reader.consts)
    call.held.reads([*consts, *reader.scalars])

    rules = _Rules()
    numbered = number(body, rules.of)
    _check_sizes(numbered.values)
    loops = parts.loops({k: op.params["jaxpr"] for k, op in numbered.origins.items() if "jaxpr" in op.params})
    chosen = tuple(loop.parts for loop in loops)
    program = Program(
        name=name or _name(f),
        values=numbered.values,
        body=numbered.body,
        input_names=input_names,
        output_names=_output_names(traced.out_info, call),
        donated=_donated(abstract, [k in call.donated for k in call.open])
        | (donated_by_jit(jaxpr) if donate_argnums is None else frozenset()),
        warnings=(*reader.warnings, *rules.warnings, *(note for note in (forgotten, call.updates.note) if note)),
        loop_parts=chosen if any(n > 1 for n in chosen) else (),
    )
    if reader.groups:
        program = replace(program, warnings=(*program.warnings, *lone_groups(reader.groups, program)))

    def in_parts(loop_parts: Sequence[int]) -> TracedFunction:
        return trace(
            f, *specs, donate_argnums=donate_argnums, static_argnums=static_argnums, static_argnames=static_argnames,
            keywords=keywords, effects=effects, kernels=kernels, loop_parts=loop_parts, name=name, argnames=argnames,
        )  # fmt: skip

    in_types = tuple(
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False)) for a in jaxpr.in_avals
    )
    return TracedFunction(
        program, numbered.origins, consts, in_tree, traced.out_tree, in_types, f if call.plain else function,
        tuple(bool(getattr(a, "weak_type", False)) for a in jaxpr.out_avals),
        tuple(stated_by(leaf, n) for leaf, n in zip(tree_util.tree_leaves(arrays), input_names, strict=True)),
        None if call.plain else call,
        loops,
        in_parts,
        parts.notes(),
        tuple(lies(leaf) for leaf in tree_util.tree_leaves(arrays)),
        tuple(n for leaf, n in zip(tree_util.tree_leaves(arrays), input_names, strict=True) if comes_unread(leaf)),
    )  # fmt: skip


def with_locals(traced: TracedFunction, functions: Mapping[int, Any]) -> TracedFunction:
    """The function with what a device runs in the place of some of its kernels, by op id."""
    if not functions:
        return traced
    ops = {id_: replace(op, local=functions.get(id_, op.local)) for id_, op in traced.jax_ops.items()}
    return replace(traced, jax_ops=ops)


def _without_high_level_types(traced: Any) -> Any:
    """The jaxpr of a `jax.stages.Traced`, with primitives of JAX's high-level extension (0.12) expanded."""
    if not getattr(traced.jaxpr.jaxpr, "is_high", False) or not hasattr(traced, "lojax"):
        return traced.jaxpr
    low = traced.lojax.jaxpr
    if len(low.in_avals) != len(traced.jaxpr.in_avals) or len(low.out_avals) != len(traced.jaxpr.out_avals):
        raise UnsupportedError(
            f"function {traced.fun_name} takes or returns values of high-level types (boxes, references), found "
            f"{[str(a) for a in traced.jaxpr.in_avals]}; only arrays are supported"
        )
    return low


def _check_sizes(values: Iterable[Value]) -> None:
    """`InputError` for arrays whose bytes and work do not fit 64-bit arithmetic; no machine holds such arrays."""
    for value in values:
        if value.type.bytes > _MOST_BYTES or any(n > _MOST_BYTES for n in value.type.shape):
            raise InputError(
                f"{value.name} is {value.type}, {value.type.bytes:.3g} bytes; no more than 2^53 can be planned"
            )


class _Rules:
    """Looks up the rule of every op and collects one warning for each unknown primitive."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._warned: set[str] = set()
        self._known: dict[object, Any] = {}

    def of(self, op: DraftOp, in_shard_map: bool) -> ShardingRule:
        from autoshard.rules import LITERALS
        from autoshard.rules.rng import IN_PARTS
        from autoshard.rules.shipped_kernels import rule_of_kernel

        operands, results = [v.type for v in op.operands], [v.type for v in op.results]
        literals = {k: v.literal for k, v in enumerate(op.operands) if v.origin is Origin.LITERAL}
        in_parts = op.kind == "random_bits" and made_in_parts(operands[0])
        if op.kind == "random_bits" and not in_parts and not in_shard_map:
            self._warn_of_bits(op)
        if "kernel" in op.attrs:
            return rule_of_kernel(op.kind, operands, results, op.attrs["kernel"])
        params = {**op.origin.params, LITERALS: literals, IN_PARTS: in_parts}
        match = self._match(op.kind, operands, results, params)
        if match.warning and op.kind not in self._warned and not in_shard_map:
            self._warned.add(op.kind)
            where = f" (first at {op.source})" if op.source else ""
            self.warnings.append(f"{match.warning}{where}")
        return match.rule

    def _match(
        self, kind: str, operands: Sequence[TensorType], results: Sequence[TensorType], params: Mapping[str, Any]
    ) -> Any:
        """The `RuleMatch` of an op; one for all that are the same, as repeated layers have them."""
        from autoshard.rules import LITERALS, rule_for

        literals = tuple((k, type(v), repr(v)) for k, v in params[LITERALS].items())
        key = (kind, tuple(operands), tuple(results), key_of({**params, LITERALS: literals}))
        try:
            known = self._known.get(key)
        except TypeError:  # a parameter that cannot be hashed
            return rule_for(kind, operands, results, params)
        if known is None:
            known = self._known[key] = rule_for(kind, operands, results, params)
        return known

    def _warn_of_bits(self, op: DraftOp) -> None:
        keys, bits = op.operands[0].type, op.results[0].type
        if op.kind in self._warned or bits.elements <= keys.elements:
            return
        self._warned.add(op.kind)
        needed = (
            'jax.config.update("jax_threefry_partitionable", True)'
            if keys.dtype == THREEFRY
            else 'keys of threefry (jax.random.key(seed, impl="threefry2x32"))'
        )
        self.warnings.append(
            f"random bits of {keys.dtype.removeprefix('key<').removesuffix('>')} keys are made whole on every device, "
            f"first {bits} at {op.source}; to make them in parts use {needed}"
        )


THREEFRY = "key<fry>"


def made_in_parts(keys: TensorType) -> bool:
    """Whether each block of the bits drawn from these keys can be made by itself, from hashes of positions."""
    return keys.dtype == THREEFRY and bool(getattr(jax.config, "jax_threefry_partitionable", False))


# -- arguments and names ---------------------------------------------------------------------------------------


def _name(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", None) or type(f).__name__


def _output_names(result: Any, call: Call) -> tuple[str, ...]:
    """Names of a result's leaves; those that are the new state of arguments have these arguments' paths."""
    updates = call.updates
    own = result[0] if updates.handed_back else result
    updated = (path_of(f"{RESULT}/{UPDATED}/{n}", path) for n, path in zip(updates.names, updates.paths, strict=True))
    return unique([*(path_of(RESULT, path) for path in paths_of(own)), *updated])


def _donated(arguments: Sequence[Any], chosen: Sequence[bool]) -> frozenset[int]:
    """Numbers of the leaves of the donated arguments."""
    out: set[int] = set()
    start = 0
    for argument, is_donated in zip(arguments, chosen, strict=True):
        stop = start + len(tree_util.tree_leaves(argument))
        out.update(range(start, stop) if is_donated else ())
        start = stop
    return frozenset(out)


def _drop_unused_consts(body: Any, inputs: int, consts: Sequence[Any]) -> tuple[Any, ...]:
    used = {v for op in body.ops for v in op.operands} | set(body.results)
    kept = [(v, c) for v, c in zip(body.args[inputs:], consts, strict=True) if v in used]
    body.args[inputs:] = [v for v, _ in kept]
    for index, (value, _) in enumerate(kept):
        assert value.origin is Origin.CONST
        value.name = f"const:{index}"
    return tuple(c for _, c in kept)
