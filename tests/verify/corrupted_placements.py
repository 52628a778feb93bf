"""Changes of how a plan places ops and of the rules of ops, and what the plan checker says of each."""

import re

from changed_plans import Changes
from parts_of_plans import ops, placement, rule_of

corruption = Changes(of="transformer")


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
