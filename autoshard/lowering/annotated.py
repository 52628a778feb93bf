"""The program on whole arrays in JAX's explicit sharding mode: shardings are types, and follow from those of operands.

Without a choice of annotations, every value gets the form that it has in the plan, and an annotation is noted wherever
explicit mode infers another one, or refuses to infer any. With a choice, only those are applied.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import Mesh as JaxMesh

from autoshard.errors import AutoshardError, UnsupportedError
from autoshard.frontends.jax.interpret import bind_local
from autoshard.lowering.constrained import PLACEMENTS, ConstrainedInterpreter
from autoshard.lowering.lower import Lowered
from autoshard.lowering.typed_forms import CALLS, Annotation, Form, Site, form_of, form_of_layout
from autoshard.program.program import Block, Op
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard

Chosen = Mapping[Site, Annotation]


class RefusedError(UnsupportedError):
    """JAX refuses the program in explicit mode: which op, and what it says."""


class AnnotatedInterpreter(ConstrainedInterpreter):
    """Runs a program in explicit mode, inside of the context of an explicit mesh.

    chosen: the annotations to apply; None where they are to be found. found: those that were. at_once: values that are
    summed where they are made. refused: values with one use, which refuses their partial sum. notes: what of the plan
    types cannot say, each once.
    """

    def __init__(
        self,
        lowered: Lowered,
        mesh: JaxMesh | AbstractMesh,
        chosen: Chosen | None,
        at_once: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(lowered, mesh, inside=False)
        self.at_once = at_once
        self.refused: set[int] = set()
        self.chosen = chosen
        self.found: dict[Site, Annotation] = {}
        self.notes: dict[str, None] = {}
        self._summed_regions: set[int] = set()
        self._waiting: dict[Use, Form] = {}
        self._uses: defaultdict[int, list[Use]] = defaultdict(list)
        for use in self.schedule.uses:
            self._uses[use.value_in(self.program)].append(use)

    # -- forms -------------------------------------------------------------------------------------------------

    def form(self, layout: Layout, value: int) -> Form:
        """A layout of a value as a type, without axes that cut unevenly, which types cannot have."""
        shape = self.program.type_of(value).shape
        even = layout.even_part(shape, self.schedule.mesh)
        if even != layout:
            name = self.program.values[value].name
            text = layout.text(self.schedule.mesh)
            self.note(f"{name} is {text}, which cuts {list(shape)} unevenly; a type leaves out the axes that do")
        return form_of_layout(even, self.schedule.mesh)

    def goal(self, value: int) -> Form:
        """The form that an op's result is to have: a partial sum is summed at once where all uses want the same sum."""
        layout = self.schedule.definitions[value]
        if layout.unreduced:
            shared = self.schedule.shared.get(value)
            targets = {self.schedule.uses[u].target for u in self._uses[value]} if shared is None else {shared.target}
            if len(targets) == 1 and not (target := targets.pop()).unreduced:
                layout = target
        form = self.form(layout, value)
        return form.summed if value in self.at_once else form

    def note(self, text: str) -> None:
        """Remember what types cannot say of the plan."""
        self.notes.setdefault(text)

    def name(self, value: int) -> str:
        """The name of a value."""
        return self.program.values[value].name

    # -- placing values ----------------------------------------------------------------------------------------

    def placed(self, x: Any, goal: Form, site: Site, value: int, op: Op | None, *, zero: bool = False) -> Any:
        """An array in the form that it is to have at a site. zero: all of it is, so that it may become a partial
        sum.
        """
        if self.chosen is not None:
            note = self.chosen.get(site)
            return x if note is None else self.resharded(x, note.forms[0], op)
        now = form_of(x)
        if not goal.unreduced <= now.unreduced and not (zero and not now.unreduced):
            goal = replace(goal, unreduced=goal.unreduced & now.unreduced)  # nobody asks for zeros on other devices
        if now == goal:
            return x
        try:
            out = self.resharded(x, goal, op)
        except RefusedError as error:
            if not goal.unreduced or now == goal.summed:
                if goal.unreduced:
                    self.refused_sum(value, op, str(error))
                    return x
                raise
            self.refused_sum(value, op, str(error))
            return self.placed(x, goal.summed, site, value, op)
        self.noted(site, "reshard", (goal,), value, op, f"it comes as {now}", local=goal.is_cut_of(now))
        return out

    def resharded(self, x: Any, form: Form, op: Op | None) -> Any:
        """The array in a form; `RefusedError` where JAX refuses it."""
        try:
            return jax.sharding.reshard(x, form.spec)
        except Exception as error:  # JAX has no one type of error for it
            raise _refused(op, error) from error

    def noted(
        self, site: Site, how: str, forms: Sequence[Form], value: int, op: Op | None, why: str, *, local: bool = False
    ) -> None:
        """Note an annotation."""
        self.found[site] = Annotation(
            site=site, how=how, forms=tuple(forms), op="" if op is None else op.kind, value=self.name(value),
            source="" if op is None else "; ".join([op.source, *op.attrs.get("also", ())]), why=why, local=local,
        )  # fmt: skip

    def refused_sum(self, value: int, op: Op | None, message: str) -> None:
        """Note that JAX refuses a partial sum that the plan keeps."""
        at = "" if op is None else f" at {op.kind}, {op.source or 'unknown source'}"
        said = message.partition(" says: ")[2] or message
        self.note(f"the partial sum {self.name(value)} is summed earlier than planned{at}: {said}")

    def reshard(self, x: Any, reshard: Reshard, value: int, use: Use | None = None) -> Any:
        """The array in the form that one use needs, or that its uses share."""
        goal = self.form(reshard.target, value)
        if use is None:
            return self.placed(x, goal, Site("shared", value), value, self._first_user(value))
        if use.op == PROGRAM:
            return x  # `out_shardings` say so
        op = self.program.ops[use.op]
        goal = goal.summed if use.op in self._summed_regions else goal
        if self.chosen is None and self._is_elementwise(op) and goal.is_cut_of(form_of(x)):
            self._waiting[use] = goal  # other operands may say so already
            return x
        return self.placed(x, goal, Site("use", *use), value, op)

    def _is_elementwise(self, op: Op) -> bool:
        shapes = {self.program.type_of(v).shape for v in (*op.operands, *op.results)}
        return op.rule is not None and len(op.results) == 1 and len(shapes - {()}) <= 1 and op.kind not in PLACEMENTS

    def _first_user(self, value: int) -> Op | None:
        users = [self.program.ops[u.op] for u in self._uses[value] if u.op != PROGRAM]
        return users[0] if users else None

    def defined(self, values: Sequence[int], arrays: Sequence[Any]) -> list[Any]:
        """The arrays as they are: their types say how they lie."""
        return list(arrays)

    # -- ops ---------------------------------------------------------------------------------------------------

    def op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of an op in explicit mode."""
        if "kernel" in op.attrs:
            return self.kernel(op, operands)
        if self.chosen is not None:
            return self.applied(op, operands, self.chosen)
        goals = [self.goal(v) for v in op.results]
        waiting = {k: form for k in range(len(operands)) if (form := self._waiting.pop(Use(op.id, k), None))}
        if waiting:
            results = self.tried(op, operands)[0]
            if results is not None and [form_of(x) for x in results] == goals:
                return results
            found = enumerate(zip(operands, op.operands, strict=True))
            operands = [
                self.placed(x, waiting[k], Site("use", op.id, k), v, op) if k in waiting else x for k, (x, v) in found
            ]
        partial = any(form_of(x).unreduced for x in operands)
        for summed in (False, True) if partial else (False,):
            given = self.summed_operands(op, operands) if summed else self.scaled_operands(op, operands)
            out = self.inferred(op, given, [self.made(op, given, goal) for goal in goals])
            if out is not None:
                return out
        operands = self.summed_operands(op, operands) if partial else operands
        return self.automatic(op, operands, goals)

    def made(self, op: Op, operands: Sequence[Any], goal: Form) -> Form:
        """The goal without partial sums that neither come with the operands nor are made here."""
        if not goal.unreduced or op.attrs.get("zero"):
            return goal
        assert op.rule is not None
        names = self.schedule.mesh.names
        made = {names[a] for a in self.schedule.placements[op.id].reduced_atoms(op.rule)}
        come = frozenset().union(*(form_of(x).unreduced for x in operands))
        return replace(goal, unreduced=goal.unreduced & (come | made))

    def applied(self, op: Op, operands: Sequence[Any], chosen: Chosen) -> list[Any]:
        """Results of an op with the chosen annotations; `RefusedError` where JAX refuses it so."""
        operands = [
            self.placed(x, form_of(x), Site("operand", op.id, k), v, op)
            for k, (x, v) in enumerate(zip(operands, op.operands, strict=True))
        ]
        note = chosen.get(Site("result", op.id))
        if note is not None and note.how == "auto_axes":
            results = self.run_automatic(op, operands, note.forms)
        else:
            results = self.run(op, operands, None if note is None else note.forms[0])
        return self.results(op, results, [form_of(x) for x in results])

    def results(self, op: Op, arrays: Sequence[Any], goals: Sequence[Form]) -> list[Any]:
        """The results of an op, each in its form."""
        zero = bool(op.attrs.get("zero"))
        placed = zip(arrays, goals, op.results, strict=True)
        return [self.placed(x, g, Site("result", op.id, k), v, op, zero=zero) for k, (x, g, v) in enumerate(placed)]

    def inferred(self, op: Op, operands: Sequence[Any], goals: Sequence[Form]) -> list[Any] | None:
        """Results in their forms: as explicit mode infers them, told by ``out_sharding``, or resharded; None where it
        refuses the op.
        """
        results, said = self.tried(op, operands)
        if results is not None and [form_of(x) for x in results] == list(goals):
            return results
        if op.kind in CALLS and any(k in self.jax_ops[op.id].params for k in ("out_sharding", "sharding")):
            for goal in dict.fromkeys((goals[0], goals[0].summed)):
                told, refusal = self.tried(op, operands, goal)
                if told is None:
                    if goal.unreduced and not op.attrs.get("zero"):
                        self.refused_sum(op.results[0], op, refusal)
                    continue
                local = results is not None and goal.is_cut_of(form_of(results[0]))
                why = f"it infers {form_of(results[0])}" if results is not None else said
                self.noted(Site("result", op.id), "out_sharding", (goal,), op.results[0], op, why, local=local)
                return self.results(op, told, goals)
        return None if results is None else self.results(op, results, goals)

    def tried(self, op: Op, operands: Sequence[Any], form: Form | None = None) -> tuple[list[Any] | None, str]:
        """The results, or None and what JAX says."""
        try:
            return self.run(op, operands, form), ""
        except RefusedError as error:
            return None, str(error).partition(" says: ")[2]

    def run(self, op: Op, operands: Sequence[Any], form: Form | None = None) -> list[Any]:
        """The results of an op that is told a form, or none; `RefusedError` where JAX refuses it."""
        if op.kind in PLACEMENTS:
            return list(operands)
        try:
            told = None if form is None else NamedSharding(jax.sharding.get_abstract_mesh(), form.spec)
            return bind_local(self.jax_ops[op.id], operands, told)
        except Exception as error:  # JAX has no one type of error for it
            raise _refused(op, error) from error

    def automatic(self, op: Op, operands: Sequence[Any], goals: Sequence[Form]) -> list[Any]:
        """Results of an op that leaves explicit mode, in their forms, summed."""
        said = self.tried(op, operands)[1]
        forms = [goal.summed for goal in goals]
        results = self.run_automatic(op, operands, forms)
        self.noted(Site("result", op.id), "auto_axes", forms, op.results[0], op, said)
        return self.results(op, results, goals)

    def run_automatic(self, op: Op, operands: Sequence[Any], forms: Sequence[Form]) -> list[Any]:
        """Results of an op under ``jax.sharding.auto_axes``."""
        specs = tuple(form.spec for form in forms)
        try:
            made = jax.sharding.auto_axes(lambda *xs: tuple(bind_local(self.jax_ops[op.id], xs)), out_sharding=specs)
            body: Callable[..., Any] = made
            return list(body(*operands))
        except Exception as error:  # JAX has no one type of error for it
            raise _refused(op, error) from error

    def summed_operands(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """The operands with their partial sums summed."""
        told = self.goal(op.results[0]).summed if op.kind in CALLS else None
        said = self.tried(op, operands, told)[1] or self.tried(op, operands)[1]
        out = []
        for k, (x, value) in enumerate(zip(operands, op.operands, strict=True)):
            form = form_of(x)
            if form.unreduced:
                self.refused_sum(value, op, said)
                self.refused |= {value} if len(self._uses[value]) == 1 else set()
                x = self.placed(x, form.summed, Site("operand", op.id, k), value, op)
            out.append(x)
        return out

    def scaled_operands(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """The operands; what a partial sum is multiplied with is marked as reduced over the sum's axes."""
        axes = {form_of(x).unreduced for x in operands} - {frozenset()}
        if op.kind != "mul" or len(axes) != 1 or all(form_of(x).unreduced for x in operands):
            return list(operands)
        (sums,) = axes
        out = []
        for k, (x, value) in enumerate(zip(operands, op.operands, strict=True)):
            form = form_of(x)
            if not form.unreduced and not sums & {a for dim in form.dims for a in dim}:
                marked = replace(form, reduced=sums)
                try:
                    x = self.placed(x, marked, Site("operand", op.id, k), value, op)
                except RefusedError:
                    return list(operands)
            out.append(x)
        return out

    # -- regions -----------------------------------------------------------------------------------------------

    def region_op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of a loop, a branch or a `shard_map`.

        Where JAX refuses partial sums that cross a region's boundary, all of its boundary is summed.
        """
        if self.chosen is not None:
            operands = [
                self.placed(x, form_of(x), Site("operand", op.id, k), v, op)
                for k, (x, v) in enumerate(zip(operands, op.operands, strict=True))
            ]
        try:
            results = super().region_op(op, operands)
        except AutoshardError:
            raise
        except Exception as error:  # JAX has no one type of error for it
            if self.chosen is not None or op.id in self._summed_regions:
                raise _refused(op, error) from error
            self._summed_regions.add(op.id)
            self.note(f"partial sums at the boundary of {op.kind}, {op.source}, are summed inside: {_first(error)}")
            operands = [
                self.placed(x, form_of(x).summed, Site("operand", op.id, k), v, op)
                for k, (x, v) in enumerate(zip(operands, op.operands, strict=True))
            ]
            return self.region_op(op, operands)
        goals = [form_of(x) for x in results] if self.chosen is not None else [self.goal(v) for v in op.results]
        return self.results(op, results, goals)

    def block(self, block: Block, args: Sequence[Any], owner: tuple[int, int] = (PROGRAM, -1)) -> list[Any]:
        """Results of a block; a refusal of JAX is a `RefusedError`."""
        try:
            return super().block(block, args, owner)
        except AutoshardError:
            raise
        except Exception as error:  # of a barrier or a kernel
            if owner[0] != PROGRAM:
                raise
            raise _refused(None, error) from error


def _refused(op: Op | None, error: Exception) -> RefusedError:
    what = "a value" if op is None else f"{op.kind} at {op.source or 'unknown source'}"
    return RefusedError(f"{what}: JAX {jax.__version__} in explicit mode says: {_first(error)}")


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
