"""A plan that was changed by hand is caught, every time; one that was not passes."""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autoshard.verify import check_plan

MESH = {"x": 2, "y": 4}
Json = dict[str, Any]


@pytest.fixture(scope="session")
def transformer() -> Json:
    """A two-layer decoder (scan and remat) with pins and a memory limit that binds."""
    from autoshard.api import verbs as api
    from autoshard.constraints import Pin
    from autoshard.models import build

    model = build(
        "transformer",
        layers=2,
        d_model=64,
        d_ff=128,
        heads=4,
        kv_heads=2,
        vocab=128,
        batch=8,
        seq=16,
        scan=True,
        remat=True,
    )
    pins = [
        Pin("batch/*", '[{"x"}, {}]'),
        Pin("state/params/layers/w_up", '[{}, {?}, {"y", ?}]'),
        Pin("state/params/head", '[{?}, {?}] replicated={"x"}'),
        Pin("@logits", '[{"x"}, {}, {?}]'),
        Pin("out/1/loss", "[]"),
    ]
    plan = api.plan(
        model.step, *model.specs, mesh=MESH, hardware="cpu_sim", donate_argnums=model.donate_argnums,
        argnames=model.argnames, constraints=pins, memory_limit=1_000_000, baselines=["data_parallel"],
        roles=model.logical_axes,
    )  # fmt: skip
    return _json(plan.to_dict())


@pytest.fixture(scope="session")
def mlp() -> Json:
    from autoshard.api import verbs as api
    from autoshard.constraints import Pin
    from autoshard.models import build

    model = build("mlp")
    pins = [Pin("batch/x", '[{"x", ?}, {?}]'), Pin("state/params/layers/0/w", '[{}, {"y"}]')]
    plan = api.plan(
        model.step, *model.specs, mesh=MESH, hardware="cpu_sim", donate_argnums=model.donate_argnums,
        argnames=model.argnames, constraints=pins,
    )  # fmt: skip
    return _json(plan.to_dict())


@pytest.fixture(scope="session")
def looked_up() -> Json:
    """A softmax over a cut dimension (combined by max) and a lookup in a cut table; nothing donated."""
    import jax
    import jax.numpy as jnp

    from autoshard.api import verbs as api
    from autoshard.constraints import Pin

    def f(table, ids, x):
        return jnp.sum(table[ids], axis=0), jax.nn.softmax(x)

    specs = [((64, 32), jnp.float32), ((16,), jnp.int32), ((16, 4096), jnp.float32)]
    plan = api.plan(
        f, *(jax.ShapeDtypeStruct(*s) for s in specs), mesh=MESH, hardware="cpu_sim", argnames=["table", "ids", "x"],
        constraints=[Pin("table", '[{"y"}, {}]'), Pin("ids", '[{"x"}]'), Pin("x", '[{"x"}, {"y"}]')],
    )  # fmt: skip
    return _json(plan.to_dict())


def _json(data: Any) -> Any:
    import json

    return json.loads(json.dumps(data))


def test_plans_as_made_pass(transformer, mlp, looked_up):
    for plan in (transformer, mlp, looked_up):
        assert [str(f) for f in check_plan(plan).findings] == []


# -- finding one's way in a plan ---------------------------------------------------------------------


def ops(plan: Json, kind: str = "") -> Iterator[Json]:
    def visit(block: Json) -> Iterator[Json]:
        for op in block["ops"]:
            yield op
            for region in op["regions"]:
                yield from visit(region)

    return (op for op in visit(plan["program"]["body"]) if op["kind"].startswith(kind))


def uses(plan: Json, step: str = "") -> Iterator[Json]:
    return (u for u in plan["schedule"]["uses"] if not step or any(s["kind"] == step for s in u["steps"]))


def first_step(plan: Json, kind: str) -> Json:
    return next(s for u in uses(plan, kind) for s in u["steps"] if s["kind"] == kind)


def collective(plan: Json, kind: str) -> Json:
    return next(c for c in plan["collectives"] if c["kind"] == kind)


def value(plan: Json, name: str) -> int:
    return next(v["id"] for v in plan["program"]["values"] if v["name"] == name)


def layout(plan: Json, name: str) -> Json:
    return plan["schedule"]["definitions"][str(value(plan, name))]


def placement(plan: Json, test: Callable[[Json], bool]) -> Json:
    return next(p for p in plan["schedule"]["placements"].values() if test(p))


def rule_of(plan: Json, kind: str, has: str = "") -> Json:
    return next(op["rule"] for op in ops(plan, kind) if has in op["rule"]["text"])


# -- corruptions -------------------------------------------------------------------------------------

CASES: list[Any] = []


def corruption(expected: str, of: str = "transformer") -> Callable[[Callable[[Json], None]], Callable[[Json], None]]:
    """Register a change of the plan `of`, and what the checker must say about it (a regular expression)."""

    def register(change: Callable[[Json], None]) -> Callable[[Json], None]:
        CASES.append(pytest.param(of, change, expected, id=change.__name__))
        return change

    return register


# layouts and their laws


@corruption(r"layouts: input .* is a partial sum")
def input_becomes_a_partial_sum(p):
    layout(p, "state/params/final_norm")["unreduced"] = [0]


@corruption(r"layouts: definition of .*uses \"x\" twice")
def axis_twice_in_a_tensor(p):
    layout(p, "batch/tokens")["dims"] = [[0], [0]]


@corruption(r"layouts: definition of .*dimension 0 of .* of size 2 is cut in 4 parts")
def dimension_cut_unevenly(p):
    layout(p, "state/params/layers/wq")["dims"] = [[0, 1], [], [], []]


@corruption(r"layouts: definition of .*has 2 dimensions, its layout 3")
def layout_of_another_rank(p):
    layout(p, "batch/tokens")["dims"].append([])


@corruption(r"layouts: definition of .*names atom 7")
def layout_names_an_atom_that_is_none(p):
    layout(p, "batch/tokens")["dims"][0] = [7]


@corruption(r"layouts: .* has no layout in schedule.definitions")
def definition_removed(p):
    del p["schedule"]["definitions"][str(value(p, "state/params/head"))]


@corruption(r"layouts: value 99999 has a layout but is defined nowhere")
def definition_of_nothing(p):
    p["schedule"]["definitions"]["99999"] = {"dims": [], "unreduced": []}


@corruption(r"uses: .*state/params/final_norm arrives in .*, its placement wants")
def wrong_sharding_of_an_input(p):
    held = layout(p, "state/params/final_norm")
    held["dims"] = [[1]] if held["dims"] != [[1]] else [[0]]


@corruption(r"layouts: .* is defined in .*, the placement of dot_general:\d+ gives")
def wrong_sharding_of_a_result(p):
    op = next(op for op in ops(p, "dot_general") if p["schedule"]["definitions"][str(op["results"][0])]["dims"][0])
    p["schedule"]["definitions"][str(op["results"][0])]["dims"][0] = []


@corruption(r"layouts: shardings\[batch/tokens\] is")
def printed_sharding_differs(p):
    p["shardings"]["batch/tokens"] = "[{}, {}]"


@corruption(r"layouts: .*stacked result .* is cut along its stack")
def stack_of_a_scan_is_cut(p):
    scan = next(o for o in ops(p, "scan") if len(o["results"]) > o["attrs"]["num_carry"])
    stacked = p["schedule"]["definitions"][str(scan["results"][-1])]
    used = {a for d in stacked["dims"] for a in d}
    stacked["dims"] = (
        [[0], *([a for a in d if a != 0] for d in stacked["dims"][1:])] if 0 in used else [[0], *stacked["dims"][1:]]
    )


@corruption(r"layouts: .* is defined in .*, carry \d+ of scan:\d+ is")
def carry_leaves_in_another_layout(p):
    scan = next(o for o in ops(p, "scan") if o["attrs"]["num_carry"] and o["attrs"]["length"] == 2)
    for v in scan["results"][: scan["attrs"]["num_carry"]]:
        held = p["schedule"]["definitions"][str(v)]
        if len(held["dims"]) >= 2:
            held["dims"] = [[], []] + held["dims"][2:] if any(held["dims"][:2]) else [[0], []] + held["dims"][2:]
            return
    raise AssertionError("no carry to change")


@corruption(r"layouts: .*block argument .* is a partial sum")
def loop_constant_becomes_a_partial_sum(p):
    scan = next(o for o in ops(p, "scan") if o["attrs"]["num_consts"])
    p["schedule"]["definitions"][str(scan["regions"][0]["args"][0])]["unreduced"] = [0]


# placements and rules


@corruption(r"placements: .*uses \"x\" twice")
def axis_on_two_factors(p):
    found = placement(p, lambda q: any(0 in f for f in q["factors"]) and sum(not f for f in q["factors"]))
    next(f for f in found["factors"] if not f).append(0)


@corruption(r"placements: dot_general:\d+ .* has no placement")
def placement_removed(p):
    del p["schedule"]["placements"][str(next(ops(p, "dot_general"))["id"])]


@corruption(r"placements: op 99999 is placed, but there is no such op")
def placement_of_nothing(p):
    p["schedule"]["placements"]["99999"] = {"factors": [], "passes": [], "zeros": []}


@corruption(r"placements: .*it cuts factor \d+ by .*, which must be whole")
def whole_factor_is_cut(p):
    op = next(o for o in ops(p) if o["rule"] and "need_replication" in o["rule"]["text"])
    names = re.findall(r"(\w+)=\d+", op["rule"]["text"].split("{", 1)[1].split("}")[0])
    marked = re.search(r"need_replication=\{(\w+)", op["rule"]["text"])[1]
    factors = [[] for _ in names]
    factors[names.index(marked)] = [0]
    p["schedule"]["placements"][str(op["id"])] = {"factors": factors, "passes": [], "zeros": []}


@corruption(r"placements: .*factor \d+ of size \d+ is cut in 8 parts")
def factor_cut_too_finely(p):
    op = next(o for o in ops(p, "dot_general") if re.search(r"=[24]\b", o["rule"]["text"]))
    sizes = [int(n) for n in re.findall(r"=(\d+)", op["rule"]["text"].split("{", 1)[1].split("}")[0])]
    factors = [[] for _ in sizes]
    factors[next(k for k, n in enumerate(sizes) if n in (2, 4))] = list(range(len(p["mesh"]["atoms"])))
    p["schedule"]["placements"][str(op["id"])]["factors"] = factors


@corruption(r"placements: .*a partial sum over \"x\" passes an op that is not linear that way")
def partial_sum_passes_a_non_linear_op(p):
    placed = p["schedule"]["placements"][str(next(ops(p, "exp"))["id"])]
    placed["factors"] = [[] for _ in placed["factors"]]
    placed["passes"] = [[0, 0]]


@corruption(r"rules: exp:\d+ .*exp is not linear")
def exp_declared_linear(p):
    rule_of(p, "exp")["linear"] = [[0]]


@corruption(r"rules: add:\d+ .*add is linear in operands \[0, 1\], not in \[0\]")
def addition_declared_linear_in_one_operand(p):
    literals = {v["id"] for v in p["program"]["values"] if v["origin"] == "literal"}
    op = next(o for o in ops(p, "add") if o["rule"]["linear"] and not literals & set(o["operands"]))
    op["rule"]["linear"] = [[0]]


@corruption(r"placements: .*takes a result for zeros over")
def a_result_taken_for_zeros(p):
    placed = p["schedule"]["placements"][str(next(ops(p, "dot_general"))["id"])]
    placed["factors"] = [[] for _ in placed["factors"]]
    placed["zeros"] = [0]


@corruption(r"rules: dot_general:\d+ .*is neither a reduction nor kept whole")
def reduction_of_a_matmul_forgotten(p):
    rule = rule_of(p, "dot_general", " reduction=")
    rule["text"] = re.sub(r" reduction=\{[^}]*\}", "", rule["text"])


@corruption(r"rules: dot_general:\d+ .*has factors that multiply to")
def factor_of_another_size(p):
    rule = rule_of(p, "dot_general")
    rule["text"] = re.sub(r"\{i=(\d+)", lambda m: "{i=" + str(2 * int(m[1])), rule["text"])


@corruption(r"rules: reduce_max:\d+ .*partial results combined by add; reduce_max has max", of="looked_up")
def maximum_combined_by_addition(p):
    rule = rule_of(p, "reduce_max")
    rule["text"] = rule["text"].replace(" combiner=max", "")


@corruption(r"rules: .*operand 0 of a pointwise op is not factored as its result")
def pointwise_op_transposed_in_its_rule(p):
    op = next(o for o in ops(p, "exp") if len(o["operands"]) == 1 and "j=" in o["rule"]["text"])
    shape = p["program"]["values"][op["operands"][0]]["shape"]
    names = "ijklmn"[: len(shape)]
    given = ", ".join(names)
    fresh = ", ".join(f"{n}={s}" for n, s in zip(names, shape, strict=True))
    op["rule"]["text"] = f"([{given}])->([{given.replace('i', 'z')}]) {{{fresh}, z={shape[0]}}} need_replication={{i}}"


@corruption(r"rules: .*cannot be read")
def rule_garbled(p):
    rule_of(p, "dot_general")["text"] = "([i, j->"


@corruption(r"uses: operand 0 of gather:\d+: table arrives in .*, its placement wants", of="looked_up")
def gather_placed_elsewhere(p):
    op = next(ops(p, "gather"))
    p["schedule"]["placements"][str(op["id"])]["factors"] = [
        [] for _ in p["schedule"]["placements"][str(op["id"])]["factors"]
    ]


# reshards and uses


@corruption(r"uses: operand .* arrives in .*, its placement wants")
def step_removed(p):
    found = next(u for u in uses(p) if len(u["steps"]) == 1 and u["op"] >= 0)
    found["steps"] = []


@corruption(r"uses: operand .* arrives in .*, its placement wants")
def step_added(p):
    found = next(u for u in uses(p, "slice") if u["op"] >= 0 and u["steps"][-1]["kind"] == "slice")
    step = found["steps"][-1]
    found["steps"].append({"kind": "all_gather", "atoms": step["atoms"], "dim": step["dim"], "to_dim": -1})


@corruption(r"reshards: .*all_gather over .*the blocks do not follow each other")
def gather_of_what_is_not_cut(p):
    step = first_step(p, "all_gather")
    step["dim"] = step["dim"] + 1 if step["dim"] == 0 else step["dim"] - 1


@corruption(r"reshards: .*reduce_scatter over .*is no partial sum")
def reduction_of_what_is_whole(p):
    found = next(u for u in uses(p, "slice") if u["steps"][0]["kind"] == "slice")
    found["steps"][0]["kind"] = "reduce_scatter"


@corruption(r"reshards: .*slice over .*do not hold the same data")
def slice_of_what_is_cut_already(p):
    found = next(u for u in uses(p, "slice") if u["steps"][0]["kind"] == "slice")
    found["steps"].insert(0, dict(found["steps"][0]))


@corruption(r"reshards: .*there is no step 'teleport'")
def unknown_step(p):
    first_step(p, "all_gather")["kind"] = "teleport"


@corruption(r"uses: .*: the schedule does not say how it gets")
def use_removed(p):
    p["schedule"]["uses"].remove(next(u for u in uses(p) if u["op"] >= 0))


@corruption(r"uses: output .*: the schedule does not say how it gets")
def use_by_an_output_removed(p):
    p["schedule"]["uses"].remove(next(u for u in uses(p) if u["op"] == -1))


@corruption(r"uses: the schedule has a use \d+/99/-1 that the program lacks")
def use_of_nothing(p):
    next(u for u in uses(p) if u["op"] >= 0)["slot"] = 99


@corruption(r"uses: .* is there twice")
def use_there_twice(p):
    p["schedule"]["uses"].append(dict(p["schedule"]["uses"][-1]))


@corruption(r"(reshards|uses): operand .*w_up")
def shared_form_removed(p):
    del p["schedule"]["shared"][next(iter(p["schedule"]["shared"]))]


@corruption(r"reshards: the shared form of .*do not follow each other")
def shared_form_over_other_atoms(p):
    step = next(s for steps in p["schedule"]["shared"].values() for s in steps)
    step["atoms"] = [1] if step["atoms"] == [0] else [0]


@corruption(r"ties: output out/0/params/head takes the place of the donated input state/params/head")
def donated_state_comes_back_elsewhere(p):
    names = p["program"]["output_names"]
    slot = names.index("out/0/params/head")
    use = next(u for u in p["schedule"]["uses"] if u["op"] == -1 and u["slot"] == slot)
    head = p["program"]["body"]["results"][slot]
    held = p["schedule"]["definitions"][str(head)]["dims"]
    if use["steps"]:
        use["steps"].pop()
    else:
        dim = next(d for d in range(2) if held[d])
        use["steps"] = [{"kind": "all_gather", "atoms": held[dim], "dim": dim, "to_dim": -1}]


@corruption(r"layouts: output .* is handed back as a partial sum", of="looked_up")
def output_is_a_partial_sum(p):
    found = next(
        u for u in uses(p) if u["op"] == -1 and u["steps"] and u["steps"][0]["kind"] in ("all_reduce", "reduce_scatter")
    )
    found["steps"] = []


# mesh, machine, program


@corruption(r"mesh: mesh.atoms .* are not in the order")
def atoms_swapped(p):
    p["mesh"]["atoms"].reverse()


@corruption(r"mesh: mesh.atoms: the parts of axis 'y' multiply to 2")
def atom_too_small(p):
    p["mesh"]["atoms"] = ["x", "y:(1)2"]


@corruption(r"mesh: the machine is placed for axes")
def mesh_of_another_size(p):
    p["mesh"]["axes"]["y"] = 8


@corruption(r"mesh: mesh.device_ids is no permutation")
def devices_listed_twice(p):
    p["mesh"]["device_ids"] = [0, 0, 1, 2, 3, 4, 5, 6]


@corruption(r"collectives: .*the plan says .* seconds, it is")
def machine_made_faster(p):
    text = _json(p["hardware"]["machine"])

    def faster(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: v * 2 if k == "value" and isinstance(v, float) else faster(v) for k, v in node.items()}
        return [faster(v) for v in node] if isinstance(node, list) else node

    p["hardware"]["machine"] = faster(text)


@corruption(r"program: .* uses .* before or outside of where it is defined")
def ops_in_another_order(p):
    p["program"]["body"]["ops"].reverse()


@corruption(r"program: operand \d+ of scan:\d+: .* does not fit")
def scan_of_another_length(p):
    next(ops(p, "scan"))["attrs"]["length"] += 1


@corruption(r"program: two ops have the id")
def two_ops_with_one_id(p):
    first, second = list(ops(p))[:2]
    second["id"] = first["id"]


# statements


@corruption(r"statements: pin batch/\*: .* is broken: batch/to")
def pin_broken(p):
    statement = next(s for s in p["statements"] if s["kind"] == "pin" and s["pattern"] == "batch/*")
    statement["sharding"] = '[{}, {"x"}]'


@corruption(r"statements: .*is closed, but cut further")
def closed_dimension_cut_further(p):
    statement = next(s for s in p["statements"] if s["kind"] == "pin" and s["pattern"] == "batch/*")
    statement["sharding"] = "[{}, {}]"


@corruption(r"statements: pin state/params/layers/w_up.* is broken")
def pinned_replicated_axis_cuts(p):
    statement = next(s for s in p["statements"] if s["pattern"] == "state/params/layers/w_up")
    statement["sharding"] = '[{?}, {?}, {?}] replicated={"y"}'


@corruption(r"statements: pin batch/\*.* addresses batch/.*, which the statement leaves out")
def pin_speaks_of_fewer_values(p):
    next(s for s in p["statements"] if s["pattern"] == "batch/*")["values"].pop()


@corruption(r"statements: pin @logits.* is broken")
def pin_on_an_intermediate_broken(p):
    statement = next(s for s in p["statements"] if s["pattern"] == "@logits")
    statement["sharding"] = '[{"y"}, {}, {}]'


@corruption(r"statements: memory limit \d+ bytes: a device holds")
def memory_over_the_limit(p):
    next(s for s in p["statements"] if s["kind"] == "memory_limit")["bytes"] = p["memory"]["peak_bytes"] - 1


# collectives and costs


@corruption(r"collectives: .*the plan says \d.* bytes, it is")
def bytes_understated(p):
    collective(p, "all_gather")["bytes"] /= 2


@corruption(r"collectives: .*the plan says .* seconds, it is")
def seconds_understated(p):
    collective(p, "reduce_scatter")["seconds"] *= 0.999


@corruption(r"collectives: .*the plan says .* times, it is")
def executions_understated(p):
    collective(p, "all_gather")["times"] = 0.5


@corruption(r"collectives: .*the plan says .* s in all, it is")
def total_understated(p):
    collective(p, "all_gather")["total_s"] *= 0.5


@corruption(r"collectives: .*the plan lists none; its layouts need")
def collective_left_out(p):
    p["collectives"].remove(collective(p, "reduce_scatter"))


@corruption(r"collectives: .*the plan lists .*; its layouts need")
def collective_too_many(p):
    p["collectives"].append(dict(p["collectives"][0]))


@corruption(r"collectives: .*the plan lists all_gather over .*; its layouts need reduce_scatter")
def collective_of_another_kind(p):
    collective(p, "reduce_scatter")["kind"] = "all_gather"


@corruption(r"collectives: .*the plan lists all_gather over z; its layouts need all_gather over")
def collective_over_other_axes(p):
    collective(p, "all_gather")["axes"] = "z"


@corruption(r"cost: cost.compute_s is")
def compute_understated(p):
    p["cost"]["compute_s"] *= 1 - 1e-6


@corruption(r"cost: cost.communication_s is")
def communication_understated(p):
    p["cost"]["communication_s"] *= 0.9


@corruption(r"cost: cost.by_kind_s\[all_gather\] is")
def communication_by_kind_wrong(p):
    p["cost"]["by_kind_s"]["all_gather"] *= 0.9


@corruption(r"memory: memory.fits is False in the plan; it follows as True")
def memory_verdict_wrong(p):
    p["memory"]["fits"] = False


@corruption(r"memory: memory.allocation_bytes is \d+ in the plan")
def headroom_left_out(p):
    p["memory"]["allocation_bytes"] = p["memory"]["peak_bytes"]


@corruption(r"cost: cost.step_time.resources_s\[memory\] is")
def memory_busy_understated(p):
    p["cost"]["step_time"]["resources_s"]["memory"] *= 0.9


@corruption(r"cost: cost.step_time.lower_s is")
def lower_bound_of_the_step_overstated(p):
    p["cost"]["step_time"]["lower_s"] *= 1.1


@corruption(r"cost: cost.everything_overlaps_s is")
def overlapping_step_overstated(p):
    p["cost"]["everything_overlaps_s"] *= 1.1


@corruption(r"cost: cost.step_time.estimate_s .* lies outside of")
def estimate_above_the_upper_bound(p):
    p["cost"]["step_time"]["estimate_s"] = 2 * p["cost"]["step_time"]["upper_s"]


@corruption(r"cost: cost.step_time.mfu.upper is")
def utilisation_overstated(p):
    p["cost"]["step_time"]["mfu"]["upper"] *= 1.5


@corruption(r"cost: cost.step_time.hardware_flop is")
def executed_work_understated(p):
    p["cost"]["step_time"]["hardware_flop"] *= 0.5


@corruption(r"cost: cost.step_time.groups: all_gather over .* adds up to")
def a_group_of_collectives_left_out(p):
    p["cost"]["step_time"]["groups"] = [g for g in p["cost"]["step_time"]["groups"] if g["kind"] != "all_gather"]


@corruption(r"cost: cost.step_time.groups: .* is called .* against its own figures")
def verdict_turned(p):
    group = p["cost"]["step_time"]["groups"][0]
    group["verdict"] = "compute" if group["verdict"] == "communication" else "communication"


@corruption(r"cost: cost.memory_price_s is")
def memory_price_wrong(p):
    p["cost"]["memory_price_s"] += 1e-7


@corruption(r"cost: cost.rounding_s is")
def rounding_made_large(p):
    p["cost"]["rounding_s"] = 1e-3


@corruption(r"cost: objective_s is")
def objective_understated(p):
    p["objective_s"] *= 0.99


@corruption(r"bound: bound_s .* is above objective_s")
def bound_above_the_objective(p):
    p["bound_s"] = p["objective_s"] * 1.01


@corruption(r"bound: gap is 0.0 in the plan; objective_s")
def gap_understated(p):
    p["gap"] = 0.0


@corruption(r"bound: status is 'optimal', but objective_s")
def optimal_with_a_gap(p):
    p["status"], p["bound_s"], p["gap"] = "optimal", p["objective_s"] / 2, 0.5


@corruption(r"bound: baseline .* costs .* less than bound_s")
def baseline_below_the_bound(p):
    p["baselines"][0] |= {"objective_s": p["bound_s"] / 2, "peak_bytes": 1000}


# memory


@corruption(r"memory: memory.peak_bytes is .* the simulation gives")
def peak_understated(p):
    p["memory"]["peak_bytes"] -= 1


@corruption(r"memory: memory.where is")
def peak_elsewhere(p):
    p["memory"]["where"] = "the start"


@corruption(r"memory: memory.held does not list")
def held_value_left_out(p):
    p["memory"]["held"].pop(0)


# damage


@corruption(r"file: the plan is damaged: KeyError: 'schedule'")
def schedule_missing(p):
    del p["schedule"]


@corruption(r"file: cost is damaged")
def cost_is_no_number(p):
    p["cost"]["rounding_s"] = "little"


@corruption(r"file: this is not a plan")
def of_another_version(p):
    p["version"] = 99


def test_there_are_ninety_kinds_of_corruption_and_no_name_twice():
    """docs/verification.md states the count."""
    assert len(CASES) == len({case.id for case in CASES}) == 90


@pytest.mark.parametrize(("of", "change", "expected"), CASES)
def test_a_changed_plan_is_caught(of, change, expected, request):
    plan = copy.deepcopy(request.getfixturevalue(of))
    change(plan)
    found = [str(f) for f in check_plan(plan).findings]
    assert any(re.search(expected, line) for line in found), found[:10]
