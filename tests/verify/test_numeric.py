"""The numeric check: errors relative to the scale of each output, and what can never pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.verify.runs.numeric import (
    TOLERANCES,
    NumericReport,
    OutputError,
    compare_outputs,
    nudged,
    numeric_check,
    program_tolerances,
    random_arguments,
)


def error(found, expected, **options):
    (out,) = compare_outputs(found, expected, **options).outputs
    return out


def test_the_error_is_relative_to_the_largest_element():
    out = error(jnp.array([100.0, 0.5]), jnp.array([100.0, 0.0]))
    assert (out.scale, out.error) == (100.0, 0.005)
    assert not out.ok


def test_a_rounding_passes():
    assert error(jnp.array([1.0 + 1e-6]), jnp.array([1.0])).ok


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_each_type_has_its_tolerance(dtype):
    x = jnp.ones(3, dtype)
    assert error(x, x).tolerance == TOLERANCES[dtype]
    assert not error(x * 1.25, x).ok


def test_integers_must_be_equal():
    assert error(jnp.array([1, 2]), jnp.array([1, 2])).ok
    assert not error(jnp.array([1, 2]), jnp.array([1, 3])).ok


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_must_be_at_the_same_place(value):
    assert error(jnp.array([value, 1.0]), jnp.array([value, 1.0])).ok
    assert not error(jnp.array([value, 1.0]), jnp.array([1.0, 1.0])).ok
    assert not error(jnp.array([1.0, 1.0]), jnp.array([value, 1.0])).ok


def test_an_all_zero_reference_is_compared_absolutely():
    assert not error(jnp.array([1e-3]), jnp.array([0.0])).ok


def test_another_type_or_shape_never_passes():
    assert not error(jnp.ones(3, jnp.bfloat16), jnp.ones(3)).ok
    assert not error(jnp.ones(3), jnp.ones((1, 3))).ok


def test_another_structure_is_an_error():
    with pytest.raises(InputError, match="different structure"):
        compare_outputs((jnp.ones(3),), [jnp.ones(3)])


def test_keys_are_compared_by_their_words():
    assert error(jax.random.key(1), jax.random.key(1)).ok
    assert not error(jax.random.key(1), jax.random.key(2)).ok


def test_the_report_names_the_worst_output():
    report = numeric_check(lambda x: {"a": x, "b": x * 1.001}, lambda x: {"a": x, "b": x}, [jnp.ones(3)])
    assert not report.ok
    assert report.worst is not None
    assert report.worst.name == "out['b']"
    assert "2 outputs, 1 outside of the tolerance" in str(report)


def test_tolerances_can_be_given():
    assert error(jnp.array([1.1]), jnp.array([1.0]), tolerances={"float32": 0.2}).ok


def test_mixed_precision_is_judged_by_its_coarsest_type():
    traced = trace(lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), jnp.ones(3))
    assert program_tolerances(traced.program)["float32"] == TOLERANCES["bfloat16"]
    report = numeric_check(lambda x: x * 1.01, lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), [jnp.ones(3)])
    assert report.ok
    assert not numeric_check(lambda x: x * 1.01, lambda x: x, [jnp.ones(3)]).ok
    traced = trace(lambda x: x * 2, jnp.ones(3))
    assert program_tolerances(traced.program)["float32"] == TOLERANCES["float32"]


@pytest.mark.parametrize("name", ["f8", "f16", "bf16_layer"])
def test_a_function_that_is_called_as_a_type_is_no_such_type(name):
    def doubled(x):
        return x * 2

    doubled.__name__ = name
    inner = jax.jit(doubled)
    (out,) = numeric_check(lambda x: x * 2.0001, lambda x: inner(x) * 1.0, [jnp.ones(3)]).outputs
    assert out.tolerance == TOLERANCES["float32"] and not out.ok


def test_narrow_floats_inside_of_loops_count():
    report = numeric_check(
        lambda x: x * 1.01,
        lambda x: jax.lax.map(lambda y: y.astype(jnp.bfloat16).astype(jnp.float32), x),
        [jnp.ones(3)],
    )
    assert report.ok


def test_the_gradient_of_whole_numbers_is_compared_by_its_shape():
    """It is float0, which has no values."""
    specs = jax.ShapeDtypeStruct((8,), jnp.int32), jax.ShapeDtypeStruct((16, 4), jnp.float32)
    step = jax.grad(lambda i, w: (w[i] ** 2).sum(), argnums=(0, 1), allow_int=True)
    asked = {"mesh": {"x": 4}, "hardware": "tpu_v5e"}
    checked = autoshard.plan(step, *specs, **asked).verify(step, *specs, **asked)
    assert {check.status for check in checked.checks} == {"ok"}, str(checked)


# -- programs that do not determine their own results ----------------------------------------------------------------


def cancelling(x):
    """What is left of numbers of nearly one size is mostly rounding; the second output is well determined."""
    return {"rest": x - x.mean(), "sum": x.sum()}


ALIKE = 100.0 + 1e-3 * jnp.sin(jnp.arange(64.0))


def test_an_output_that_last_bits_of_the_inputs_move_as_far_is_not_determined():
    def rounded(x):
        return {"rest": jnp.nextafter(x, 0.0) - x.mean(), "sum": x.sum()}

    report = numeric_check(rounded, cancelling, [ALIKE])
    assert not report.ok, "it is beyond the tolerance, and that is said"
    assert [o.name for o in report.undetermined] == ["out['rest']"]
    assert not report.wrong
    assert "1 of them not determined" in str(report)


@pytest.mark.parametrize(("error", "told"), [(2.5e-5, "undetermined"), (4.4e-5, "undetermined"), (4.6e-5, "wrong")])
def test_an_output_that_last_bits_move_nearly_as_far_is_not_determined_though_they_leave_it_within(error, told):
    output = OutputError("out", "float32", (4,), 1.0, error, 2e-5, nudged=1.5e-5)
    assert output in getattr(NumericReport((output,)), told)


def test_an_error_far_beyond_what_last_bits_do_is_wrong():
    report = numeric_check(lambda x: {"rest": 3 * x, "sum": x.sum()}, cancelling, [ALIKE])
    assert [o.name for o in report.wrong] == ["out['rest']"]


def test_a_wrong_output_beside_one_that_is_not_determined_is_wrong():
    def off(x):
        return {"rest": jnp.nextafter(x, 0.0) - x.mean(), "sum": x.sum() * 1.001}

    report = numeric_check(off, cancelling, [ALIKE])
    assert [o.name for o in report.wrong] == ["out['sum']"]
    assert [o.name for o in report.undetermined] == ["out['rest']"]


def test_outputs_of_a_well_conditioned_program_are_never_undetermined():
    report = numeric_check(lambda x: x * 1.0001, lambda x: x, [jnp.ones(3)])
    assert report.outputs[0].nudged is not None
    assert report.outputs[0].nudged <= report.outputs[0].tolerance
    assert report.wrong


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "complex64"])
def test_a_nudge_moves_every_element_by_a_last_bit(dtype):
    x = jnp.asarray([1.0, -3.0, 100.0], dtype)
    (moved,) = nudged([x], 0)
    assert moved.dtype == x.dtype
    wide = np.complex128 if dtype == "complex64" else np.float64
    change = np.abs(np.asarray(moved).astype(wide) / np.asarray(x).astype(wide) - 1)
    assert np.all(change > 0)
    assert np.all(change <= 2 * float(jnp.finfo(dtype).eps))


def test_integers_and_keys_are_not_nudged():
    count, key = nudged([jnp.arange(3), jax.random.key(0)], 0)
    assert np.array_equal(count, np.arange(3))
    assert key is not None
    assert jax.random.key_data(key).tolist() == jax.random.key_data(jax.random.key(0)).tolist()


def test_random_arguments_have_the_given_types():
    types = [
        jax.ShapeDtypeStruct((2, 3), jnp.bfloat16),
        jax.ShapeDtypeStruct((4,), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.bool_),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 5)),
        jax.ShapeDtypeStruct((3,), jax.dtypes.float0),
    ]
    made = random_arguments(types)
    assert [(a.shape, a.dtype) for a in made] == [(t.shape, t.dtype) for t in types]
    assert all(np.all(np.asarray(a, np.float64) >= 0) for a in made[:2])


def test_a_gradient_that_is_zero_but_for_roundings_is_not_determined():
    """Of the sum of a softmax: the last bits of small inputs are lost where they are exponentiated."""
    step = jax.grad(lambda x: jax.nn.softmax(x, axis=0).sum())
    x = random_arguments([jax.ShapeDtypeStruct((4, 4), jnp.float32)])[0]
    expected = jax.jit(step)(x)
    report = numeric_check(lambda x: jnp.where(expected == 0, 6e-8 * x, expected / 2), step, (x,))
    assert not report.ok and not report.wrong
    assert numeric_check(lambda x: expected + 1e-3, step, (x,)).wrong


def test_a_convolution_runs_where_its_window_times_its_results_is_within_the_limit():
    """Its FLOP do not count the places of the input as well: 3e8 here, which were 1.2e12."""

    def convolved(x, w):
        return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    arrays = jax.ShapeDtypeStruct((16, 64, 64, 64), jnp.float32), jax.ShapeDtypeStruct((3, 3, 64, 16), jnp.float32)
    asked = {"mesh": {"x": 4}, "hardware": "tpu_v5e"}
    checked = autoshard.plan(convolved, *arrays, **asked).verify(convolved, *arrays, **asked)
    assert {check.status for check in checked.checks} == {"ok"}, str(checked)


@pytest.mark.parametrize("trips", [2, 2_000])
def test_loops_whose_trips_are_known_run_where_all_trips_are_within_the_limit(trips):
    """A trip is 2.7e8 FLOP here, so that two thousand are 5.4e11."""

    def looped(x):
        return jax.lax.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, jnp.tanh(s[1] @ s[1])), (0, x))[1]

    asked = {"mesh": {"x": 2}, "hardware": "tpu_v5e"}
    arrays = (jax.ShapeDtypeStruct((512, 512), jnp.float32),)
    *_, results = autoshard.plan(looped, *arrays, **asked).verify(looped, *arrays, **asked).checks
    assert results.status == ("ok" if trips == 2 else "not done"), str(results)


def test_a_ragged_product_counts_each_row_once():
    """8192 rows by 8192 x 8192 for 8 groups are 1.1e12 FLOP."""

    def routed(x, w, sizes):
        return jax.lax.ragged_dot(x, w, sizes)

    arrays = (
        jax.ShapeDtypeStruct((8192, 8192), jnp.int8),
        jax.ShapeDtypeStruct((8, 8192, 8192), jnp.int8),
        jax.ShapeDtypeStruct((8,), jnp.int32),
    )
    asked = {"mesh": {"x": 2}, "hardware": "tpu_v5e"}
    *_, results = autoshard.plan(routed, *arrays, **asked).verify(routed, *arrays, **asked).checks
    assert results.status == "not done" and "it is about 1.1e+12 FLOP" in str(results)
