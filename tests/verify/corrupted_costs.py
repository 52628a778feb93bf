"""Changes of what a plan claims to cost and to hold, and what the plan checker says of each."""

from changed_plans import Changes
from parts_of_plans import collective

corruption = Changes(of="transformer")


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
