"""Reading a jaxpr into a draft: calls are inlined, loops and branches become regions, names become tags.

This uses `jax.extend` and the parameters of primitives by name; nothing is executed and no array is made.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from jax import Array
from jax.extend import core as jax_core

from autoshard.frontends.draft import DraftBlock, DraftOp, DraftValue, Scalar, literal
from autoshard.frontends.jax.effects import is_debug, left_out, refuse_effects
from autoshard.frontends.jax.facts import (
    CALLS,
    attrs_of,
    dtype_name,
    is_extended,
    is_jax_code,
    open_jaxpr,
    scalar_of,
    scan_counts,
    source_line,
    tensor_type,
)
from autoshard.frontends.jax.implementations import Implementations
from autoshard.frontends.jax.kernels import called_facts, is_kernel, kernel_facts
from autoshard.frontends.jax.placement import KIND as CONSTRAINT
from autoshard.frontends.jax.placement import (
    constraint_attrs,
    is_empty_reshard,
    is_stated,
    open_dims,
    stated_of_result,
    why_ignored,
)
from autoshard.frontends.jax.rewritten import barrier_primitive, with_scalar_predicate
from autoshard.frontends.jax.rolls import ROLL, Roll, find_rolls
from autoshard.frontends.jax.scalars import known_scalar
from autoshard.frontends.jax.shard_maps import Frame, JaxOp, ShardMapReader
from autoshard.frontends.jax.sites import Site, describe, joined, named_site
from autoshard.frontends.jax.trip_count import while_trips
from autoshard.frontends.jax.windows import window_attrs
from autoshard.program.program import ALIKE, BORDER, Origin
from autoshard.rules.kernels import CALLED_KERNELS

_CHOICES = frozenset({"cond", "select_n"})
_REMAT = frozenset({"remat", "remat2", "checkpoint"})
_PLACEMENT = frozenset({"sharding_constraint", "device_put", "layout_constraint", "reshard", "shard_alike"})


class JaxprReader(ShardMapReader):
    """Reads one closed jaxpr; `consts` are the arrays of the captured arguments after `read`, `scalars` those that are
    literals of the program.

    effects: of debug output, ``refuse`` or ``drop``. kernels: names of jitted functions that become one op each.
    """

    def __init__(self, effects: str = "refuse", kernels: Sequence[str] = ()) -> None:
        self._kernels = tuple(kernels)
        self._drop = effects == "drop"
        self.consts: list[Any] = []
        self.scalars: list[Any] = []
        self.warnings: list[str] = []
        self._literals: dict[str, DraftValue] = {}
        self._arrays: dict[DraftValue, Any] = {}  # numbers of values, where they are constants
        self._barriers = 0
        self.groups: list[str] = []  # where groups of values that must have equal shardings are made
        self._manual = 0
        self._inner_axes: set[str] = set()
        self._units: set[str] = set()
        self._axis_sizes: dict[str, int] = {}
        self._varied: dict[DraftValue, DraftValue] = {}
        self._implementations = Implementations()
        self._whole: Any = None  # the equation that is the whole program

    def read(self, closed: Any) -> DraftBlock:
        """The draft of a whole program: arguments are the jaxpr's inputs, then the arrays it closes over."""
        jaxpr, consts = open_jaxpr(closed)
        self._whole = jaxpr.eqns[0] if len(jaxpr.eqns) == 1 else None
        frame = Frame(Origin.CONST, DraftBlock([_argument(v.aval, Origin.INPUT) for v in jaxpr.invars]))
        frame.block.results = self._body(frame, jaxpr, consts, frame.block.args, Site())
        for index, (array, value) in enumerate(frame.captured.values()):
            value.name = f"const:{index}"
            frame.block.args.append(value)
            self.consts.append(array)
        return frame.block

    # -- blocks ------------------------------------------------------------------------------------------------

    def _body(
        self, frame: Frame, jaxpr: Any, consts: Sequence[Any], args: Sequence[DraftValue], site: Site
    ) -> list[DraftValue]:
        """Read the equations of `jaxpr` into the block of `frame`; returns the values of its results."""
        env: dict[Any, DraftValue] = {}
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self._const(frame, const, var.aval)
        env.update(zip(jaxpr.invars, args, strict=True))

        def value_of(atom: Any) -> DraftValue:
            if isinstance(atom, jax_core.Literal):
                return self._const(frame, atom.val, atom.aval)
            return env[atom]

        rolls, needless = find_rolls(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            if number in needless:
                continue
            if number in rolls:
                results = self._roll(frame, eqn, value_of(rolls[number].source), rolls[number], site)
            else:
                results = self._equation(frame, eqn, [value_of(a) for a in eqn.invars], site)
            env.update(zip(eqn.outvars, results, strict=True))
        return [value_of(a) for a in jaxpr.outvars]

    def _const(self, frame: Frame, array: Any, aval: Any) -> DraftValue:
        """A scalar becomes a literal, any other array an argument of the block (and of the blocks around it)."""
        dtype = dtype_name(aval.dtype)
        if not aval.shape and not is_extended(aval.dtype):
            self.scalars += [array] if isinstance(array, Array) else []
            return self._literal(scalar_of(array), dtype)
        if id(array) not in frame.captured:
            frame.captured[id(array)] = (array, _argument(aval, frame.origin))
            self._arrays[frame.captured[id(array)][1]] = array
        return frame.captured[id(array)][1]

    def _literal(self, number: Scalar, dtype: str) -> DraftValue:
        scalar = literal(number, dtype)
        return self._literals.setdefault(scalar.name, scalar)

    def _region(self, closed: Any, site: Site, operands: Sequence[DraftValue] = ()) -> Frame:
        """A body. operands: what its first arguments are, all of them or a part, where that does not change."""
        jaxpr, consts = open_jaxpr(closed)
        frame = Frame(Origin.ARG, DraftBlock([_argument(v.aval, Origin.ARG) for v in jaxpr.invars]))
        inner = zip(frame.block.args, operands, strict=False)
        self._arrays.update((arg, self._arrays[v]) for arg, v in inner if v in self._arrays)
        if site.source is not None and not is_jax_code(jaxpr):
            site = Site(None, site.scope)
        frame.block.results = self._body(frame, jaxpr, consts, frame.block.args, site)
        return frame

    # -- equations ---------------------------------------------------------------------------------------------

    def _equation(self, frame: Frame, eqn: Any, operands: list[DraftValue], site: Site) -> list[DraftValue]:
        kind, params = str(eqn.primitive.name), eqn.params
        here = _site(eqn, site)
        if kind == "name":
            if operands[0].origin is not Origin.LITERAL:
                operands[0].tag(params["name"])
            return operands
        if kind == "optimization_barrier":
            return self._barrier(frame, operands, [True] * len(operands), JaxOp(eqn.primitive, {}, eqn.ctx), here)
        if kind in _REMAT:
            return self._remat(frame, eqn, operands, here)
        if kind in CALLED_KERNELS and any(fnmatchcase(str(params["name"]), name) for name in self._kernels):
            refuse_effects(eqn, describe(here))
            return self._entered(frame, DraftOp(kind, operands, [], attrs={"kernel": called_facts(eqn)}), eqn, here)
        if kind in CALLS:
            callee = next((params[p] for p in CALLS[kind] if p in params), None)
            if callee is not None:
                operands = self._placed_by_jit(frame, eqn, operands, "in_shardings", here)
                named = named_site(here, callee, params.get("name"))
                results = self._inline(frame, callee, operands, named)
                return self._placed_by_jit(frame, eqn, results, "out_shardings", here)
        if kind == "custom_linear_solve":
            lengths = params["const_lengths"]
            skip = lengths.matvec + lengths.vecmat
            take = operands[skip : skip + lengths.solve] + operands[sum(lengths) :]
            return self._inline(frame, params["jaxprs"].solve, take, here)
        if kind == "shard_map":
            read = self._inner_shard_map if self._manual else self._shard_map
            return read(frame, eqn, operands, here)
        if kind in _PLACEMENT:
            return self._placement(frame, eqn, operands, here)
        if kind == "while" and params["cond_jaxpr"].out_avals[0].shape:
            scalar = with_scalar_predicate(eqn)
            return self._body(frame, scalar.jaxpr, scalar.consts, operands, here)
        if (known := self._known(frame, eqn, operands, here)) is not None:
            return known
        regions = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if kind in regions:
            return self._entered(frame, regions[kind](frame, eqn, operands, here), eqn, here)
        if self._drop and is_debug(kind):
            self._warn(left_out(kind, describe(here)))
            return []
        refuse_effects(eqn, describe(here))
        params = self._alone(frame, kind, eqn, operands, here)
        if isinstance(params, list):
            return params
        if not self._manual and (function := self._implementations.of(eqn)) is not None:
            return self._inline(frame, function, operands, here)
        facts = window_attrs(kind, params, [v.aval.shape for v in (*eqn.invars, *eqn.outvars)])
        op = DraftOp(kind, operands, [], attrs=facts | attrs_of(kind, params, describe(here)))
        if is_kernel(kind):
            known = {k: self._arrays[v] for k, v in enumerate(operands) if v in self._arrays}
            op.attrs = {"kernel": kernel_facts(eqn, known)}
        results = self._entered(frame, op, eqn, here, params)
        stated, opened = stated_of_result(eqn, here.scope)
        return self._placed(frame, eqn, results, stated, f"out_sharding at {describe(here)}", here, opened)

    def _roll(self, frame: Frame, eqn: Any, operand: DraftValue, roll: Roll, site: Site) -> list[DraftValue]:
        op = DraftOp("roll", [operand], [])
        self._entered(frame, op, eqn, _site(eqn, site))
        op.origin = JaxOp(ROLL, {"dimension": roll.dimension, "start": roll.start}, eqn.ctx)
        return op.results

    def _entered(
        self, frame: Frame, op: DraftOp, eqn: Any, here: Site, params: Mapping[str, Any] | None = None
    ) -> list[DraftValue]:
        """Put an op into the block; returns its results. params: those of the equation, where they differ."""
        op.results = [DraftValue(tensor_type(v.aval), Origin.OP) for v in eqn.outvars]
        op.source = describe(here)
        op.origin = JaxOp(eqn.primitive, dict(eqn.params if params is None else params), eqn.ctx)
        frame.block.ops.append(op)
        return op.results

    def _inline(self, frame: Frame, callee: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        jaxpr, consts = open_jaxpr(callee)
        site = here if is_jax_code(jaxpr) else Site(None, here.scope)
        return self._body(frame, jaxpr, consts, operands, site)

    def _remat(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        """Inline the call, behind a barrier where JAX puts one to keep the recomputation apart from the original."""
        cse = eqn.params.get("prevent_cse", True)
        chosen = [cse] * len(operands) if isinstance(cse, bool) else list(cse)
        if eqn.params.get("differentiated", False) and any(chosen):
            origin = JaxOp(barrier_primitive(), {}, eqn.ctx)
            operands = self._barrier(frame, operands, chosen, origin, here)
        return self._inline(frame, eqn.params["jaxpr"], operands, here)

    def _barrier(
        self, frame: Frame, operands: list[DraftValue], chosen: Sequence[bool], origin: JaxOp, here: Site
    ) -> list[DraftValue]:
        group = self._barriers
        self._barriers += 1
        out: list[DraftValue] = []
        for value, through in zip(operands, chosen, strict=True):
            if through and value.origin is not Origin.LITERAL:
                attrs = {"barrier_group": group}
                result = DraftValue(value.type, Origin.OP)
                op = DraftOp("optimization_barrier", [value], [result], describe(here), attrs, [], origin)
                frame.block.ops.append(op)
                value = result
            out.append(value)
        return out

    # -- regions -----------------------------------------------------------------------------------------------

    def _scan(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> DraftOp:
        params = eqn.params
        consts, carry = scan_counts(params, len(eqn.invars))
        body = self._region(params["jaxpr"], here, operands[:consts])
        captured = self._lift(frame, body)
        attrs = {
            "num_consts": len(captured) + consts,
            "num_carry": carry,
            "length": int(params["length"]),
            "reverse": bool(params["reverse"]),
        }
        return DraftOp("scan", captured + operands, [], attrs=attrs, regions=[body.block])

    def _while(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> DraftOp:
        params = eqn.params
        cond, body = self._region(params["cond_jaxpr"], here), self._region(params["body_jaxpr"], here)
        n, b = params["cond_nconsts"], params["body_nconsts"]
        for_cond, for_body = self._lift(frame, cond), self._lift(frame, body)
        operands = for_cond + operands[:n] + for_body + operands[n:]
        attrs = {"cond_nconsts": len(for_cond) + n, "body_nconsts": len(for_body) + b, "trips": None}
        op = DraftOp("while", operands, [], attrs=attrs, regions=[cond.block, body.block])
        op.attrs["trips"] = while_trips(op)
        return op

    def _cond(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> DraftOp:
        branches = [self._region(b, here) for b in eqn.params["branches"]]
        captured: dict[int, Any] = {}
        for branch in branches:
            captured.update(branch.captured)
        extra: list[DraftValue] = []
        for key, (array, inner) in captured.items():
            for branch in branches:  # every branch takes the array, even if it does not read it
                own = branch.captured.get(key)
                branch.block.args.append(own[1] if own else DraftValue(inner.type, Origin.ARG))
            extra.append(self._const_of_type(frame, array, inner))
        return DraftOp("cond", operands + extra, [], regions=[b.block for b in branches])

    def _known(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue] | None:
        """Results that follow from scalars written in the program. Compilers drop what a known index does not choose,
        with its collectives."""
        kind = str(eqn.primitive.name)
        if not operands or operands[0].literal is None:
            return None
        if kind not in _CHOICES:
            dtype = dtype_name(eqn.outvars[0].aval.dtype) if len(eqn.outvars) == 1 else ""
            number = known_scalar(kind, operands, dtype)
            return None if number is None else [self._literal(number, dtype)]
        which = int(operands[0].literal)  # type: ignore[arg-type]
        if kind == "select_n":
            return [operands[1 + which]]
        branches = eqn.params["branches"]
        return self._inline(frame, branches[min(max(which, 0), len(branches) - 1)], operands[1:], here)

    def _lift(self, frame: Frame, body: Frame) -> list[DraftValue]:
        """Make the arrays a body captured its leading arguments; returns the operands that feed them."""
        body.block.args[:0] = [value for _, value in body.captured.values()]
        return [self._const_of_type(frame, array, value) for array, value in body.captured.values()]

    def _const_of_type(self, frame: Frame, array: Any, like: DraftValue) -> DraftValue:
        if id(array) not in frame.captured:
            frame.captured[id(array)] = (array, DraftValue(like.type, frame.origin))
        return frame.captured[id(array)][1]

    def _warn(self, line: str) -> None:
        if line not in self.warnings:
            self.warnings.append(line)

    def _placement(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        """`with_sharding_constraint`, `device_put`, `with_layout_constraint`, `jax.sharding.reshard`, `shard_alike`."""
        kind, params = str(eqn.primitive.name), eqn.params
        if kind == "shard_alike":
            return self._alike(frame, eqn, operands, here)
        stated_by = {"sharding_constraint": "with_sharding_constraint", "device_put": "device_put"}.get(kind, kind)
        stated_by = f"{stated_by} at {describe(here)}"
        if params.get("layout") is not None:
            self._warn(f"the layout of {stated_by} is ignored")
        sharding = params.get("dst_sharding" if kind == "reshard" else "sharding")
        opened = sorted(params.get("unconstrained_dims", ()))
        if kind == "reshard":
            if is_empty_reshard(sharding):
                return operands
            opened = open_dims(sharding, operands[0].type.rank, here.scope)
        stated = params["devices"] if kind == "device_put" else [sharding] * len(operands)
        return self._placed(frame, eqn, operands, stated, stated_by, here, opened)

    def _placed_by_jit(
        self, frame: Frame, eqn: Any, values: list[DraftValue], side: str, here: Site
    ) -> list[DraftValue]:
        """Arguments or results of an inner `jit` behind its shardings; of a `jit` that is the whole program, these are
        statements about the program's own arguments and results."""
        if eqn is not self._whole:
            said = f"{side} of jit at {describe(here)}"
            return self._placed(frame, eqn, values, eqn.params.get(side), said, here)
        said = f"{side} of jax.jit({eqn.params.get('name', '')})"
        return self._placed(frame, eqn, values, eqn.params.get(side), said, Site(said), border=side)

    def _placed(
        self,
        frame: Frame,
        eqn: Any,
        values: list[DraftValue],
        shardings: Sequence[Any] | None,
        said: str,
        here: Site,
        unconstrained: Sequence[int] = (),
        border: str = "",
    ) -> list[DraftValue]:
        """The values, each behind a constraint where a sharding is stated for it.

        Inside of a `shard_map` values are local, and get no constraint. said: the name of the stating op in messages.
        """
        if shardings is None or self._manual:
            return values
        out: list[DraftValue] = []
        for value, sharding in zip(values, shardings, strict=True):
            rank = value.type.rank
            if not is_stated(sharding) or not rank:
                out.append(value)
                continue
            attrs = constraint_attrs(sharding, rank, unconstrained, said)
            if attrs is None:
                self._warn(f"{said} is ignored: {why_ignored(sharding)}")
                out.append(value)
                continue
            attrs |= {BORDER: border} if border else {}
            out.append(self._marked(frame, eqn, value, attrs, here))
        return out

    def _alike(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        """`jax.experimental.shard_alike`: both results must have the same sharding, whichever it is."""
        if self._manual or not all(value.type.rank for value in operands):
            return operands
        self.groups.append(describe(here))
        return [self._marked(frame, eqn, value, {ALIKE: len(self.groups)}, here) for value in operands]

    def _marked(self, frame: Frame, eqn: Any, value: DraftValue, attrs: dict[str, Any], here: Site) -> DraftValue:
        """A value behind an identity op that carries the attributes of a statement."""
        result = DraftValue(value.type, Origin.OP)
        origin = JaxOp(barrier_primitive(), {}, eqn.ctx)  # an identity on any devices
        frame.block.ops.append(DraftOp(CONSTRAINT, [value], [result], describe(here), attrs, [], origin))
        return result


def _argument(aval: Any, origin: Origin) -> DraftValue:
    return DraftValue(tensor_type(aval), origin)


def _site(eqn: Any, around: Site) -> Site:
    """Where an equation is, in a body at `around`."""
    return Site(around.source or source_line(eqn), joined(around.scope, str(eqn.source_info.name_stack)))
