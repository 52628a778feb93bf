"""Ops against the onnx package's own cases: a fixed sample of the node suite (all of it: experiments/onnx_suite)."""

import importlib.util
import sys
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[2] / "experiments" / "onnx_suite" / "cases.py"
SAMPLE = [
    "test_ai_onnx_ml_tree_ensemble_set_membership",
    "test_ai_onnx_ml_tree_ensemble_single_tree",
    "test_attention_4d_gqa",
    "test_argmax_keepdims_example_select_last_index",
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_batchnorm_example",
    "test_bitshift_left_uint8",
    "test_cast_FLOAT_to_FLOAT8E4M3FN",
    "test_clip_min_greater_than_max",
    "test_convtranspose_output_shape",
    "test_cumsum_1d_reverse_exclusive",
    "test_dequantizelinear_blocked",
    "test_div_int32_trunc",
    "test_einsum_batch_matmul",
    "test_flatten_axis2",
    "test_gather_negative_indices",
    "test_gathernd_example_float32",
    "test_gemm_all_attributes",
    "test_gridsample_reflection_padding",
    "test_gru_with_initial_bias",
    "test_instancenorm_example",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_logsoftmax_axis_1",
    "test_lstm_with_peepholes",
    "test_matmul_4d",
    "test_maxpool_with_argmax_2d_precomputed_pads",
    "test_mod_mixed_sign_int32",
    "test_onehot_with_negative_axis",
    "test_pow_types_float32_int32",
    "test_quantizelinear_axis",
    "test_reduce_log_sum_exp_default_axes_keepdims_example",
    "test_reshape_allowzero_reordered",
    "test_resize_downsample_scales_cubic_antialias",
    "test_reversesequence_time",
    "test_roialign_aligned_true",
    "test_scan9_sum",
    "test_scatternd_add",
    "test_sce_NCd1_mean_weight_negative_ii",
    "test_slice_neg_steps",
    "test_split_variable_parts_2d_opset18",
    "test_squeeze_negative_axes",
    "test_tfidfvectorizer_tf_batch_uniandbigrams_skip5",
    "test_top_k_smallest",
    "test_tril_neg",
    "test_where_example",
]


@pytest.fixture(scope="module")
def suite():
    spec = importlib.util.spec_from_file_location("onnx_suite_cases", _FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SAMPLE)
def test_case(suite, name):
    outcome = suite.judge(suite.cases()[name])
    assert (outcome.kind, outcome.text) == ("passed", "")


SHARDED = [
    "test_ai_onnx_ml_tree_ensemble_single_tree",
    "test_basic_conv_with_padding",
    "test_cast_UINT2_to_FLOAT",
    "test_gemm_all_attributes",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_reduce_log_sum_exp_empty_set",
    "test_slice_start_out_of_bounds",
    "test_tfidfvectorizer_tf_batch_uniandbigrams_skip5",
]


@pytest.mark.parametrize("name", SHARDED)
def test_case_as_planned_under_a_random_sharding(suite, name):
    outcome = suite.judge(suite.cases()[name], suite.sharded)
    assert (outcome.kind, outcome.text) == ("passed", "")
    assert outcome.cut > 0


def test_a_wrong_result_is_found(suite):
    case = suite.cases()["test_relu"]
    off = lambda made, weights, inputs: ({k: v + 1 for k, v in made(weights, inputs).items()}, 0)  # noqa: E731
    outcome = suite.judge(case, run=off)
    assert outcome.kind == "wrong"
