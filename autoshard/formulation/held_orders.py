"""What outputs that are copied hold, arrays that loops turn, and permutes to and from other orders of the devices, as
quantities that depend on decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoshard.costs.loop_orders import Turned, turned_arrays
from autoshard.costs.memory import returned_again
from autoshard.formulation.quantities import Quantity
from autoshard.program.schedule import PROGRAM, Use
from autoshard.program.ties import reused_inputs

if TYPE_CHECKING:
    from autoshard.formulation.lifetimes import Lifetimes, Span


def hold_copied_outputs(life: Lifetimes, add: Callable[[str, Quantity, int, Quantity], None]) -> None:
    """Hold the copies of arrays that are returned and stay all the same; see `costs.memory`."""
    end = life.points - 1
    for slot, is_input in returned_again(life.program):
        value, use = life.program.body.results[slot], Use(PROGRAM, slot)
        shared = life.shared.get(value, life.nothing) if is_input else life.nothing

        def copied(move: Any, copy: Any) -> Span | None:
            return (end, end + 1) if move is None and copy is None else None

        held = life.q.lift(copied, life.move(use), shared)
        link = life.layouts.links.get(use)
        if link is not None:
            add(f"a copy for output {slot}", held, value, life.layouts.port(link.target))


def hold_other_orders(life: Lifetimes, add: Callable[[str, Quantity, int, Quantity], None]) -> None:
    """Hold the copies that permutes to and from other orders of the devices make; see `costs.memory`."""
    program, q, end = life.program, life.q, life.points - 1
    for order in program.orders:
        if order.where == "output":
            value = program.body.results[order.index]
            link = life.layouts.links[Use(PROGRAM, order.index)]
            held = q.constant((end, end + 1))
            add("an output in its order of devices", held, value, life.layouts.port(link.target))
            continue
        value = program.body.args[order.index] if order.where == "input" else order.index
        if value not in life.reads:
            continue
        read, shared = life.reads[value], life.shared.get(value, life.nothing)
        if order.where == "value":
            own = life.interval.get(value, life.nothing)

            def once(r: Span, copy: Any, span: Any) -> Span:
                at = r[0] if copy is not None or span is None else span[0]
                return at, at + 1

            # the form is the definition where no copy is shared
            add(f"value {value} in its order", q.lift(once, read, shared, own), value, life.layouts.form(value))
            continue
        freed = order.index in reused_inputs(program) and value not in program.body.results
        brief = freed or order.index in program.host_inputs

        def beside(r: Span, copy: Any, brief: bool = brief) -> Span:
            return r[0], r[0] + 1 if brief or copy is not None else r[1] + 1

        add(f"input {order.index} in its order", q.lift(beside, read, shared), value, life.layouts.definition(value))


def hold_turned_arrays(life: Lifetimes, add: Callable[[str, Quantity, int, Quantity], None]) -> None:
    """Hold the copies of arrays that loops have in another order of dimensions; see `costs.loop_orders`."""
    for turned in turned_arrays(life.program, life.fusion):
        form = life.layouts.definition(turned.value)

        def when(
            move: Any, copy: Any, form: Any, turned: Turned = turned, span: Span = turned.span(life.points, life.span)
        ) -> Span | None:
            return span if move is None and copy is None and turned.is_turned(form, life.mesh) else None

        held = life.q.lift(when, life.move(turned.use), life.shared.get(turned.value, life.nothing), form)
        add(turned.name(life.program), held, turned.value, form)
