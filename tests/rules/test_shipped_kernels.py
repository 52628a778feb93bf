"""Rules and work of the kernels that JAX ships, read from programs that call them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_mesh
from autoshard.program.rule import ShardingRule
from autoshard.request.asking import asked
from autoshard.request.request import request_of

MESH = {"data": 2, "model": 4}


def _spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def _kernels(f, *specs, constraints=(), names=()):
    traced = trace(f, *specs, kernels=names)
    question = asked(request_of(traced, mesh=MESH, hardware="tpu_v5e", constraints=constraints))
    return [op for op, _ in question.problem.program.walk() if "kernel" in op.attrs], question


def _rule(op) -> ShardingRule:
    assert op.rule is not None
    return op.rule


def _cuts(op):
    """Sizes of the factors that may be cut."""
    return sorted(_rule(op).factor_sizes[f] for f in _rule(op).shardable)


def _shared(op, *dims):
    """Sizes of the factors that may be cut and that all of these (tensor, dimension) have."""
    rule = _rule(op)
    tensors = (*rule.operands, *rule.results)
    common = set.intersection(*({f for f in tensors[t][d] if f in rule.shardable} for t, d in dims))
    return sorted(rule.factor_sizes[f] for f in common)


# -- attention -----------------------------------------------------------------------------------------------------


def _flash(q, k, v, ab):
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    return jax.grad(lambda *x: flash_attention(*x).sum(), argnums=(0, 1, 2))(q, k, v, ab)


def test_flash_attention_with_a_bias_is_cut_on_batch_and_heads():
    q = _spec(2, 4, 256, 64)
    ops, _ = _kernels(_flash, q, q, q, _spec(2, 4, 256, 256))
    assert [_cuts(op) for op in ops] == [[2, 4]] * 3
    assert [(_shared(op, (0, 0), (3, 0)), _shared(op, (0, 1), (3, 1))) for op in ops] == [([2], [4])] * 3


def test_flash_attention_is_priced_by_its_cost_estimate_and_backward_by_its_body():
    """Forward two matmuls of 256 x 256 x 64 a head; backward four for the keys and values, three for the queries."""
    q = _spec(2, 4, 256, 64)
    ops, _ = _kernels(_flash, q, q, q, _spec(2, 4, 256, 256))
    matmul = 2 * 2 * 4 * 256 * 256 * 64
    assert [round(op.attrs["work"]["flop"] / matmul) for op in ops] == [2, 4, 3]


def _splash(sequence, heads=4, block=128):
    """Causal splash attention, and the share of the blocks that it does not skip."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    words: dict[str, Any] = {f"block_{name}": block for name in names}
    sizes = kernels.BlockSizes(**words)
    mask = masks.MultiHeadMask([masks.CausalMask((sequence, sequence))] * heads)
    rows = sequence // block
    call = kernels.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
    return call, (rows + 1) / (2 * rows)


@pytest.mark.parametrize("key_heads", [4, 2])
def test_splash_attention_is_cut_on_batch_and_key_heads(key_heads):
    call, _ = _splash(256)
    q, k = _spec(2, 4, 256, 128), _spec(2, key_heads, 256, 128)
    (op,), _ = _kernels(jax.vmap(call), q, k, k)
    assert _cuts(op) == [2, key_heads]


def _under_shard_map(call):
    mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    spec = P("data", "model")
    return jax.shard_map(jax.vmap(call), mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)


def test_splash_attention_under_shard_map_is_priced_by_the_blocks_it_visits():
    """On one device a sequence with one head: two matmuls of 1024 x 1024 x 128, of which the mask leaves 36 blocks."""
    call, visited = _splash(1024, heads=1)
    q = _spec(2, 4, 1024, 128)
    (op,), _ = _kernels(_under_shard_map(call), q, q, q)
    assert op.attrs["work"]["flop"] == 4 * 1024**2 * 128 * visited


def test_splash_attention_under_shard_map_is_priced_within_a_tenth_of_the_flop_of_its_mask():
    call, _ = _splash(2048, heads=1)
    q = _spec(2, 4, 2048, 128)
    plan = autoshard.plan(_under_shard_map(call), q, q, q, mesh=MESH, hardware="tpu_v5e")
    masked = 4 * 128 * (2048 * 2049 / 2)
    assert plan.step_time.matmul_flop_per_device == pytest.approx(masked, rel=0.1)


def test_splash_attention_with_a_mask_for_each_head_keeps_its_heads_whole():
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    mask = masks.MultiHeadMask([masks.LocalMask((256, 256), (64 * (k + 1), 0), 0) for k in range(4)])
    call = kernels.make_splash_mha(mask, head_shards=1, q_seq_shards=1)
    q = _spec(2, 4, 256, 128)
    (op,), _ = _kernels(jax.vmap(call), q, q, q)
    assert _cuts(op) == [2]


PAGED = (
    _spec(8, 8, 128), _spec(4, 64, 16, 128), _spec(4, 64, 16, 128), _spec(8, dtype=jnp.int32),
    _spec(8, 8, dtype=jnp.int32),
)  # fmt: skip


def _paged(*arguments):
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    return paged_attention(*arguments, pages_per_compute_block=4)


def test_paged_attention_runs_whole_and_the_plan_says_so():
    (op,), question = _kernels(_paged, *PAGED)
    assert not _cuts(op) and "runs whole on every device" in question.notes[0]


def test_paged_attention_is_priced_by_the_room_in_its_page_table():
    """8 sequences, 8 heads of 128, 8 pages of 16 tokens."""
    (op,), _ = _kernels(_paged, *PAGED)
    assert op.attrs["work"]["flop"] == 4 * 8 * 8 * 128 * 8 * 16


def test_paged_attention_with_a_local_function_is_cut_on_batch_and_key_heads():
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    kernel = autoshard.Kernel("paged_attention", local=functools.partial(paged_attention, pages_per_compute_block=4))
    (op,), _ = _kernels(_paged, *PAGED, constraints=[kernel], names=["paged_attention"])
    assert _shared(op, (0, 0), (3, 0), (4, 0)) == [8] and _shared(op, (0, 1), (1, 0), (2, 0)) == [4]


# -- grouped matmuls -----------------------------------------------------------------------------------------------


def test_megablox_cuts_columns_and_of_the_gradient_of_weights_both_dimensions():
    from jax.experimental.pallas.ops.tpu.megablox import ops as megablox

    def gradients(rows, weights, groups):
        return jax.grad(lambda x, w: megablox.gmm(x, w, groups, jnp.float32).sum(), argnums=(0, 1))(rows, weights)

    specs = _spec(256, 256), _spec(4, 256, 512), _spec(4, dtype=jnp.int32)
    *_, backward, of_weights = _kernels(gradients, *specs)[0]
    assert _shared(backward, (6, 1), (7, 1)) == [2]
    assert _shared(of_weights, (5, 1), (7, 1)) == [2] and _shared(of_weights, (6, 1), (7, 2)) == [4]


# -- cuDNN ---------------------------------------------------------------------------------------------------------


def _cudnn(layout, dropout=0.0):
    """Forward and backward of cuDNN's attention, as `jax.nn.dot_product_attention` calls it on a GPU."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    def both(q, k, v):
        empty = [jnp.zeros((0,), jnp.int32)] * 7
        words = {
            "scale": 1.0, "seed": 42, "dropout_rate": dropout, "variadic_args": (False, False),
            "mask_type": cudnn.MaskType.CAUSAL, "layout": layout, "sliding_window_length": None,
        }  # fmt: skip
        out, statistics = cudnn._dot_product_attention_fwd_p_wrapper.bind(q, k, v, *empty, is_training=True, **words)
        return cudnn._dot_product_attention_bwd_p_wrapper.bind(q, k, v, *empty, statistics, out, out, **words)

    return both


@pytest.mark.parametrize(("layout", "head"), [(0, 2), (1, 1)])
def test_attention_of_cudnn_is_cut_on_batch_and_key_heads(layout, head):
    def shape(heads):
        return (4, 128, heads, 64) if head == 2 else (4, heads, 128, 64)

    q, k = (_spec(*shape(heads), dtype=jnp.bfloat16) for heads in (8, 2))
    forward, backward = _kernels(_cudnn(layout), q, k, k)[0]
    for op, result in ((forward, 10), (backward, 13)):
        assert _shared(op, (0, 0), (1, 0), (2, 0), (result, 0)) == [4]
        assert _shared(op, (0, head), (1, head), (2, head), (result, head)) == [2]


def test_attention_of_cudnn_is_priced_by_its_matmuls():
    q = _spec(4, 128, 8, 64, dtype=jnp.bfloat16)
    forward, backward = _kernels(_cudnn(0), q, q, q)[0]
    assert [op.attrs["work"]["flop"] / (2 * 4 * 8 * 128 * 128 * 64) for op in (forward, backward)] == [2, 5]


def test_attention_of_cudnn_with_dropout_stays_whole():
    q = _spec(4, 128, 8, 64, dtype=jnp.bfloat16)
    assert not any(_cuts(op) for op in _kernels(_cudnn(0, 0.5), q, q, q)[0])
