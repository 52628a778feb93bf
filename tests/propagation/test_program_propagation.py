"""Propagation over programs: worked examples, priorities, groups, regions, constants, provenance (D, I to M)."""

import re

import pytest

from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Program
from autoshard.propagation import Propagated, propagate
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

XY = Mesh.from_dict({"x": 2, "y": 4, "z": 2})


def plain(text: object) -> str:
    return re.sub(r'["\s]', "", str(text))


def run(program: Program, mesh: Mesh, given: dict[str, str], **options) -> dict[str, str]:
    found = result(program, mesh, given, **options)
    return {v.name: plain(found.values[v.id]) for v in program.values if v.id in found.values}


def result(program: Program, mesh: Mesh, given: dict[str, str], **options) -> Propagated:
    ids = {v.name: v.id for v in program.values}
    if "groups" in options:
        options["groups"] = [[ids[n] for n in g.split()] for g in options["groups"]]
    return propagate(program, mesh, {ids[n]: TensorSharding.from_text(t) for n, t in given.items()}, **options)


DOT = "([i, k], [k, j])->([i, j]) {{i={i}, j={j}, k={k}}} reduction={{k}}"


def dot(i: int, j: int, k: int) -> str:
    return DOT.format(i=i, j=j, k=k)


def test_the_worked_dot(build) -> None:  # S2.27
    build.input("a", 8, 32)
    build.input("b", 32, 16)
    build.op("dot_general", "a b", "c", dot(8, 16, 32))
    mesh = Mesh.from_dict({"batch": 4, "tensor": 4})
    found = run(build.program("c"), mesh, {"a": "[{batch,?},{tensor,?}]"})
    assert found == {"a": "[{batch,?},{tensor,?}]", "b": "[{tensor,?},{?}]", "c": "[{batch,?},{?}]"}


def test_the_worked_reshape(build) -> None:  # S2.28
    build.input("a", 16, 4)
    build.op("reshape", "a", "b", "([ij, k])->([i, jk]) {i=8, j=2, k=4}")
    found = run(build.program("b"), Mesh.from_dict({"x": 4, "y": 4}), {"a": "[{x,y,?},{?}]"})
    assert found["b"] == "[{x,y:(1)2,?},{y:(2)2,?}]"


def test_conservative_mode_passes_no_sub_axes(build) -> None:
    build.input("a", 16, 4)
    build.op("reshape", "a", "b", "([ij, k])->([i, jk]) {i=8, j=2, k=4}")
    mesh = Mesh.from_dict({"x": 4, "y": 4})
    assert run(build.program("b"), mesh, {"a": "[{x,y,?},{?}]"}, conservative=True)["b"] == "[{x,?},{?}]"


def test_factors_tell_where_an_op_runs(build) -> None:
    build.input("a", 8, 32)
    build.input("b", 32, 16)
    build.op("dot_general", "a b", "c", dot(8, 16, 32))
    mesh = Mesh.from_dict({"batch": 4, "tensor": 4})
    found = result(build.program("c"), mesh, {"a": "[{batch,?},{tensor,?}]"}).factors[0]
    assert [[a.name for a in f] for f in found] == [["batch"], [], ["tensor"]]


def test_batch_and_tensor_parallel_mlp(build) -> None:  # S2.36, S2.37, S2.38
    build.input("x", 16, 128)
    build.input("w1", 128, 256)
    build.input("w2", 256, 10)
    build.op("dot_general", "x w1", "h", dot(16, 256, 128))
    build.op("dot_general", "h w2", "o", dot(16, 10, 256))
    mesh = Mesh.from_dict({"batch": 4, "model": 2})
    program = build.program("o")
    found = run(program, mesh, {"x": "[{batch,?},{?}]", "w1": "[{?},{model,?}]"})
    assert found["h"] == "[{batch,?},{model,?}]"
    assert found["w2"] == "[{model,?},{?}]"
    assert found["o"] == "[{batch,?},{?}]"
    batch_only = run(program, mesh, {"x": "[{batch,?},{?}]"})
    assert batch_only["o"] == "[{batch,?},{?}]"
    assert batch_only["w1"] == "[{?},{?}]"


def chain(build, shape=(4, 8)) -> Program:
    build.input("a", *shape)
    build.input("b", *shape)
    build.elementwise("add", "a b", "c")
    return build.program("c")


def test_closed_dimensions_and_given_axes_stay(build) -> None:  # S0.7, S0.8
    found = run(chain(build), XY, {"a": "[{x}, {z,?}]", "b": "[{y,?}, {}]"})
    assert found["a"] == "[{x},{z,?}]"
    assert found["b"] == "[{y,?},{}]"


def test_no_sharding_is_open_and_empty(build) -> None:  # S0.9
    program = chain(build)
    assert run(program, XY, {"a": "[{x,?},{?}]"}) == run(program, XY, {"a": "[{x,?},{?}]", "b": "[{?},{?}]"})


def test_an_explicitly_replicated_axis_is_never_taken(build) -> None:  # S0.10, S2.2
    found = run(chain(build), XY, {"a": "[{x},{?}] replicated={y}", "b": "[{?},{y,?}]"})
    assert found["a"] == "[{x},{?}]replicated={y}"
    found = run(chain(type(build)()), XY, {"a": "[{x},{?}] replicated={y}", "b": "[{?},{z,?}]"})
    assert found["a"] == "[{x},{z,?}]replicated={y}"


def test_priorities_settle_what_an_unannotated_tensor_gets(build) -> None:  # S2.4, S0.50
    found = run(chain(build), XY, {"a": "[{x}p1,{z}p0]", "b": "[{y}p0,{z}p0]"})
    assert found["c"] == "[{y,?},{z,?}]"
    assert found["a"] == "[{x},{z}]"


def test_gaps_in_priorities_mean_nothing(build) -> None:  # S0.45
    program = chain(build)
    one = run(program, XY, {"a": "[{x,?}p1,{?}]", "b": "[{y,?},{?}]"})
    two = run(program, XY, {"a": "[{x,?}p7,{?}]", "b": "[{y,?},{?}]"})
    assert one == two


def test_equal_priorities_are_none(build) -> None:  # S0.51
    program = chain(build)
    one = run(program, XY, {"a": "[{x,?}p2,{?}p2]", "b": "[{?}p2,{y,?}p2]"})
    two = run(program, XY, {"a": "[{x,?},{?}]", "b": "[{?},{y,?}]"})
    assert one == two


def test_a_later_dimension_is_not_overwritten_and_grows_later(build) -> None:  # S0.48, S0.49
    found = run(chain(build), XY, {"a": "[{?}, {z,?}p2]", "b": "[{?}, {y,?}]"})
    assert found["a"].split(",{")[1].startswith("z")


def test_rounds_show_the_program_after_each_priority(build) -> None:  # S0.52, S2.5
    program = chain(build)
    ids = {v.name: v.id for v in program.values}
    given = {"a": "[{x,?}p1,{z,?}p0]", "b": "[{?},{?}]"}
    cut = {ids[n]: TensorSharding.from_text(t).up_to_priority(0) for n, t in given.items()}
    first = propagate(program, XY, cut)
    assert plain(first.values[ids["c"]]) == "[{?},{z,?}]"
    assert run(program, XY, given)["c"] == "[{x,?},{z,?}]"


def test_elementwise_comes_before_matmul(build) -> None:  # S2.49, S0.66
    build.input("a", 8, 8)
    build.input("b", 8, 8)
    build.input("e", 8, 8)
    build.op("dot_general", "a b", "c", dot(8, 8, 8))
    build.elementwise("add", "c e", "d")
    mesh = Mesh.from_dict({"x": 2, "y": 2})
    found = run(build.program("d"), mesh, {"a": "[{x,?},{?}]", "e": "[{y,?},{?}]"}, strategy="op-priority")
    assert found["c"] == "[{y,?},{?}]"


def test_members_of_a_group_get_one_sharding(build) -> None:  # S4.8, S4.9, S4.10, S2.8
    build.input("a", 8, 2)
    build.input("b", 8, 2)
    build.elementwise("neg", "b", "c")
    program = build.program("c")
    assert run(program, XY, {"a": "[{x},{z}]"})["b"] == "[{?},{?}]"
    assert run(program, XY, {"a": "[{x},{z}]"}, groups=["a b"])["b"] == "[{x},{z}]"
    assert run(program, XY, {"a": "[{x},{z}]"}, groups=["a c"])["b"] == "[{x,?},{z,?}]"


def test_a_group_without_given_sharding_is_tied_by_what_reaches_it(build) -> None:  # S4.11
    build.input("a", 8, 4)
    build.elementwise("neg", "a", "b")
    build.input("c", 8, 4)
    found = run(build.program("b c"), XY, {"a": "[{x,?},{?}]"}, groups=["b c"])
    assert found["c"] == "[{x,?},{?}]"


def test_faulty_groups_are_refused(build) -> None:  # S4.12
    build.input("a", 8, 4)
    build.input("b", 8, 2)
    build.input("c", 8, 4)
    program = build.program("a b c")
    with pytest.raises(ShardingError, match=r"a \[8, 4\], b \[8, 2\]"):
        run(program, XY, {}, groups=["a b"])
    with pytest.raises(ShardingError, match="a and c are in one sharding group"):
        run(program, XY, {"a": "[{x},{}]", "c": "[{},{x}]"}, groups=["a c"])


def loop(build) -> Program:
    """While with carried 32x96 and a counter (S2.41)."""
    build.input("n", 4)
    build.input("x", 32, 96)
    cond = build.block({"cn": (4,), "cx": (32, 96)}, lambda: None, "cn")
    body = build.block({"bn": (4,), "bx": (32, 96)}, lambda: build.elementwise("tanh", "bx", "by"), "bn by")
    build.region("while", "n x", {"rn": (4,), "rx": (32, 96)}, (cond, body), cond_nconsts=0, body_nconsts=0, trips=None)
    return build.program("rn rx")


def test_a_loop_has_one_edge_per_carried_value(build) -> None:  # S2.39 to S2.42
    found = run(loop(build), XY, {"x": "[{x,?},{?}]"})
    assert {found[n] for n in ("x", "cx", "bx", "by", "rx")} == {"[{x,?},{?}]"}
    assert {found[n] for n in ("n", "cn", "bn", "rn")} == {"[{?}]"}


def test_a_loop_is_passed_backward_and_sideways(build) -> None:  # S2.26
    found = run(loop(build), XY, {"rx": "[{?},{y,?}]"})
    assert found["x"] == found["by"] == "[{?},{y,?}]"


def test_scans_keep_the_stacked_dimension_whole(build) -> None:
    build.input("w", 6, 8, 8)
    build.input("x", 4, 8)

    def step() -> None:
        build.op("dot_general", "bx bw", "by", dot(4, 8, 8))
        build.elementwise("tanh", "by", "bz")

    body = build.block({"bx": (4, 8), "bw": (8, 8)}, step, "by bz")
    attrs = {"num_consts": 0, "num_carry": 1, "length": 6, "reverse": False}
    build.region("scan", "x w", {"rx": (4, 8), "ys": (6, 4, 8)}, (body,), **attrs)
    found = run(build.program("rx ys"), XY, {"x": "[{x,?},{?}]", "w": "[{?},{?},{y,?}]"})
    assert found["ys"].startswith("[{?},{x,?}")
    assert found["bw"] == "[{?},{y,?}]"
    assert found["w"].startswith("[{?},")


def test_branches_share_their_result(build) -> None:
    build.input("i", 1)
    build.input("a", 8, 4)
    one = build.block({"a1": (8, 4)}, lambda: build.elementwise("neg", "a1", "r1"), "r1")
    two = build.block({"a2": (8, 4)}, lambda: build.elementwise("exp", "a2", "r2"), "r2")
    build.region("cond", "i a", {"r": (8, 4)}, (one, two))
    found = run(build.program("r"), XY, {"r": "[{x,?},{?}]"})
    assert {found[n] for n in ("a", "a1", "r1", "a2", "r2", "r")} == {"[{x,?},{?}]"}


def test_nothing_travels_through_a_shared_constant(build) -> None:  # S2.43 to S2.46
    build.input("a", 8, 8)
    build.input("b", 8, 8)
    build.op("iota", "", "k0", "()->([i, j]) {i=8, j=8}")
    build.elementwise("exp", "k0", "k")
    build.elementwise("add", "a k", "c")
    build.elementwise("add", "b k", "d")
    found = run(build.program("c d"), XY, {"a": "[{x},{}]", "b": "[{},{x}]"})
    assert found["c"] == "[{x,?},{?}]"
    assert found["d"] == "[{?},{x,?}]"


def test_an_op_with_an_operand_that_is_no_constant_is_not_copied(build) -> None:  # S2.46
    build.input("a", 8, 8)
    build.input("v", 8, 8)
    build.elementwise("exp", "v", "k")
    build.elementwise("add", "a k", "c")
    found = run(build.program("c"), XY, {"a": "[{x,?},{?}]"})
    assert found["v"] == "[{x,?},{?}]"


def test_a_closed_constraint_that_is_the_only_one_binds_its_operand(build) -> None:  # S4.4 to S4.7
    build.input("a", 8, 8)
    build.elementwise("exp", "a", "b")
    build.elementwise("sharding_constraint", "b", "c")
    found = run(build.program("c"), XY, {"c": "[{x},{}]"})
    assert found["b"] == "[{x},{}]"
    again = type(build)()
    again.input("a", 8, 8)
    again.elementwise("exp", "a", "b")
    again.elementwise("sharding_constraint", "b", "c")
    found = run(again.program("c"), XY, {"c": "[{x},{?}]", "a": "[{?},{y,?}]"})
    assert found["c"] == "[{x},{y,?}]"


def test_a_barrier_passes_one_way() -> None:
    from autoshard.frontends.mlir.program import read_mlir

    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}]>}) -> tensor<8xf32> {
      %0 = sdy.propagation_barrier %a allowed_direction=BACKWARD : tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    read = read_mlir(text)
    assert read.mesh is not None
    found = propagate(read.program, read.mesh, read.shardings)
    assert plain(found.values[read.program.body.results[0]]) == "[{?}]"


def test_outputs_have_shardings_of_their_own(build) -> None:  # S4.1, S4.2
    build.input("a", 8, 8)
    build.elementwise("exp", "a", "b")
    found = result(build.program("b"), XY, {"a": "[{x,?},{?}]"}, outputs={0: TensorSharding.from_text("[{?},{y}]")})
    assert plain(found.outputs[0]) == "[{x,?},{y}]"
    assert plain(found.values[0]) == "[{x,?},{y,?}]"


def test_a_second_run_changes_nothing(build) -> None:  # S2.35
    program = loop(build)
    found = result(program, XY, {"x": "[{x,?},{y,?}]"})
    again = propagate(program, XY, found.values)
    assert again.values == found.values


def test_tracing_changes_nothing_and_names_source_and_steps(build) -> None:  # S2.50 to S2.53
    program = chain(build)
    given = {"a": "[{x,?},{?}]", "b": "[{?},{y,?}]"}
    plain_run, traced = result(program, XY, given), result(program, XY, given, trace=True)
    assert plain_run.values == traced.values
    assert plain_run.provenance is None
    assert traced.provenance is not None
    origins = {str(p.axis): p.origin for p in traced.provenance[2]}
    assert origins == {'"x"': 0, '"y"': 1}
    assert all(p.path[0].op == 0 for p in traced.provenance[2])


def test_the_same_input_gives_the_same_answer(build) -> None:  # S0.67
    program = chain(build)
    given = {"a": "[{x,?},{?}]", "b": "[{?},{x,?}]"}
    assert len({str(run(program, XY, given)) for _ in range(5)}) == 1


def test_unknown_strategies_and_values_are_refused(build) -> None:
    program = chain(build)
    with pytest.raises(InputError, match="basic, aggressive, op-priority, user-priority"):
        propagate(program, XY, {}, strategy="greedy")
    with pytest.raises(InputError, match="there is no value 99"):
        propagate(program, XY, {99: TensorSharding.from_text("[]")})
    with pytest.raises(ShardingError, match="value a: sharding"):
        propagate(program, XY, {0: TensorSharding.from_text("[{x}]")})


def test_a_plan_can_be_laid_over_a_graph(build) -> None:  # S2.54
    import json

    from autoshard.propagation.overlay import overlay

    program = chain(build)
    found = overlay(program, result(program, XY, {"a": "[{x,?},{?}]"}, trace=True))
    assert json.loads(json.dumps(found))["c"] == {
        "shape": [4, 8],
        "sharding": '[{"x", ?}, {?}]',
        "op": "add",
        "origins": {'"x"': "a"},
    }


def test_a_round_reaches_everything_before_the_next_begins(build) -> None:  # S0.47
    build.input("a", 4, 8)
    for index in range(6):
        build.elementwise("exp", "a" if index == 0 else f"v{index - 1}", f"v{index}")
    build.input("near", 4, 8)
    build.elementwise("add", "v5 near", "end")
    # the axis of priority 0 is far from the last op, that of priority 1 right beside it
    found = run(build.program("end"), XY, {"a": "[{y,?},{?}]", "near": "[{x,?}p1,{?}]"})
    assert found["end"] == "[{y,?},{?}]"


def test_any_op_with_a_rule_is_propagated(build) -> None:  # S2.21, S2.25
    build.input("a", 8, 4)
    build.op("some_kernel_nobody_heard_of", "a", "b", "([i, j])->([j, i]) {i=8, j=4}")
    assert run(build.program("b"), XY, {"a": "[{x,?},{y,?}]"})["b"] == "[{y,?},{x,?}]"


def test_a_contracting_factor_passes_between_operands_only(build) -> None:  # S2.23
    build.input("a", 8, 32)
    build.input("b", 32, 16)
    build.op("dot_general", "a b", "c", dot(8, 16, 32))
    found = result(build.program("c"), XY, {"a": "[{?},{y,?}]"})
    assert [plain(found.values[v]) for v in range(3)] == ["[{?},{y,?}]", "[{y,?},{?}]", "[{?},{?}]"]
    assert [len(f) for f in found.factors[0]] == [0, 0, 1]


def test_a_broadcast_dimension_takes_nothing_from_the_large_one(build) -> None:  # S2.24
    build.input("a", 8, 1)
    build.op("broadcast_in_dim", "a", "b", "([i, _])->([i, j]) {i=8, j=16}")
    found = run(build.program("b"), XY, {"b": "[{x,?},{y,?}]"})
    assert found["a"] == "[{x,?},{?}]"


def test_blocked_factors_pass_nothing(build) -> None:
    build.input("a", 8, 4)
    build.op("kernel", "a", "b", "([i, j])->([i, j]) {i=8, j=4} blocked_propagation={i}")
    assert run(build.program("b"), XY, {"a": "[{x,?},{y,?}]"})["b"] == "[{?},{y,?}]"


def test_values_may_be_named_and_shardings_written(build) -> None:
    build.input("a", 8, 32)
    build.input("b", 32, 16)
    build.op("dot_general", "a b", "c", dot(8, 16, 32))
    program = build.program("c")
    by_name = propagate(program, {"x": 2, "y": 4, "z": 2}, {"a": '[{"x", ?}, {"y", ?}]'})
    assert by_name == propagate(program, XY, {0: TensorSharding.from_text('[{"x", ?}, {"y", ?}]')})
    with pytest.raises(InputError, match="the program has no value 'd'"):
        propagate(program, XY, {"d": "[{}, {}]"})
    with pytest.raises(InputError, match="propagate takes a Program, found str"):
        propagate("module {}", XY, {})  # type: ignore[arg-type]
