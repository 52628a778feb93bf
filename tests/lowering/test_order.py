"""Memory is as planned: what a compiler must not merge, put off or copy is kept in order where it would not fit.

docs/memory.md tells the four ways in which compilers take more.
"""

import json
import re
from importlib import util

import jax
import numpy as np
import pytest
from ordered_steps import arrays, gathered_for_each_use, order_within, planned, step

from autoshard.costs import fusion, liveness
from autoshard.costs.memory import holdings
from autoshard.errors import InputError
from autoshard.lowering.lower import Lowered, lower
from autoshard.program.order import NOTHING, Order, order_from_json
from autoshard.program.schedule import Use
from autoshard.program.ties import donated_ties

B = "params/layers/b"


def lowered(order: Order, *, for_each_use: bool = True) -> Lowered:
    plan = planned()
    assert plan.traced is not None
    schedule = gathered_for_each_use(plan, B) if for_each_use else plan.schedule
    return lower(plan.traced, schedule, order)


def test_nothing_is_kept_in_order_where_there_is_room() -> None:
    plan = planned()
    assert order_within(plan, plan.schedule, 2.0) == NOTHING
    assert plan.order == NOTHING and "order" not in plan.to_dict()


def test_a_copy_that_is_made_twice_is_made_again() -> None:
    """The forward and the backward loop gather a weight each, and the plan holds it in neither between."""
    plan = planned()
    (use,) = order_within(plan, gathered_for_each_use(plan, B)).again
    assert plan.program.values[use.value_in(plan.program)].name == B
    assert plan.program.ops[use.op].kind == "scan" and plan.program.ops[use.op].attrs["reverse"]
    assert not order_within(plan, plan.schedule).again  # one copy for all uses


def test_each_thing_that_is_kept_in_order_passes_a_barrier() -> None:
    """The source of the second gather, what comes before the backward loop, and the output in place of a weight."""
    order = order_within(planned(), gathered_for_each_use(planned(), B))
    found = [lowered(kept).stablehlo("tpu").count("stablehlo.optimization_barrier") for kept in (NOTHING, order)]
    assert found == [0, 3]


@pytest.mark.tpu_compiler
@pytest.mark.skipif(util.find_spec("libtpu") is None, reason="needs the package libtpu")
def test_the_tpu_compiler_merges_equal_gathers_unless_the_order_is_kept() -> None:
    """Of one gather for each loop one is left, held from the first to the last. Seen with libtpu 0.0.42.1."""
    from autoshard.simulation import tpu

    order = order_within(planned(), gathered_for_each_use(planned(), B))
    devices = tpu.devices_of(planned().machine)
    specs = jax.eval_shape(arrays)
    texts = [tpu.scheduled_text(lowered(kept).jit(devices=devices).lower(*specs)) for kept in (NOTHING, order)]
    merged, apart = (len(re.findall(r"= \w+\[4,128,32\]\S* all-gather", text)) for text in texts)
    assert merged == 1 and apart > 1


def test_what_a_loop_does_not_need_is_finished_before_it() -> None:
    """The gradient of the output head, for which the logits would be held while the layers' backward pass runs."""
    plan = planned()
    ((loop, values),) = order_within(plan, plan.schedule).finished.items()
    assert plan.program.ops[loop].attrs["reverse"]
    assert (32, 512) in {plan.program.type_of(value).shape for value in values}


def test_a_donated_weight_that_loops_read_whole_is_written_over() -> None:
    plan = planned()
    (slot,) = order_within(plan, plan.schedule).over
    assert plan.program.output_names[slot].endswith("layers/a")


def test_an_output_gathered_over_a_donated_weight_lies_beside_it_for_a_moment() -> None:
    """The TPU compiler gathers into memory of its own and copies from there; the weight is held to the end."""
    plan = planned()
    program = plan.program
    live = liveness.analyse(program, fusion.analyse(program))
    held = holdings(program, plan.schedule, live)
    (slot,) = order_within(plan, plan.schedule).over
    replaced = donated_ties(program)[slot]
    (copy,) = (h for h in held if h.copy and h.value == program.body.results[slot])
    (weight,) = (h for h in held if not h.copy and h.value == replaced)
    assert copy.bytes == weight.bytes and copy.stop == copy.start + 1 < weight.stop == live.points


def test_a_donated_weight_whose_next_value_is_not_gathered_is_free_after_its_last_reader() -> None:
    plan = planned()
    program = plan.program
    live = liveness.analyse(program, fusion.analyse(program))
    (cut,) = (v.id for v in program.values if v.name == B)
    (weight,) = (h for h in holdings(program, plan.schedule, live) if not h.copy and h.value == cut)
    assert weight.stop < live.points


def test_an_order_says_what_the_compiler_could_hold() -> None:
    plan = planned()
    order = order_within(plan, plan.schedule)
    assert order.could_hold_bytes > plan.memory.peak_bytes


@pytest.mark.parametrize("for_each_use", [False, True])
def test_results_do_not_depend_on_the_order(for_each_use: bool) -> None:
    plan = planned()
    schedule = gathered_for_each_use(plan, B) if for_each_use else plan.schedule
    order = order_within(plan, schedule)
    assert order.finished and order.over and bool(order.again) is for_each_use
    wanted = jax.tree.leaves(step(*arrays()))
    found = jax.tree.leaves(lowered(order, for_each_use=for_each_use).jit()(*arrays()))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_the_program_has_the_planned_collectives_in_any_order() -> None:
    order = order_within(planned(), gathered_for_each_use(planned(), B))
    texts = [lowered(kept).stablehlo() for kept in (NOTHING, order)]
    for name in ("all_gather", "all_reduce", "reduce_scatter"):
        assert len({text.count(f'"stablehlo.{name}"') for text in texts}) == 1


def test_constraints_are_kept_in_order_as_well() -> None:
    plan = planned()
    limited = plan_within_its_peak()
    assert limited.order
    found = jax.tree.leaves(limited.lower("constraints").jit()(*arrays()))
    for ours, theirs in zip(found, jax.tree.leaves(step(*arrays())), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
    assert limited.lower("constraints").stablehlo().count("optimization_barrier") > 0
    assert plan.lower("constraints").stablehlo().count("optimization_barrier") == 0


def plan_within_its_peak():
    """The plan, with a memory limit of what it holds."""
    from dataclasses import replace

    from autoshard.plan_record.parts import ToldLimit

    plan = planned()
    return replace(plan, memory_limit=ToldLimit(bytes=plan.memory.peak_bytes, source="stated"))


def test_a_plan_file_says_what_is_kept_in_order() -> None:
    plan = plan_within_its_peak()
    told = plan.to_dict()["order"]
    assert order_from_json(told, plan.program) == plan.order
    assert type(plan).from_dict(plan.to_dict()).order == plan.order


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"again": [{"op": 999, "slot": 0, "region": -1}]}, "Use"),
        ({"finished": [{"op": 0, "values": []}, {"op": 999, "values": []}]}, "loop 999"),
        ({"finished": [{"op": "the loop", "values": [10**6]}]}, "value 1000000"),
        ({"over": [2**20]}, "output 1048576"),
    ],
)
def test_an_order_of_another_program_is_refused(wrong: dict, word: str) -> None:
    plan = planned()
    loop = next(op.id for op, _ in plan.program.walk() if op.kind == "scan")
    wrong = json.loads(json.dumps(wrong).replace('"the loop"', str(loop)))
    told = {"could_hold_bytes": 0, "again": [], "finished": [], "over": [], **wrong}
    with pytest.raises(InputError, match=word):
        order_from_json(told, plan.program)


def test_a_damaged_order_is_refused() -> None:
    with pytest.raises(InputError, match="damaged"):
        order_from_json({"again": 3}, planned().program)


def test_uses_are_told_apart() -> None:
    assert bool(Order(again=frozenset({Use(1, 0)}))) and not bool(NOTHING)
