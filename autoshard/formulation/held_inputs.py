"""When inputs and constants are held, as quantities that depend on decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoshard.costs.liveness import replaced_inputs
from autoshard.formulation.quantities import Quantity
from autoshard.program.schedule import PROGRAM, Use
from autoshard.program.ties import reused_inputs

if TYPE_CHECKING:
    from autoshard.formulation.lifetimes import Lifetimes


def hold_inputs(life: Lifetimes) -> None:
    """Hold inputs and constants as JAX has them, and the blocks that are cut out of uneven ones."""
    program, q = life.program, life.q
    outputs, reused = set(program.body.results), reused_inputs(program)
    slot_of = {value: slot for slot, value in replaced_inputs(program).items()}
    for index, value in enumerate(program.body.args):
        read = life.reads.get(value, q.constant((0, 0)))
        if index in program.host_inputs:
            if value not in life.reads:
                continue
            life.interval[value] = q.lift(lambda r: (r[0], r[1] + 1), read)
        else:
            over = _gathered_over(life, value, slot_of[value]) if value in slot_of else life.no
            if index in reused and value not in outputs:
                life.interval[value] = q.lift(lambda r, o: (0, life.points if o else r[1] + 1), read, over)
            else:
                life.interval[value] = q.constant((0, life.points))
        stop = life.copy(value, read, None)
        stored = life.layouts.stored(value)
        if stored is not None and value in life.reads:

            def cut(r: Any, stop: int, planned: Any, stored: Any) -> tuple[int, int] | None:
                return None if planned == stored else (r[0], stop)

            life.cut[value] = q.lift(cut, read, stop, life.layouts.definition(value), stored)


def stored_form(life: Lifetimes, value: int) -> Quantity:
    """The layout in which a value is held where it is defined: of an input that which JAX has it in."""
    stored = life.layouts.stored(value) if value in life.inputs else None
    return life.layouts.definition(value) if stored is None else stored


def _gathered_over(life: Lifetimes, value: int, slot: int) -> Quantity:
    """Whether the output that replaces a donated input is gathered; enters when its copy is held."""
    q, made, use = life.q, life.program.body.results[slot], Use(PROGRAM, slot)
    move, at = life.move(use), life.made[made]
    size = life.layouts.bytes(value, stored_form(life, value))

    def larger(move: Any, size: int) -> bool:
        return move is not None and move[0] < move[1] == size

    if use in life.private:
        life.private[use] = q.lift(
            lambda span, m, s: (at, at + 1) if larger(m, s) else span, life.private[use], move, size
        )
    return q.lift(lambda m, c, s: larger(c if m is None else m, s), move, life.shared_move(made), size)
