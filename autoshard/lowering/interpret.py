"""Running a program op by op on local blocks, with the reshards of its schedule.

Everything here runs inside the one `shard_map` that `lower` makes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from autoshard.errors import UnsupportedError
from autoshard.frontends.jax.function import TracedFunction
from autoshard.frontends.jax.interpret import bind_local, literal_array
from autoshard.lowering.collectives import other_order
from autoshard.lowering.local import LocalOp, run_local
from autoshard.lowering.manual import run_manual
from autoshard.lowering.steps import Grid, all_reduce, inverse, permute_all, run_reshard
from autoshard.lowering.walk import Run, Share, Take, events
from autoshard.program.program import Block, Op
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard

RunBlock = Callable[[int, Sequence[Any]], list[Any]]
"""(region index, block arguments) -> block results."""


class LocalInterpreter:
    """Runs blocks of one program under one schedule; holds no state between runs."""

    def __init__(self, traced: TracedFunction, schedule: Schedule) -> None:
        self.program = traced.program
        self.jax_ops = traced.jax_ops
        self.schedule = schedule
        self.grid = Grid(schedule.mesh)

    def block(self, block: Block, args: Sequence[Any], owner: tuple[int, int] = (PROGRAM, -1)) -> list[Any]:
        """Results of a block in the layouts that cross its boundary; `args` are in the layouts that they are defined
        in.
        """
        env: dict[int, Any] = dict(zip(block.args, args, strict=True))
        shared: dict[int, Any] = {}
        taken: dict[Use, Any] = {}
        last_of_barrier = {op.attrs["barrier_group"]: op.id for op in block.ops if "barrier_group" in op.attrs}
        barrier: list[Op] = []
        for event in events(block, self.schedule, owner):
            match event:
                case Share(value, reshard):
                    shared[value] = self.in_order(self.reshard(env[value], reshard, value), value)
                case Take(value, use, None):
                    taken[use] = literal_array(self.program.values[value])
                case Take(value, use, reshard):
                    assert reshard is not None
                    form = shared[value] if value in shared else env[value]
                    taken[use] = self.reshard(form, reshard, value, use)
                case Run(op) if "barrier_group" in op.attrs:
                    barrier.append(op)
                    if last_of_barrier[op.attrs["barrier_group"]] == op.id:
                        operands = [taken.pop(Use(o.id, 0)) for o in barrier]
                        out = bind_local(self.jax_ops[op.id], operands)
                        made = [o.results[0] for o in barrier]
                        env.update(zip(made, self.formed(made, out), strict=True))
                        barrier = []
                case Run(op):
                    operands = [taken.pop(Use(op.id, k)) for k in range(len(op.operands))]
                    out = self.op(op, operands) if op.rule is not None else self.region_op(op, operands)
                    env.update(zip(op.results, self.formed(op.results, out), strict=True))
        return [taken[Use(owner[0], k, owner[1])] for k in range(len(block.results))]

    def reshard(self, x: Any, reshard: Reshard, value: int, use: Use | None = None) -> Any:
        """The local block of a value after a reshard; `use`: the one that it is for, None for the shared form."""
        return run_reshard(x, reshard, self.program.type_of(value).shape, self.grid)

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


def layout_of_names(names: Sequence[Sequence[str]], mesh: AtomMesh, op: Op) -> Layout:
    """The layout that a spec (axis names for each dimension) means."""
    unknown = [n for dim in names for n in dim if n not in mesh.atoms_of]
    if unknown:
        raise UnsupportedError(f"shard_map at {op.source} uses axis {unknown[0]!r}, the plan's mesh is {mesh.mesh}")
    return Layout(tuple(tuple(a for n in dim for a in mesh.atoms_of[n]) for dim in names))
