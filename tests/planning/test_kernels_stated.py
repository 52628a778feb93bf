"""What is said of custom kernels, and what is refused: rules by name, permissions, formulas, and plans that tell."""

import json

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning

import autoshard
from autoshard.api.session import plan_config
from autoshard.config.load import load_config_text
from autoshard.config.problem import build_problem
from autoshard.frontends.jax.function import trace
from autoshard.request.asking import asked
from autoshard.request.request import request_of
from autoshard.verify.derived import check_derived
from autoshard.verify.plan.checker import check_plan
from autoshard.verify.report import Status

MESH = {"data": 2, "model": 4}
ASKED = {"mesh": MESH, "hardware": "tpu_v5e"}
X = jax.ShapeDtypeStruct((64, 32), jnp.float32)


def ffi(x, name="my_kernel"):
    """A call of a kernel that JAX cannot look into."""
    return jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="sequential")(x)


def _asked(f, *kernels, specs=(X,)):
    return asked(request_of(trace(f, *specs), constraints=kernels, **ASKED))


def _rules(question):
    ops = question.problem.program.walk()
    return [str(op.rule) for op, _ in ops if "kernel" in op.attrs]


def _work(question):
    (op,) = (op for op, _ in question.problem.program.walk() if "kernel" in op.attrs)
    return op.attrs["work"]


def test_kernel_without_a_rule_is_an_error_that_says_what_to_write():
    with pytest.raises(autoshard.RuleError, match=r"Kernel\('my_kernel', rule=\.\.\.\).*\(\[a, b\]\)->\(\[c, d\]\)"):
        _asked(ffi)


def test_permission_to_replicate_is_told():
    question = _asked(ffi, autoshard.Kernel("default", rule="replicate"))
    assert "kernel my_kernel at" in question.notes[0] and "runs whole on every device" in question.notes[0]
    assert _rules(question) == ["([i, j])->([k, l]) {i=64, j=32, k=64, l=32} need_replication={i, j, k, l}"]


def test_work_that_is_not_priced_is_told():
    (note,) = _asked(ffi, autoshard.Kernel("my_kernel", rule="([i, j])->([i, j])")).notes
    assert note.startswith("the FLOP of kernel my_kernel") and "not priced" in note


def test_one_name_may_have_several_rules_told_apart_by_rank():
    both = lambda x, y: (ffi(x), ffi(y))  # noqa: E731
    kernels = [
        autoshard.Kernel("my_kernel", rule="([b, i, j])->([b, i, j])", whole="ij", flop=1),
        autoshard.Kernel("my_kernel", rule="([i, j])->([i, j])", flop=1),
    ]
    found = _rules(_asked(both, *kernels, specs=(X, jax.ShapeDtypeStruct((8, 4, 4), jnp.float32))))
    assert found == [
        "([i, j])->([i, j]) {i=64, j=32}",
        "([i, j, k])->([i, j, k]) {i=8, j=4, k=4} need_replication={j, k}",
    ]


def test_calls_of_one_name_may_have_different_rules():
    twice = lambda x: ffi(ffi(x) * 2)  # noqa: E731
    rows = autoshard.Kernel("my_kernel", rule="([i, j])->([i, j])", whole="j", flop=1, calls=[1])
    columns = autoshard.Kernel("my_*", rule="([i, j])->([i, j])", whole="i", flop=1)
    first, second = _rules(_asked(twice, rows, columns))
    assert first.endswith("need_replication={i}") and second.endswith("need_replication={j}")


def test_dimension_of_one_element_has_no_factor():
    kernel = autoshard.Kernel("my_kernel", rule="([i, j])->([i, j])", flop=1)
    (rule,) = _rules(_asked(ffi, kernel, specs=(jax.ShapeDtypeStruct((1, 32), jnp.float32),)))
    assert rule == "([_, i])->([_, i]) {i=32}"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"rule": "([i, j, k])->([i, j])"}, "gives operand 0 rank 3, it has rank 2"),
        ({"rule": "([i, j])->([j, i])"}, "its factors say"),
        ({"rule": "([i, j])->([i, j])", "flop": "i * z"}, "names 'z'; the factors are i, j"),
        ({"rule": "([i, j])->([i, j])", "flop": "__import__('os')"}, "cannot read"),
        ({"rule": "([i, j])->([i, j])", "flop": -1e15}, "flop: found -1000000000000000.0; expected a number from 0"),
        ({"rule": "([i, j])->([i, j])", "flop": float("nan")}, "flop: found nan; expected a number from 0"),
        ({"rule": "([i, j])->([i, j])", "flop": "(i-100)**0.5"}, "expected a number from 0"),
        ({"rule": "([i, j])->([i, j])", "flop": 1, "bytes": float("inf")}, "bytes: found inf"),
        ({"rule": "([i, j])->([i, j])", "flop": 1, "calls": [0, 2]}, "calls names 2; the program has call 0 alone"),
        ({"grid": [0]}, "is no Pallas kernel"),
        ({"name": "your_kernel", "rule": "([i, j])->([i, j])"}, "speaks of no kernel of the program"),
    ],
)
def test_statement_that_does_not_fit_is_an_error(kernel, message):
    with pytest.raises(autoshard.InputError, match=message):
        _asked(ffi, autoshard.Kernel(**{"name": "my_kernel", **kernel}))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"rule": "([i, j)"}, "cannot read the rule"),
        ({"rule": "([i])->([i])", "whole": "j"}, "whole names 'j'"),
        ({"rule": "([i])->([i])", "grid": [0]}, "not both"),
        ({"grid": [0], "whole": "j"}, "give one"),
        ({"rule": "([i])->([i])", "local": 3}, "local is 3"),
        ({"rule": "([i, j])->([i, j])", "reduction": "i"}, "'i' is in a result, so nothing is reduced"),
        ({"rule": "([i, j])->([i])", "reduction": "j", "whole": "j"}, "in both reduction and whole"),
        ({"rule": "([i])->([i])", "unit": "tensor"}, "expected matmul or vector"),
        ({"name": "default", "rule": "([i])->([i])"}, "is replicate"),
    ],
)
def test_malformed_statement_is_an_error_where_it_is_made(kernel, message):
    with pytest.raises(autoshard.RuleError, match=message):
        autoshard.Kernel(**{"name": "my_kernel", **kernel})


# -- custom_partitioning -------------------------------------------------------------------------------------------


def _partitioned(**words):
    """A function on batches of matrices with this sharding rule."""
    function = custom_partitioning(lambda x: x * 2)
    function.def_partition(partition=lambda *_: None, **words)
    return lambda x: function(x)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("... i -> ... i", "([i, j, k])->([i, j, k]) {i=8, j=4, k=6}"),
        ("b i (j k) -> b i (j k)", "([i, j, kl])->([i, j, kl]) {i=8, j=4, k=3, l=2}"),
        (lambda mesh, ins, outs: "b i j -> b i j", "([i, j, k])->([i, j, k]) {i=8, j=4, k=6}"),
    ],
    ids=["ellipsis", "compound", "callable"],
)
def test_sharding_rule_of_custom_partitioning_is_read(rule, found):
    sizes = {"j": 3, "k": 2} if isinstance(rule, str) and "(" in rule else {}
    x = jax.ShapeDtypeStruct((8, 4, 6), jnp.float32)
    kernel = autoshard.Kernel("*", flop=1)
    assert _rules(_asked(_partitioned(sharding_rule=rule, **sizes), kernel, specs=(x,))) == [found]


# -- Pallas --------------------------------------------------------------------------------------------------------


def _pallas(x, cost=None):
    def body(x_ref, y_ref):
        y_ref[...] = jnp.exp(x_ref[...])

    return pl.pallas_call(
        body, out_shape=x, grid=(4,), in_specs=[pl.BlockSpec((16, 32), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((16, 32), lambda i: (i, 0)), cost_estimate=cost, name="rows",
    )(x)  # fmt: skip


def test_factor_that_no_grid_dimension_goes_along_needs_a_local_function():
    with pytest.raises(autoshard.RuleError, match="factor 'j' does not go along one grid dimension"):
        _asked(_pallas, autoshard.Kernel("rows", rule="([i, j])->([i, j])"))


def test_factor_is_cut_between_the_blocks_of_a_kernel():
    (rule,) = _rules(_asked(_pallas, autoshard.Kernel("rows", rule="([i, j])->([i, j])", whole="j")))
    assert rule == "([ij, k])->([il, k]) {i=4, j=16, k=32, l=16} need_replication={j, k, l}"


def test_results_that_all_programs_write_forbid_to_cut_the_grid():
    def total(x):
        def body(x_ref, y_ref):
            y_ref[...] += x_ref[...]

        return pl.pallas_call(
            body, out_shape=jax.ShapeDtypeStruct((16, 32), x.dtype), grid=(4,), name="total",
            in_specs=[pl.BlockSpec((16, 32), lambda i: (i, 0))], out_specs=pl.BlockSpec((16, 32), lambda i: (0, 0)),
        )(x)  # fmt: skip

    with pytest.raises(autoshard.RuleError, match="result 0 does not lie along it"):
        _asked(total, autoshard.Kernel("total", grid=[0]))


def test_work_is_that_of_the_cost_estimate():
    cost = pl.CostEstimate(flops=1000, transcendentals=10, bytes_accessed=500)
    work = _work(_asked(lambda x: _pallas(x, cost), autoshard.Kernel("rows", grid=[0])))
    assert (work["flop"], work["transcendentals"], work["bytes"]) == (1000, 10, 500)


def test_work_without_an_estimate_is_counted_from_the_body():
    """4 programs with 16 x 32 exponentials each."""
    assert _work(_asked(_pallas, autoshard.Kernel("rows", grid=[0])))["transcendentals"] == 4 * 16 * 32


def test_stated_work_counts_before_the_estimate():
    kernel = autoshard.Kernel("rows", rule="([i, j])->([i, j])", whole="j", flop="3*i*j", bytes=7)
    work = _work(_asked(_pallas, kernel))
    assert (work["flop"], work["bytes"]) == (3 * 64 * 32, 7)


@pytest.mark.parametrize("flop", ["(1 - i)**0.5 // 2", "+".join(["i"] * 20_000)], ids=["complex", "deep"])
def test_a_formula_that_has_no_value_is_an_error(flop):
    kernel = autoshard.Kernel("rows", rule="([i, j])->([i, j])", whole="j", flop=flop)
    with pytest.raises(autoshard.RuleError, match="flop: cannot read"):
        _asked(_pallas, kernel)


def test_work_of_the_first_entry_counts():
    first = autoshard.Kernel("rows", rule="([i, j])->([i, j])", whole="j", flop=5)
    assert _work(_asked(_pallas, first, autoshard.Kernel("rows", flop=6, bytes=7)))["flop"] == 5


def test_two_calls_of_one_shape_are_priced_by_their_own_work():
    """1e12 x 64 x 32 and no FLOP: eighths of the first are all the plan's seconds."""
    rule = "([i, j])->([i, j])"
    kernels = [
        autoshard.Kernel("my_kernel", rule=rule, whole="j", flop=f, calls=[k]) for k, f in enumerate((2.048e15, 0))
    ]
    plan = autoshard.plan(lambda x: ffi(ffi(x)), X, constraints=kernels, **ASKED)
    first, second = plan.cost.op_seconds.values()
    assert second < 1e-6 * first and plan.objective_s == pytest.approx(first, rel=1e-3)


# -- plans and configs ---------------------------------------------------------------------------------------------

CONFIG = """
function: test_kernels_stated:ffi
args: {{x: "float32[64, 32]"}}
mesh: {{data: 2, model: 4}}
hardware: tpu_v5e
kernels: {kernels}
"""
IN_CONFIG = '{my_kernel: {rule: "([i, j])->([i, j])", whole: j, flop: 1e12*i*j, local: "jax.numpy:cos"}}'


def _config(kernels):
    return load_config_text(CONFIG.format(kernels=kernels), "kernels.yaml")


@pytest.fixture(scope="module")
def plan():
    config = _config(IN_CONFIG)
    return plan_config(config, build_problem(config))


def test_kernels_of_a_config_are_planned_priced_and_run(plan):
    """1e12 x 64 x 32 FLOP, each device an eighth; the rows are all that can be cut."""
    assert plan.cost.op_seconds[plan.program.body.ops[0].id] == pytest.approx(1e12 * 64 * 32 / 8 / 1.97e14, rel=0.3)
    assert (plan.jit()(jnp.zeros((64, 32))) == 1).all()


def test_plan_of_kernels_is_derived_again_from_its_config(plan):
    assert check_derived(json.loads(json.dumps(plan.to_dict())), traced=plan.traced).status is Status.OK


def test_config_that_says_another_rule_than_the_plan_is_found(plan):
    data = json.loads(json.dumps(plan.to_dict()))
    data["config"]["settings"]["kernels"]["my_kernel"]["whole"] = "i"
    assert "asked: kernel my_kernel" in str(check_derived(data, traced=plan.traced))


def test_verification_says_which_kernels_this_machine_does_not_run(plan):
    kernel = autoshard.Kernel("my_kernel", rule="([i, j])->([i, j])", whole="j", flop="1e12*i*j", local="jax.numpy:cos")
    told = str(plan.verify(ffi, X, constraints=[kernel], **ASKED))
    assert "the kernels my_kernel are not for the devices of this machine" in told and "failed" not in told


@pytest.fixture
def from_file(plan, tmp_path):
    """The plan from its file, which nobody has allowed to import."""
    plan.save(tmp_path / "plan.json")
    return autoshard.Plan.load(tmp_path / "plan.json")


def test_function_that_a_plan_file_names_is_not_imported(from_file):
    with pytest.raises(autoshard.InputError, match=r"jax\.numpy:cos.*attach\(f, \*specs, kernels="):
        _ = from_file.attach(ffi, X).lowered


def test_plan_from_a_file_takes_the_function_for_a_kernel(from_file):
    assert (from_file.attach(ffi, X, kernels={"my_kernel": jnp.cos}).jit()(jnp.zeros((64, 32))) == 1).all()


@pytest.mark.parametrize("changed", ["rule", "work", "local", "gone"])
def test_changed_statement_about_a_kernel_is_found(plan, changed):
    data = json.loads(json.dumps(plan.to_dict()))
    (statement,) = (s for s in data["statements"] if s["kind"] == "kernel")
    if changed == "gone":
        data["statements"].remove(statement)
    else:
        statement[changed] = {"rule": "([i, j])->([i, j]) {i=64, j=32}", "work": {}, "local": "jax.numpy:sin"}[changed]
    assert any("kernel" in str(finding) for finding in check_plan(data).findings)


def test_config_permits_by_a_default():
    (kernel,) = _config("{default: replicate}").statements
    assert isinstance(kernel, autoshard.Kernel)
    assert kernel == autoshard.Kernel("default", rule="replicate", source=kernel.source)


def test_error_of_a_config_has_its_place():
    with pytest.raises(autoshard.InputError, match=r"kernels\.yaml:6:22: kernels\.my_kernel.*cannot read the rule"):
        _config('{my_kernel: "([i)"}')


def test_local_function_that_is_not_there_is_an_error_before_the_search():
    config = _config('{my_kernel: {rule: "([i, j])->([i, j])", local: "jax.numpy:cosine"}}')
    with pytest.raises(autoshard.InputError, match=r"module 'jax\.numpy' has no 'cosine'"):
        plan_config(config, build_problem(config))


def _numbered(x):
    """A kernel whose results depend on the number of the program."""

    def body(x_ref, y_ref):
        y_ref[...] = x_ref[...] + pl.program_id(0).astype(jnp.float32)

    rows = pl.BlockSpec((8, 32), lambda i: (i, 0))
    return pl.pallas_call(body, out_shape=x, grid=(8,), in_specs=[rows], out_specs=rows, name="numbered")(x)


@pytest.mark.parametrize("said", [{"rule": "([i, j])->([i, j])", "whole": "j"}, {"grid": [0]}])
def test_a_kernel_that_reads_the_number_of_a_program_that_may_be_cut_is_told(said):
    (note,) = _asked(_numbered, autoshard.Kernel("numbered", flop=1, **said)).notes
    assert "reads the number of its program along grid dimension 0, which counts from 0 on every device" in note


def test_the_number_of_a_program_that_nothing_cuts_is_not_told():
    assert _asked(_numbered, autoshard.Kernel("numbered", rule="replicate", flop=1)).notes == ()
