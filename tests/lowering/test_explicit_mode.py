"""A plan in JAX's explicit sharding mode: annotations only where it infers another sharding, and none too many."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from lowered_programs import loops_and_branch
from naive_schedule import MESHES, naive_schedule
from running import FAST, Original

import autoshard
from autoshard.api import explicit_mode as search
from autoshard.errors import InputError, UnsupportedError
from autoshard.lowering.annotated import RefusedError
from autoshard.lowering.explicit_call import explicit_function, find_annotations, typed_arguments
from autoshard.lowering.typed_forms import Form
from autoshard.verify.runs.numeric import compare_outputs, program_tolerances
from autoshard.verify.runs.traffic import Traffic


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def planned(f, *specs, pins=None, **options):
    constraints = [autoshard.Pin(name, sharding) for name, sharding in (pins or {}).items()]
    return autoshard.plan(
        f, *specs, mesh={"data": 2, "model": 4}, hardware="tpu_v5e", constraints=constraints, **options
    )


def matmuls(x, w1, w2):
    return jax.nn.relu(x @ w1) @ w2


PINS = {"x": '[{"data"}, {}]', "w1": '[{}, {"model"}]', "w2": '[{"model"}, {}]', "out": '[{"data"}, {"model"}]'}


@pytest.fixture(scope="module")
def plan():
    return planned(matmuls, spec(64, 256), spec(256, 512), spec(512, 64), pins=PINS)


@pytest.fixture(scope="module")
def found(plan):
    return plan.explicit_mode()


def test_the_one_sharding_that_explicit_mode_cannot_infer_is_annotated(found):
    (annotation,) = found.annotations
    assert annotation.op == "dot_general" and annotation.text == 'out_sharding=P("data", "model")'
    assert "test_explicit_mode.py" in annotation.source and not annotation.in_derivative
    assert "ambiguous" in annotation.why


def test_an_annotation_that_is_left_says_what_happens_without_it(found):
    (annotation,) = found.annotations
    assert found.all_tested and found.needed[annotation.site].startswith("refused, dot_general at test_explicit_mode")


def test_compiled_collectives_stand_beside_the_planned_ones(found):
    # on CPU XLA makes the planned reduce-scatter an all-reduce, of twice the bytes
    rows = {row["kind"]: row for row in found.to_dict()["collectives"]}
    scatter, reduce = rows["reduce_scatter"], rows["all_reduce"]
    assert (scatter["planned"], scatter["compiled"], reduce["planned"], reduce["compiled"]) == (1, 0, 0, 1)
    assert reduce["compiled_bytes"] == 2 * scatter["planned_bytes"]


def test_the_text_has_the_mesh_the_boundary_and_the_annotation(found):
    text = str(found)
    assert "jax.make_mesh((2, 4), ('data', 'model'), axis_types=(jax.sharding.AxisType.Explicit,) * 2)" in text
    assert '  w2: P("model")' in text and '  out: P("data", "model")' in text
    assert "1 annotation (each is needed):" in text


def test_what_is_written_by_hand_from_the_annotation_has_the_type_that_was_planned(found):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)

    def by_hand(x, w1, w2):
        return jnp.matmul(jax.nn.relu(x @ w1), w2, out_sharding=P("data", "model"))

    with jax.set_mesh(mesh):
        specs = [
            jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=jax.sharding.NamedSharding(mesh, p))
            for s, p in zip(
                (spec(64, 256), spec(256, 512), spec(512, 64)),
                (P("data"), P(None, "model"), P("model")),
                strict=True,
            )
        ]
        assert jax.eval_shape(by_hand, *specs).sharding.spec == P("data", "model")


def test_the_function_computes_what_one_device_computes(found):
    arrays = [np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate([(64, 256), (256, 512)])]
    arrays.append(np.ones((512, 64), np.float32))
    run = found.jit()
    y = run(*run.place(*arrays))
    np.testing.assert_allclose(y, matmuls(*arrays), rtol=2e-4, atol=1e-3)
    assert y.sharding.spec == P("data", "model") and set(y.sharding.mesh.axis_types) == {AxisType.Explicit}


# -- partial sums ---------------------------------------------------------------------------------------------------


BOTH = '{"data", "model"}'


def texts(plan):
    """(op, what to write) of all annotations, none tried without; and what cannot be said."""
    found = find_annotations(plan.lowered)
    return [(a.op, a.text) for a in found.found.values()], list(found.notes)


def test_partial_sums_are_kept_through_a_loop_and_summed_once_after_it():
    def sums(x, w):
        return lax.scan(lambda c, a: (c + a.T @ w, None), jnp.zeros((64, 64)), x)[0]

    pins = {"x": f"[{{}}, {BOTH}, {{}}]", "w": f"[{BOTH}, {{}}]", "out": "[{}, {}]"}
    found = planned(sums, spec(32, 8192, 64), spec(8192, 64), pins=pins).explicit_mode(time_limit=1e-6)
    partial = 'out_sharding=P(unreduced={"data", "model"})'
    assert [(a.op, a.text) for a in found.annotations] == [
        ("broadcast_in_dim", f"jax.lax.broadcast_in_dim(..., {partial})"),
        ("dot_general", partial),
        ("scan", "jax.sharding.reshard(x, P())"),
    ]
    assert found.report is not None
    assert found.report.found == found.report.planned and found.report.found.total() == 1  # not one for every turn


def test_a_partial_sum_that_its_use_refuses_is_summed_where_it_is_made_and_that_is_said():
    pins = {"x": f"[{{}}, {BOTH}]", "w": f"[{BOTH}, {{}}]", "v": f"[{BOTH}, {{}}]", "out": "[{}, {}]"}
    plan = planned(lambda x, w, v: -(x @ w) - (x @ v), spec(64, 8192), spec(8192, 64), spec(8192, 64), pins=pins)
    assert [c.kind for c in plan.lowered.planned] == ["all_reduce"]  # of the difference
    written, notes = texts(plan)
    if jax.__version_info__ >= (0, 12):  # it takes the negative and the difference of partial sums
        partial = 'out_sharding=P(unreduced={"data", "model"})'
        assert written == [("dot_general", partial)] * 2 + [("sub", "jax.sharding.reshard(x, P())")] and not notes
        return
    assert written == [("dot_general", "out_sharding=P()")] * 2
    assert "dot_general:0 is summed earlier than planned at neg" in notes[0]
    assert "unreduced rule for neg is not implemented" in notes[0]


def test_what_a_partial_sum_is_multiplied_with_is_marked_as_reduced():
    def scaled(x, w, s):
        return (x @ w) * s.sum() + (x @ jnp.sin(w))

    pins = {"x": f"[{{}}, {BOTH}]", "w": f"[{BOTH}, {{}}]", "out": "[{}, {}]"}
    written, _ = texts(planned(scaled, spec(64, 8192), spec(8192, 64), spec(8), pins=pins))
    assert ("mul", 'jax.sharding.reshard(x, P(reduced={"data", "model"}))') in written


def test_an_annotation_of_an_op_that_is_written_twice_names_both_lines():
    def doubled(x, w):
        once = x @ w
        return once * (x @ w)

    pins = {"x": f"[{{}}, {BOTH}]", "w": f"[{BOTH}, {{}}]", "out": "[{}, {}]"}
    (product, *_) = find_annotations(planned(doubled, spec(64, 8192), spec(8192, 64), pins=pins).lowered).found.values()
    first, second = product.source.split("; ")
    line = int(first.split(":")[1].split()[0])
    assert second.startswith(f"test_explicit_mode.py:{line + 1} ")


# -- programs of many kinds -----------------------------------------------------------------------------------------


def program(x, w, n):
    """Loops, a branch, indexing, sorting, a running sum and random numbers."""
    c, _ = loops_and_branch(x, w, n)
    return {
        "c": c,
        "sorted": jnp.sort(c, axis=0),
        "running": jnp.cumsum(c, axis=1),
        "looked_up": w[jnp.array([3, 1])],
        "noise": jax.random.normal(jax.random.key(n), (8,)),
    }


@pytest.mark.parametrize(("mesh", "uneven"), [("6", True), ("8 split", False)])
def test_results_are_those_of_the_unsharded_program(mesh, uneven):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((8, 16), (16, 16))]
    original = Original(program, *arrays, jnp.int32(2))
    lowered = original.lower(naive_schedule(original.traced.program, MESHES[mesh], 5, uneven=uneven, place=0.5))
    run = explicit_function(lowered, find_annotations(lowered).found, donate_argnums=())
    with jax.set_mesh(run.mesh):
        compiled = run.jitted.lower(*typed_arguments(lowered, run.mesh)).compile(compiler_options=FAST)
        out = compiled(*jax.tree.map(jax.device_put, original.args, run.in_shardings))
    report = compare_outputs(out, original.expected, tolerances=program_tolerances(original.traced.program))
    assert report.ok, str(report)


def test_indexing_says_its_sharding_by_the_arguments_that_jax_has_for_it():
    indices = jax.ShapeDtypeStruct((4096,), jnp.int32)
    pins = {"t": '[{"model"}, {}]', "i": '[{"data"}]', "out": '[{"data"}, {}]'}
    written, _ = texts(planned(lambda t, i: t[i], spec(65536, 1024), indices, pins=pins))
    assert written == [("gather", '.at[...].get(out_sharding=P("data"))')]


# -- the search for the fewest --------------------------------------------------------------------------------------


def traffic(*sizes):
    return Counter(Traffic("all_reduce", "x", size, float(size)) for size in sizes)


def fewest(compiled: Any, sites: Any, planned_traffic: Any = ()) -> Any:
    """A search with letters for annotations."""
    found = search.Fewest(compiled, traffic(*planned_traffic), sites, deadline=float("inf"))
    found.remove(sites)
    found.confirm()
    return found


def test_only_annotations_that_change_something_are_left():
    needed = {"b", "d"}
    found = fewest(lambda kept: traffic(*(10 for _ in needed - kept)), ["a", "b", "c", "d", "e"])
    assert found.kept == needed and found.all_tested


def test_what_can_go_once_something_else_has_gone_goes():
    # "a" may go only when "b" is gone
    found = fewest(lambda kept: traffic(*([10] if "b" in kept and "a" not in kept else [])), ["a", "b"])
    assert found.kept == frozenset()


def test_a_refused_program_keeps_its_annotation():
    def compiled(kept):
        if "a" not in kept:
            raise RefusedError("no")
        return traffic()

    found = fewest(compiled, ["a", "b"])
    assert found.kept == {"a"} and found.without["a"][1] == "refused, no"


def test_a_change_is_accepted_only_where_it_leads_nearer_to_the_plan():
    found = fewest(lambda kept: traffic(*([] if "a" in kept else [10])), ["a"], planned_traffic=[10])
    assert found.kept == frozenset()
    found = fewest(lambda kept: traffic(*([10] if "a" in kept else [])), ["a"], planned_traffic=[10])
    assert found.kept == {"a"}


def test_when_the_time_is_over_the_rest_stays_and_is_not_called_tested(plan):
    found = plan.explicit_mode(time_limit=1e-6)
    assert len(found.annotations) == 1 and not found.all_tested and found.compilations == 1
    assert "time ended before each was tried without" in str(found)


def test_without_a_check_nothing_is_compiled(plan):
    found = plan.explicit_mode(check=False)
    assert (found.compilations, found.report, len(found.annotations)) == (0, None, 1)
    assert "(not compiled)" in str(found)


# -- refusals -------------------------------------------------------------------------------------------------------


def test_a_jax_without_explicit_mode_is_told_by_its_version(plan, monkeypatch):
    monkeypatch.delattr(jax.sharding, "reshard")
    with pytest.raises(UnsupportedError, match=rf"JAX {jax.__version__} has no jax.sharding.reshard; use plan.lower"):
        plan.explicit_mode()


def test_a_time_limit_of_nothing_is_refused(plan):
    with pytest.raises(InputError, match="positive number of seconds, found 0"):
        plan.explicit_mode(time_limit=0)


def test_too_few_devices_are_told(plan):
    with pytest.raises(InputError, match="8 devices, there are 2"):
        plan.explicit_mode(devices=jax.devices()[:2])


def test_values_in_host_memory_are_refused():
    lowered = planned(lambda x: x + 1, spec(64, 64)).lowered
    program = replace(lowered.traced.program, host_inputs=frozenset({0}))
    hosted = replace(lowered, traced=replace(lowered.traced, program=program))
    with pytest.raises(UnsupportedError, match="does not place values in host memory"):
        search.explicit_mode(hosted)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form((("x",), ())), 'P("x")'),
        (Form(((), ("x", "y"))), 'P(None, ("x", "y"))'),
        (Form(((),), frozenset("y")), 'P(unreduced={"y"})'),
        (Form((), frozenset(), frozenset({"a", "b"})), 'P(reduced={"a", "b"})'),
    ],
)
def test_a_form_is_written_as_a_spec_that_says_the_same(form, text):
    assert str(form) == text
    written = eval(text, {"P": P})  # the text is what users paste
    here, there = (tuple(getattr(x, "partitions", x)) for x in (written, form.spec))  # JAX 0.10.0 has no partitions
    assert here + (None,) * (len(there) - len(here)) == there
    assert (written.unreduced, written.reduced) == (form.spec.unreduced, form.spec.reduced)
