"""Legal schedules without a planner: placements drawn at random, layouts tied by plain reshards.

They are what lowering must run correctly, good or bad: any placement that the rules allow, partial sums passing
through linear ops, shared forms, uneven cuts, and reshards by any legal sequence of steps.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from random import Random

from autoshard.lowering.walk import argument_slots, stack, stacked_operands
from autoshard.program.program import Block, Op, Program
from autoshard.program.rule import ShardingRule
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard, Step, StepKind

MESHES = {
    "8": AtomMesh.split(Mesh.from_dict({"x": 8})),
    "2x4": AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4})),
    "2x2x2": AtomMesh.split(Mesh.from_dict({"x": 2, "y": 2, "z": 2})),
    "8 split": AtomMesh.split(Mesh.from_dict({"x": 8}), {"x": (2, 4)}),
    "6": AtomMesh.split(Mesh.from_dict({"x": 3, "y": 2})),
    "3x2": AtomMesh.split(Mesh.from_dict({"x": 2, "y": 3})),
}


@dataclass
class Naive:
    """Draws one schedule.

    uneven: allow atoms that do not divide a dimension. place: chance that an atom is put on an op at all.
    shares: chance that a value with several uses gets a shared form. direct: chance of reduce-scatter, all-to-all
    and permute where they fit.
    """

    program: Program
    mesh: AtomMesh
    random: Random
    uneven: bool = False
    place: float = 0.8
    shares: float = 0.3
    direct: float = 0.5
    placements: dict[int, Placement] = field(default_factory=dict)
    definitions: dict[int, Layout] = field(default_factory=dict)
    uses: dict[Use, Reshard] = field(default_factory=dict)
    shared: dict[int, Reshard] = field(default_factory=dict)

    def schedule(self) -> Schedule:
        body = self.program.body
        for value in body.args:
            self.definitions[value] = self.layout(value, unreduced=False)
        self.block(body)
        for slot, value in enumerate(body.results):
            target = self.layout(value, unreduced=False, even=True)
            self.use(value, Use(PROGRAM, slot), target)
        return Schedule(self.mesh, self.placements, self.definitions, self.shared, self.uses)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def atoms(self) -> list[int]:
        chosen = [a for a in range(len(self.mesh.sizes)) if self.random.random() < self.place]
        self.random.shuffle(chosen)
        return chosen

    def layout(self, value: int, *, unreduced: bool, even: bool = False, fixed_rank: int = 0) -> Layout:
        """A random layout of a value; its first `fixed_rank` dimensions are not cut."""
        tensor = self.program.type_of(value)
        dims: list[tuple[int, ...]] = [()] * tensor.rank
        partial = []
        for atom in self.atoms():
            places = [
                d
                for d in range(fixed_rank, tensor.rank)
                if tensor.shape[d] > 1 and self.fits(tensor.shape[d], (*dims[d], atom), even or not self.uneven)
            ]
            if unreduced and tensor.dtype.startswith("float") and self.random.random() < 0.2:
                partial.append(atom)
            elif places:
                d = self.random.choice(places)
                dims[d] = (*dims[d], atom)
        return Layout(tuple(dims), tuple(sorted(partial)))

    def fits(self, n: int, atoms: tuple[int, ...], even: bool) -> bool:
        parts = self.mesh.size(atoms)
        return n % parts == 0 if even else n >= parts

    def placement(self, op: Op) -> Placement:
        rule = op.rule
        assert rule is not None
        factors: list[tuple[int, ...]] = [()] * len(rule.factor_sizes)
        passes: list[tuple[int, int]] = []
        zeros: list[int] = []
        for atom in self.atoms():
            options: list[tuple[str, int]] = []
            for f in rule.placeable:
                compound = [dim for t in (*rule.operands, *rule.results) for dim in t if f in dim and len(dim) > 1]
                trial = (*factors[f], atom)
                if not self.fits(rule.factor_sizes[f], trial, not self.uneven or bool(compound)):
                    continue
                parts = [self.mesh.size(trial if g == f else x) for g, x in enumerate(factors)]
                if not rule.halos_fit(parts):
                    continue
                if any(factors[g] for g in other_sides(rule, f)):  # cut on both sides: see ties
                    continue
                if self.compound_ok(rule, [trial if g == f else x for g, x in enumerate(factors)]):
                    options.append(("factor", f))
            options += self.ties(rule, factors, atom)
            options += [
                ("pass", k) for k, members in enumerate(rule.linear) if not any(self.literal(op, m) for m in members)
            ]
            if op.attrs.get("zero") and self.program.type_of(op.results[0]).dtype.startswith("float"):
                options.append(("zero", 0))
            if not options:
                continue
            what, k = self.random.choice(options)
            if what in ("factor", "tie"):
                for f in (k,) if what == "factor" else rule.ties[k]:
                    factors[f] = (*factors[f], atom)
            elif what == "pass":
                passes.append((atom, k))
            else:
                zeros.append(atom)
        return Placement(tuple(factors), tuple(passes), tuple(zeros))

    def ties(self, rule: ShardingRule, factors: list[tuple[int, ...]], atom: int) -> list[tuple[str, int]]:
        """Cutouts that the atom can cut on both sides; rolls into even blocks only."""
        rolled = {c.made for c in rule.cutouts if c.wraps}
        return [
            ("tie", k)
            for k, tie in enumerate(rule.ties)
            if len({factors[f] for f in tie}) == 1
            and all(self.fits(rule.factor_sizes[f], (*factors[f], atom), not self.uneven or f in rolled) for f in tie)
        ]

    def literal(self, op: Op, operand: int) -> bool:
        """Whether an operand is a scalar other than 0, the same on every device."""
        return bool(self.program.values[op.operands[operand]].literal)

    def compound_ok(self, rule: ShardingRule, factors: list[tuple[int, ...]]) -> bool:
        return all(
            self.mesh.size(factors[minor]) == 1 or self.mesh.size(factors[major]) == rule.factor_sizes[major]
            for t in (*rule.operands, *rule.results)
            for dim in t
            for major, minor in pairwise(dim)
        )

    # -- tying -----------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for value in block.args:
            self.share(value)
        for op in block.ops:
            if op.rule is None:
                self.region_op(op)
            else:
                placement = self.placements[op.id] = self.placement(op)
                for k, value in enumerate(op.operands):
                    self.use(value, Use(op.id, k), placement.operand(op.rule, k))
                for k, value in enumerate(op.results):
                    self.definitions[value] = placement.result(op.rule, k)
            for value in op.results:
                self.share(value)

    def share(self, value: int) -> None:
        if self.random.random() < self.shares:
            target = self.layout(value, unreduced=False)
            self.shared[value] = self.reshard(value, self.definitions[value], target)

    def use(self, value: int, use: Use, target: Layout) -> None:
        if self.program.values[value].literal is None:
            source = self.shared[value].target if value in self.shared else self.definitions[value]
            self.uses[use] = self.reshard(value, source, target)

    def region_op(self, op: Op) -> None:
        if op.kind == "shard_map":
            for k, value in enumerate(op.operands):
                self.use(value, Use(op.id, k), self.named(op.attrs["in_names"][k]))
            for k, value in enumerate(op.results):
                self.definitions[value] = self.named(op.attrs["out_names"][k])
            return
        arguments: dict[int, Layout] = {}  # operand slot -> layout of the block arguments that it feeds
        for region, block in enumerate(op.regions):
            for slot, value in zip(argument_slots(op, region), block.args, strict=True):
                literal = self.program.values[op.operands[slot]].literal is not None
                carried = op.kind == "scan" and int(op.attrs["num_consts"]) <= slot < stacked_operands(op)
                if slot not in arguments:
                    drawn = self.layout(value, unreduced=op.kind == "scan" and carried and not literal)
                    arguments[slot] = drawn
                self.definitions[value] = arguments[slot]
        if op.kind == "cond":
            self.use(op.operands[0], Use(op.id, 0), Layout(()))
        for slot, layout in arguments.items():
            stacked = op.kind == "scan" and slot >= stacked_operands(op)
            self.use(op.operands[slot], Use(op.id, slot), stack(layout) if stacked else layout)
        crossing: list[Layout] = []
        for region, block in enumerate(op.regions):
            self.block(block)
            if op.kind == "while" and region == 0:
                self.use(block.results[0], Use(op.id, 0, 0), Layout(()))
                continue
            if op.kind == "while":
                crossing = [self.definitions[a] for a in block.args[int(op.attrs["body_nconsts"]) :]]
            elif op.kind == "scan":
                n, k = int(op.attrs["num_consts"]), int(op.attrs["num_carry"])
                crossing = [self.definitions[a] for a in block.args[n : n + k]]
                crossing += [self.layout(v, unreduced=False) for v in block.results[k:]]
            elif not crossing:
                crossing = [self.layout(v, unreduced=False) for v in block.results]
            for slot, value in enumerate(block.results):
                self.use(value, Use(op.id, slot, region), crossing[slot])
        carries = int(op.attrs["num_carry"]) if op.kind == "scan" else len(crossing)
        for slot, value in enumerate(op.results):
            self.definitions[value] = crossing[slot] if slot < carries else stack(crossing[slot])

    def named(self, names: tuple[tuple[str, ...], ...]) -> Layout:
        return Layout(tuple(tuple(a for n in dim for a in self.mesh.atoms_of[n]) for dim in names))

    # -- reshards --------------------------------------------------------------------------------------------------

    def reshard(self, value: int, source: Layout, target: Layout) -> Reshard:
        """Direct collectives where they fit and the coin says so; then gather all and slice."""
        steps: list[Step] = []
        layout = source
        shape = self.program.type_of(value).shape

        def do(step: Step) -> None:
            nonlocal layout
            steps.append(step)
            layout = step.apply(layout)

        if self.random.random() < self.direct:
            for dim, wanted in enumerate(target.dims):
                have = layout.dims[dim]
                missing = wanted[len(have) :]
                if wanted[: len(have)] == have and missing:
                    if set(missing) <= set(layout.unreduced):
                        do(Step(StepKind.REDUCE_SCATTER, missing, dim))
                        continue
                    for other in range(len(layout.dims)):
                        if other != dim and layout.dims[other][-len(missing) :] == missing:
                            do(Step(StepKind.ALL_TO_ALL, missing, other, dim))
                            break
                elif sorted(have) == sorted(wanted) and have != wanted and shape[dim] % self.mesh.size(have) == 0:
                    do(Step(StepKind.PERMUTE, wanted, dim))
        reduced = tuple(a for a in layout.unreduced if a not in target.unreduced)
        if reduced:
            do(Step(StepKind.ALL_REDUCE, reduced))
        for dim, wanted in enumerate(target.dims):
            have = layout.dims[dim]
            same = 0
            while same < min(len(have), len(wanted)) and have[same] == wanted[same]:
                same += 1
            if have[same:]:
                do(Step(StepKind.ALL_GATHER, have[same:], dim))
        for dim, wanted in enumerate(target.dims):
            if missing := wanted[len(layout.dims[dim]) :]:
                do(Step(StepKind.SLICE, missing, dim))
        if missing := tuple(a for a in target.unreduced if a not in layout.unreduced):
            do(Step(StepKind.MASK, missing))
        assert layout == target, (layout, target)
        return Reshard(source, target, tuple(steps))


def other_sides(rule: ShardingRule, factor: int) -> set[int]:
    """The factors of which a dimension is a run, or that are runs of it."""
    near = [c for c in rule.cutouts if factor in (c.taken, c.made)]
    return {c.made if factor == c.taken else c.taken for c in near} - {-1}


def naive_schedule(program: Program, mesh: AtomMesh, seed: int, **options: object) -> Schedule:
    return Naive(program, mesh, Random(seed), **options).schedule()  # type: ignore[arg-type]


def local_elements(layout: Layout, shape: tuple[int, ...], mesh: AtomMesh) -> int:
    return prod(layout.local_shape(shape, mesh))
