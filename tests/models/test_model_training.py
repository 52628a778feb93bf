"""Train steps: the loss falls, and scan, unrolling, recomputation and blocking leave loss and gradients alone."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.models import build

STEPS = 24
TINY = {"batch": 8, "seq": 16, "d_model": 32, "d_ff": 48, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 64}
TINY |= {"learning_rate": 1e-2}
RESNET = {"image": 8, "width": 4, "classes": 4, "batch": 16, "learning_rate": 1e-2}


# Compiling is most of the work here, and code quality is not what is tested.
QUICK_COMPILE = {"xla_backend_optimization_level": "0"}


def compiled(function):
    return jax.jit(function, compiler_options=QUICK_COMPILE)


@cache
def losses(model, steps, *options):
    """The losses of some steps; options as sorted pairs so that runs are shared between tests."""
    program = build(model, **dict(options))
    step, state, batches = compiled(program.step), program.init(0), program.batches(0)
    found = []
    for _ in range(steps):
        state, metrics = step(state, next(batches))
        found.append(float(metrics["loss"]))
    return tuple(found)


def run(model, **options):
    return losses(model, STEPS, *sorted(options.items()))


@cache
def _gradients(model, options):
    program = build(model, **dict(options))
    state, batch = program.init(0), next(program.batches(0))
    differentiate = jax.value_and_grad(lambda params, batch: program.loss({"params": params}, batch))
    loss, grads = compiled(differentiate)(state["params"], batch)
    if isinstance(grads["layers"], list):
        grads["layers"] = jax.tree.map(lambda *layers: np.stack(layers), *grads["layers"])
    return loss, grads


def gradients(model, **options):
    """Loss and gradients of the first batch; those of unrolled layers stacked."""
    return _gradients(model, tuple(sorted(options.items())))


def assert_same_gradients(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one, other)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mlp", {"learning_rate": 1e-2}),
        ("mlp", {"task": "regression", "bias": False, "activation": "gelu", "learning_rate": 1e-2}),
        ("transformer", TINY),
        ("transformer", TINY | {"param_dtype": "bfloat16", "compute_dtype": "bfloat16", "clip_norm": 1.0}),
        pytest.param(
            "transformer", TINY | {"positions": "learned", "norm": "layer", "bias": True, "gated_mlp": False,
                                   "tied_embeddings": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "transformer", TINY | {"qk_norm": True, "qkv_bias": True, "parallel_block": True, "kv_heads": 1},
            marks=pytest.mark.slow,
        ),
        ("moe", TINY),
        pytest.param("moe", TINY | {"dispatch": "ragged", "compute_dtype": "bfloat16"}, marks=pytest.mark.slow),
        ("resnet", RESNET),
        pytest.param(
            "resnet", RESNET | {"bottleneck": False, "stem": "large", "compute_dtype": "bfloat16"},
            marks=pytest.mark.slow,
        ),
        pytest.param("resnet", RESNET | {"groups": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)  # fmt: skip
def test_loss_falls(model, options):
    found = run(model, **options)
    assert np.all(np.isfinite(found))
    assert np.mean(found[-4:]) < 0.75 * np.mean(found[:2])


@pytest.mark.parametrize(
    "change",
    [
        {"remat": "none"},
        pytest.param({"remat": "dots"}, marks=pytest.mark.slow),
        {"remat": ("attn_out", "mlp_out")},
        {"scan": False},
        pytest.param({"scan": False, "remat": "none"}, marks=pytest.mark.slow),
        {"attention_block": 4},
        pytest.param({"attention_ring": 4}, marks=pytest.mark.slow),
        {"attention_ring": 2, "scan": False, "remat": "none"},
        pytest.param({"attention_ring": 4, "attention_ring_order": "zigzag"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_how_layers_run_does_not_change_the_loss_and_its_gradients(change):
    assert_same_gradients(gradients("transformer", **TINY | change), gradients("transformer", **TINY))


def test_unrolled_experts_train_like_scanned_ones():
    assert_same_gradients(gradients("moe", **TINY | {"scan": False}), gradients("moe", **TINY))


@pytest.mark.parametrize(
    "options",
    [{"sliding_window": 5}, *(pytest.param({"positions": p}, marks=pytest.mark.slow) for p in ("learned", "none"))],
    ids=str,
)
def test_the_order_of_tokens_in_a_ring_does_not_change_the_loss_and_its_gradients(options):
    ring = TINY | options | {"attention_ring": 2, "scan": False}
    assert_same_gradients(
        gradients("transformer", **ring | {"attention_ring_order": "zigzag"}), gradients("transformer", **ring)
    )


WINDOWED = TINY | {"sliding_window": 4, "local_per_global": 1, "layers": 2}


def test_alternating_windows_are_the_same_scanned_and_unrolled():
    assert_same_gradients(gradients("transformer", **WINDOWED | {"scan": False}), gradients("transformer", **WINDOWED))


def gradient_of_embedded(**options):
    """d loss_at_last_position / d embedding of each input position, through the model's logits."""
    from autoshard.models import transformer

    program = build("transformer", **options)
    opts, params = program.options, program.init(0)["params"]

    def feed(layer, x):
        return transformer.feed_forward(layer, x, opts), None

    tokens = jnp.arange(opts.seq)[None]  # all different, so that an embedding row is a position

    def last(embedding):
        logits, _ = transformer.forward(params | {"embedding": embedding}, tokens, opts, feed)
        return jnp.sum(jnp.square(logits[0, opts.seq // 2]))

    return np.abs(compiled(jax.grad(last))(params["embedding"])[: opts.seq]).sum(axis=-1)


def test_a_position_sees_itself_and_the_past_only():
    moved = gradient_of_embedded(**TINY | {"batch": 1, "layers": 2})
    assert np.all(moved[:9] > 0)
    assert np.all(moved[9:] == 0)


def test_a_sliding_window_limits_how_far_back_a_position_sees():
    # one layer, window 4: position 8 sees 5..8
    moved = gradient_of_embedded(**TINY | {"batch": 1, "layers": 1, "sliding_window": 4})
    assert np.flatnonzero(moved).tolist() == [5, 6, 7, 8]


def test_query_heads_of_a_group_share_their_key_value_head():
    from autoshard.models.layers import attention

    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 8, n, 4)).astype(np.float32) for n in (6, 2, 2))
    wide = compiled(attention)(q, np.repeat(k, 3, axis=2), np.repeat(v, 3, axis=2))
    np.testing.assert_allclose(compiled(attention)(q, k, v), wide, rtol=1e-5, atol=1e-6)


def test_rope_makes_scores_depend_on_distance_alone():
    from autoshard.models.layers import rope

    rng = np.random.default_rng(0)
    q, k = (jnp.asarray(np.broadcast_to(rng.normal(size=8), (1, 6, 1, 8)), jnp.float32) for _ in range(2))
    scores = np.asarray(jnp.einsum("bsnh,btnh->st", rope(q, 10_000.0), rope(k, 10_000.0)))
    np.testing.assert_allclose(scores[1:, 1:], scores[:-1, :-1], rtol=1e-4, atol=1e-5)


def test_batch_statistics_are_moving_averages_of_the_batch():
    program = build("resnet", **RESNET)
    state, batch = program.init(0), next(program.batches(0))
    new, _ = compiled(program.step)(state, batch)
    from autoshard.models.resnet import _conv

    before_norm = np.asarray(_conv(state["params"]["stem"]["conv"], jnp.asarray(batch["images"])))
    found = new["batch_stats"]["stem"]["norm"]
    np.testing.assert_allclose(found["mean"], 0.1 * before_norm.mean(axis=(0, 1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["variance"], 0.9 + 0.1 * before_norm.var(axis=(0, 1, 2)), rtol=1e-4)


def test_weight_decay_shrinks_weights_and_spares_norms():
    # a zero learning signal: bfloat16 is not involved, gradients are tiny against decay * rate = 0.5
    program = build("mlp", weight_decay=1e3, learning_rate=1e-3, beta1=0.0, beta2=0.0, epsilon=1e6)
    state = program.init(0)
    state["params"]["layers"][0]["b"] = jnp.ones_like(state["params"]["layers"][0]["b"])
    new, _ = compiled(program.step)(state, next(program.batches(0)))
    before, after = state["params"]["layers"][0], new["params"]["layers"][0]
    np.testing.assert_allclose(after["w"], np.zeros_like(before["w"]), atol=1e-5)
    np.testing.assert_allclose(after["b"], before["b"], atol=1e-5)
