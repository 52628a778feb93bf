"""Running a program op by op on local blocks, with the reshards of its schedule.

Everything here runs inside the one `shard_map` that `lower` makes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.costs.liveness import only_uses
from autoshard.errors import UnsupportedError
from autoshard.frontends.jax.function import TracedFunction
from autoshard.frontends.jax.interpret import bind_local, literal_array
from autoshard.lowering.collectives import other_order
from autoshard.lowering.local import LocalOp, run_local
from autoshard.lowering.manual import run_manual
from autoshard.lowering.steps import Grid, all_reduce, inverse, permute_all, run_reshard
from autoshard.lowering.transposed import transposed, turned_next
from autoshard.lowering.walk import Run, Share, Take, events
from autoshard.program.order import NOTHING, Order
from autoshard.program.program import Block, Op
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.ties import donated_ties
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard, Step, StepKind

NOWHERE: Final = Use(PROGRAM, -1)
"""No use of any value."""

RunBlock = Callable[[int, Sequence[Any]], list[Any]]
"""(region index, block arguments) -> block results."""


@dataclass
class _Arrays:
    """The arrays of a block as far as it has run.

    values: by value, as it is defined. shared: by value, its shared form. taken: by use. late: by use, the source of a
    copy that is made when its loop starts. copies: by value and steps the op that took this copy last, and what
    it was made of.
    """

    values: dict[int, Any]
    shared: dict[int, Any] = field(default_factory=dict)
    taken: dict[Use, Any] = field(default_factory=dict)
    late: dict[Use, Any] = field(default_factory=dict)
    copies: dict[tuple[int, Sequence[Step]], tuple[int | None, Any]] = field(default_factory=dict)


class LocalInterpreter:
    """Runs blocks of one program under one schedule; holds no state between runs.

    order: what the compiler must not reorder. apart: values that nothing which reads them is fused with. platform: see
    `Grid`.
    """

    def __init__(
        self,
        traced: TracedFunction,
        schedule: Schedule,
        order: Order = NOTHING,
        apart: frozenset[int] = frozenset(),
        platform: str | None = None,
    ) -> None:
        self.traced, self.program = traced, traced.program
        self.order, self.apart = order, apart
        self.jax_ops = traced.jax_ops
        self.schedule = schedule
        self.grid = Grid(schedule.mesh, platform)

    def block(self, block: Block, args: Sequence[Any], owner: tuple[int, int] = (PROGRAM, -1)) -> list[Any]:
        """Results of a block in the layouts that cross its boundary; `args` are in the layouts that they are defined
        in.
        """
        now = _Arrays(dict(zip(block.args, args, strict=True)))
        taken = now.taken
        last_of_barrier = {op.attrs["barrier_group"]: op.id for op in block.ops if "barrier_group" in op.attrs}
        barrier: list[Op] = []
        for event in events(block, self.schedule, owner):
            match event:
                case Share(value, reshard):
                    self.share(value, reshard, now)
                case Take(value, use, None):
                    taken[use] = literal_array(self.program.values[value])
                case Take(value, use, reshard):
                    assert reshard is not None
                    self.take(value, use, reshard, now)
                case Run(op) if "barrier_group" in op.attrs:
                    barrier.append(op)
                    if last_of_barrier[op.attrs["barrier_group"]] == op.id:
                        operands = [taken.pop(Use(o.id, 0)) for o in barrier]
                        made = [o.results[0] for o in barrier]
                        out = self.barrier(op, operands, made)
                        now.values.update(zip(made, self.formed(made, out), strict=True))
                        barrier = []
                case Run(op):
                    if op.id in self.order.finished:
                        self.start(op, block, now)
                    operands = [taken.pop(Use(op.id, k)) for k in range(len(op.operands))]
                    out = self.op(op, operands) if op.rule is not None else self.region_op(op, operands)
                    if not self.apart.isdisjoint(op.results):
                        out = [lax.optimization_barrier(x) for x in out]
                    now.values.update(zip(op.results, self.formed(op.results, out), strict=True))
        if owner[0] == PROGRAM:
            for slot in self.order.over:
                replaced, use = now.values[donated_ties(self.program)[slot]], Use(PROGRAM, slot)
                taken[use] = after(taken[use], [replaced])
        return [taken[Use(owner[0], k, owner[1])] for k in range(len(block.results))]

    def take(self, value: int, use: Use, reshard: Reshard, now: "_Arrays") -> None:
        """Bring a value into the layout that a use needs."""
        if use in now.taken:
            return
        form = now.shared[value] if value in now.shared else now.values[value]
        if self.is_as_defined(value, reshard) or (self.order and self.is_argument_again(value, reshard)):
            now.taken[use] = now.values[value]  # not a slice of its shared form, which would be held for it
            return
        before, source = now.copies.get((value, reshard.steps), (None, None))
        if use in self.order.again and before is not None:
            if before == use.op:  # its other operand has that copy as well
                form = source
            elif before in self.program.ops:
                form = after(form, [now.values[v] for v in self.program.ops[before].results if v in now.values])
        if use.region < 0 and use.op in self.order.finished and not self.no_larger(value, reshard):
            now.late[use] = form
        else:
            now.taken[use] = self.reshard(form, reshard, value, use)
        now.copies[value, reshard.steps] = use.op, form

    def is_as_defined(self, value: int, reshard: Reshard) -> bool:
        """Whether a use has a value that is gathered as others use it as it is defined, and not as a slice of that."""
        return self.grid.platform == "tpu" and self.schedule.is_as_defined(value, reshard)

    def is_argument_again(self, value: int, reshard: Reshard) -> bool:
        """Whether a reshard only slices the shared form of an argument of the program to what the argument is."""
        back = reshard.target == self.schedule.definitions[value] and value in self.program.body.args
        return back and value in self.schedule.shared and all(s.kind is StepKind.SLICE for s in reshard.steps)

    def start(self, loop: Op, block: Block, now: "_Arrays") -> None:
        """Take the operands of a loop that can start only when what comes before it in the program is finished.

        Values that are finished are made, and so are their copies that take no more memory, where the model of memory
        makes these at once (docs/memory.md). Larger copies that the loop reads are made after these.
        """
        places: list[tuple[dict[Any, Any], Any]] = []
        for value in self.order.finished[loop.id]:
            reshard, use = self.schedule.shared.get(value), self.only_uses.get(value, NOWHERE)
            if reshard is not None and (value in now.shared or self.no_larger(value, reshard)):
                self.share(value, reshard, now)
                places.append((now.shared, value))
            elif reshard is None and use in self.schedule.uses and self.made_at_once(value, self.schedule.uses[use]):
                now.taken[use] = self.reshard(now.values[value], self.schedule.uses[use], value, use)
                places.append((now.taken, use))
            else:
                places.append((now.values, value))
        late = [use for slot in range(len(loop.operands)) if (use := Use(loop.id, slot)) in now.late]
        places = [place for place in (*places, *((now.late, use) for use in late)) if is_plain(place[0][place[1]])]
        computed = {v for op in block.ops for v in op.results}
        known = [Use(loop.id, slot) for slot, v in enumerate(loop.operands) if v in computed]
        known = [use for use in known if use in now.taken and is_plain(now.taken[use])]
        if known and places:
            first = min(known, key=lambda use: np.size(now.taken[use]))
            places.append((now.taken, first))
            arrays = lax.optimization_barrier([table[key] for table, key in places])
            for (table, key), array in zip(places, arrays, strict=True):
                table[key] = array
        for use in late:
            now.taken[use] = self.reshard(now.late.pop(use), self.schedule.uses[use], use.value_in(self.program), use)

    def share(self, value: int, reshard: Reshard, now: "_Arrays") -> None:
        """Compute the shared form of a value, once."""
        if value not in now.shared:
            now.shared[value] = self.in_order(self.reshard(now.values[value], reshard, value), value)

    @cached_property
    def only_uses(self) -> Mapping[int, Use]:
        """Values with a single use, and this use."""
        return only_uses(self.program)

    @cached_property
    def turned_next(self) -> Mapping[int, Sequence[int]]:
        """Results of matmuls that nothing but a transpose reads, and the order of dimensions that it leaves."""
        return turned_next(self.traced, self.only_uses)

    def made_at_once(self, value: int, reshard: Reshard) -> bool:
        """Whether the copy for a value's only use is made with the value: a partial sum is, if that takes no more."""
        return bool(self.schedule.definitions[value].unreduced) and self.no_larger(value, reshard)

    def no_larger(self, value: int, reshard: Reshard) -> bool:
        """Whether a device holds no more elements of a value after a reshard than before it."""
        shape, mesh = self.program.type_of(value).shape, self.schedule.mesh
        before, after = (prod(form.local_shape(shape, mesh)) for form in (reshard.source, reshard.target))
        return after <= before

    def reshard(self, x: Any, reshard: Reshard, value: int, use: Use | None = None) -> Any:
        """The local block of a value after a reshard; `use`: the one that it is for, None for the shared form."""
        shape, order = self.program.type_of(value).shape, self.turned_next.get(value)
        if order is None or not any(step.is_collective for step in reshard.steps):
            return self.moved(x, reshard, shape)
        turned = self.moved(lax.transpose(x, order), transposed(reshard, order), [shape[d] for d in order])
        return lax.transpose(turned, np.argsort(order))

    def moved(self, x: Any, reshard: Reshard, shape: Sequence[int]) -> Any:
        """The local block of a tensor of `shape` after a reshard."""
        return run_reshard(x, reshard, shape, self.grid)

    def formed(self, values: Sequence[int], arrays: Sequence[Any]) -> Sequence[Any]:
        """The results of an op; those without a shared form are brought to their stated order of the devices and
        back here.
        """
        if not self.program.orders:
            return arrays
        shared = self.schedule.shared
        return [x if v in shared else self.in_order(x, v) for v, x in zip(values, arrays, strict=True)]

    def in_order(self, x: Any, value: int) -> Any:
        """The block of a value after it has lain on the devices in the order stated for it, and is back."""
        order = other_order(self.program, value)
        if order is None:
            return x
        return permute_all(permute_all(x, order.moves, self.grid), inverse(order.moves), self.grid)

    def barrier(self, last: Op, operands: Sequence[Any], made: Sequence[int]) -> Sequence[Any]:
        """Results of a barrier of several values, in their layouts. last: of the ops that are one barrier. made: the
        values of its results.
        """
        return bind_local(self.jax_ops[last.id], operands)

    def op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of an op with a rule, in the layouts that its placement defines."""
        assert op.rule is not None
        results = run_local(self.local_op(op), operands)
        atoms = self.schedule.placements[op.id].combine_atoms(op.rule)
        return [all_reduce(r, op.rule.combiner, atoms, self.grid) for r in results] if atoms else results

    def local_op(self, op: Op) -> LocalOp:
        """An op as one device sees it."""
        types = self.program.type_of
        return LocalOp(
            op,
            self.jax_ops[op.id],
            tuple(types(v) for v in op.operands),
            tuple(types(v) for v in op.results),
            self.schedule.placements[op.id],
            self.grid,
        )

    def region_op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of a loop, a branch or a `shard_map`; `UnsupportedError` for other ops with regions."""
        if op.kind == "shard_map":
            return self.shard_map(op, operands)

        def run(region: int, args: Sequence[Any]) -> list[Any]:
            return self.block(op.regions[region], args, (op.id, region))

        return self.control_flow(op, operands, run)

    def control_flow(self, op: Op, operands: Sequence[Any], run: RunBlock) -> list[Any]:
        """Results of a `scan`, `while` or `cond` whose regions `run` executes."""
        match op.kind:
            case "scan":
                return self.scan(op, operands, run)
            case "while":
                return self.while_loop(op, operands, run)
            case "cond":
                index, *rest = operands
                branches = [lambda *xs, r=r: tuple(run(r, xs)) for r in range(len(op.regions))]
                return list(lax.switch(lax.convert_element_type(index, np.int32), branches, *rest))
        raise UnsupportedError(f"op {op.id} ({op.kind}) at {op.source} has regions and no local form")

    def scan(self, op: Op, operands: Sequence[Any], run: RunBlock) -> list[Any]:
        """Results of a scan: the final carries, then the stacks; operands are consts, initial carries, stacks."""
        n, k = int(op.attrs["num_consts"]), int(op.attrs["num_carry"])
        consts, init, xs = operands[:n], operands[n : n + k], operands[n + k :]

        def body(carry: Any, x: Any) -> Any:
            out = run(0, [*consts, *carry, *x])
            return tuple(out[:k]), tuple(out[k:])

        carry, ys = lax.scan(
            body,
            tuple(init),
            tuple(xs),
            length=op.attrs["length"],
            reverse=op.attrs["reverse"],
            unroll=self.jax_ops[op.id].params.get("unroll", 1),
        )
        return [*carry, *ys]

    def while_loop(self, op: Op, operands: Sequence[Any], run: RunBlock) -> list[Any]:
        """The final carries of a while loop; operands are the condition's consts, the body's consts, initial
        carries.
        """
        n, b = int(op.attrs["cond_nconsts"]), int(op.attrs["body_nconsts"])
        for_cond, for_body, init = operands[:n], operands[n : n + b], operands[n + b :]
        return list(
            lax.while_loop(lambda c: run(0, [*for_cond, *c])[0], lambda c: tuple(run(1, [*for_body, *c])), tuple(init))
        )

    # -- shard_map regions of the user -------------------------------------------------------------------------

    def shard_map(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of the user's `shard_map`. Its body runs unchanged: its axes are axes of the plan's mesh, and its
        operands are local blocks already.
        """
        for slot, (value, names) in enumerate(zip(op.operands, op.attrs["in_names"], strict=True)):
            reshard = self.schedule.uses.get(Use(op.id, slot))
            if reshard is not None:
                self._same(op, f"operand {slot}", value, reshard.target, names)
        for slot, (value, names) in enumerate(zip(op.results, op.attrs["out_names"], strict=True)):
            self._same(op, f"result {slot}", value, self.schedule.definitions[value], names)
        for name, size in op.attrs["mesh_axes"]:
            mesh = self.schedule.mesh.mesh
            if name not in mesh.axis_names or mesh.axis_size(name) != size:
                raise UnsupportedError(
                    f"shard_map at {op.source} runs over axis {name!r} of size {size}, the plan's mesh is {mesh}; "
                    "plan on the mesh of the shard_map"
                )
            if len(self.schedule.mesh.atoms_of[name]) != 1:
                raise UnsupportedError(
                    f"shard_map at {op.source} runs over axis {name!r}, which this plan splits into "
                    f"{[self.schedule.mesh.names[a] for a in self.schedule.mesh.atoms_of[name]]}"
                )
        return self.local_block(op.regions[0], operands)

    def _same(self, op: Op, what: str, value: int, layout: Layout, names: Sequence[Sequence[str]]) -> None:
        wanted = layout_of_names(names, self.schedule.mesh, op)
        if layout != wanted:
            raise UnsupportedError(
                f"{what} of shard_map at {op.source} is in {layout.text(self.schedule.mesh)}, "
                f"its specs want {wanted.text(self.schedule.mesh)}"
            )

    def local_block(self, block: Block, args: Sequence[Any]) -> list[Any]:
        """Results of a block whose types are local already: every op runs as it was written."""
        env: dict[int, Any] = dict(zip(block.args, args, strict=True))

        def read(value: int) -> Any:
            v = self.program.values[value]
            return literal_array(v) if v.literal is not None else env[value]

        for op in block.ops:
            operands = [read(v) for v in op.operands]
            if op.regions:

                def run(region: int, args: Sequence[Any], op: Op = op) -> list[Any]:
                    return self.local_block(op.regions[region], args)

                out = self.control_flow(op, operands, run)
            else:
                out = run_manual(op, self.jax_ops[op.id], operands)
            env.update(zip(op.results, out, strict=True))
        return [read(v) for v in block.results]


def is_plain(x: Any) -> bool:
    """Whether an array holds numbers, not keys of random numbers."""
    return not jnp.issubdtype(x.dtype, jax.dtypes.extended)


def after(x: Any, results: Sequence[Any]) -> Any:
    """The array, to be read only when these results are there; so the compiler sees another array than the first."""
    plain = [r for r in results if is_plain(r)]
    return lax.optimization_barrier((x, plain))[0] if plain and is_plain(x) else x


def layout_of_names(names: Sequence[Sequence[str]], mesh: AtomMesh, op: Op) -> Layout:
    """The layout that a spec (axis names for each dimension) means."""
    unknown = [n for dim in names for n in dim if n not in mesh.atoms_of]
    if unknown:
        raise UnsupportedError(f"shard_map at {op.source} uses axis {unknown[0]!r}, the plan's mesh is {mesh.mesh}")
    return Layout(tuple(tuple(a for n in dim for a in mesh.atoms_of[n]) for dim in names))
