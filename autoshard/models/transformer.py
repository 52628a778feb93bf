"""Decoder transformer: grouped-query attention, RoPE, RMSNorm, SwiGLU; scanned or unrolled layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from autoshard.models.data import token_batches
from autoshard.models.layers import ACTIVATION, attention, cross_entropy, layer_norm, remat, rms_norm, rope
from autoshard.models.model import ModelProgram, assemble
from autoshard.models.options import TransformerOptions
from autoshard.models.parameters import Parameter, stacked, unrolled, weight
from autoshard.models.ring import ring_attention
from autoshard.models.zigzag import zigzag_attention, zigzag_order

EMBEDDING_STD = 0.02  # GPT-2 and its successors

FeedForward = Callable[[Any, jax.Array], tuple[jax.Array, jax.Array | None]]
"""`(layer parameters, x) -> (y, extra loss or None)`, x and y (batch, seq, d_model)."""


def _norm_parameters(name: str, options: TransformerOptions) -> dict[str, Parameter]:
    shape, axes = (options.d_model,), ("embed",)
    scale = {name: Parameter(shape=shape, axes=axes, fill=1.0)}
    return scale | ({f"{name}_bias": Parameter(shape=shape, axes=axes)} if options.norm == "layer" else {})


def attention_table(options: TransformerOptions) -> dict[str, Parameter]:
    """Parameters of one layer's attention; head dimensions are kept apart."""
    d, n, k, h = options.d_model, options.heads, options.kv_heads, options.head_dim
    layer = _norm_parameters("attn_norm", options)
    layer["wq"] = weight((d, n, h), ("embed", "heads", "head_dim"), fan_in=d)
    layer["wk"] = weight((d, k, h), ("embed", "kv_heads", "head_dim"), fan_in=d)
    layer["wv"] = weight((d, k, h), ("embed", "kv_heads", "head_dim"), fan_in=d)
    # Outputs onto the residual stream start smaller, so that its variance does not grow with depth (GPT-2).
    depth_scale = (2 * options.layers) ** -0.5
    layer["wo"] = weight((n, h, d), ("heads", "head_dim", "embed"), fan_in=n * h, scale=depth_scale)
    if options.qkv_bias or options.bias:
        layer["bq"] = Parameter(shape=(n, h), axes=("heads", "head_dim"))
        layer["bk"] = Parameter(shape=(k, h), axes=("kv_heads", "head_dim"))
        layer["bv"] = Parameter(shape=(k, h), axes=("kv_heads", "head_dim"))
    if options.bias:
        layer["bo"] = Parameter(shape=(d,), axes=("embed",))
    if options.qk_norm:
        layer["q_norm"] = Parameter(shape=(h,), axes=("head_dim",), fill=1.0)
        layer["k_norm"] = Parameter(shape=(h,), axes=("head_dim",), fill=1.0)
    if not options.parallel_block:
        layer |= _norm_parameters("mlp_norm", options)
    return layer


def mlp_table(options: TransformerOptions) -> dict[str, Parameter]:
    """Parameters of one layer's dense MLP."""
    d, f = options.d_model, options.d_ff
    layer = {"w_gate": weight((d, f), ("embed", "mlp"), fan_in=d)} if options.gated_mlp else {}
    layer["w_up"] = weight((d, f), ("embed", "mlp"), fan_in=d)
    layer["w_down"] = weight((f, d), ("mlp", "embed"), fan_in=f, scale=(2 * options.layers) ** -0.5)
    if options.bias:
        layer["b_up"] = Parameter(shape=(f,), axes=("mlp",))
        layer["b_down"] = Parameter(shape=(d,), axes=("embed",))
    return layer


def table(options: TransformerOptions, layer: dict[str, Parameter]) -> dict[str, Any]:
    """All parameters, given those of one layer."""
    d, v = options.d_model, options.vocab
    # A tied table is also the head, where every token is multiplied with it.
    tied = float(options.tied_embeddings)
    params: dict[str, Any] = {
        "embedding": Parameter(shape=(v, d), axes=("vocab", "embed"), std=EMBEDDING_STD, matmul=tied),
        "layers": (stacked if options.scan else unrolled)(layer, options.layers),
        **_norm_parameters("final_norm", options),
    }
    if options.positions == "learned":
        params["positions"] = Parameter(shape=(options.max_seq, d), axes=("positions", "embed"), std=EMBEDDING_STD)
    if not options.tied_embeddings:
        params["head"] = weight((d, v), ("embed", "vocab"), fan_in=d)
    return params


def _norm(params: Any, name: str, x: jax.Array, options: TransformerOptions) -> jax.Array:
    if options.norm == "rms":
        return rms_norm(x, params[name])
    return layer_norm(x, params[name], params[f"{name}_bias"])


def self_attention(layer: Any, x: jax.Array, window: Any, options: TransformerOptions) -> jax.Array:
    """(batch, seq, d_model) to the same shape: projections, RoPE, attention, output projection."""

    def project(name: str) -> jax.Array:
        y = jnp.einsum("bsd,dnh->bsnh", x, layer[f"w{name}"].astype(x.dtype))
        return y + layer[f"b{name}"].astype(x.dtype) if f"b{name}" in layer else y

    query, key, value = project("q"), project("k"), project("v")
    if options.qk_norm:
        query, key = rms_norm(query, layer["q_norm"]), rms_norm(key, layer["k_norm"])
    if options.positions == "rope":
        query, key = (rope(y, options.rope_base, _order(options)) for y in (query, key))
    query, key, value = (checkpoint_name(y, tag) for y, tag in ((query, "query"), (key, "key"), (value, "value")))
    if options.zigzag_parts is not None:
        context = zigzag_attention(query, key, value, options.zigzag_parts, window)
    elif options.attention_ring is not None:
        context = ring_attention(query, key, value, options.attention_ring, window)
    else:
        context = attention(query, key, value, window=window, block=options.attention_block)
    context = checkpoint_name(context, "attn_context")
    out = jnp.einsum("bsnh,nhd->bsd", context, layer["wo"].astype(x.dtype))
    return out + layer["bo"].astype(x.dtype) if "bo" in layer else out


def feed_forward(layer: Any, x: jax.Array, options: TransformerOptions) -> jax.Array:
    """(batch, seq, d_model) to the same shape: SwiGLU (arXiv 2002.05202) or a plain two-layer MLP."""
    up = jnp.einsum("bsd,df->bsf", x, layer["w_up"].astype(x.dtype))
    if "b_up" in layer:
        up = up + layer["b_up"].astype(x.dtype)
    activate = ACTIVATION[options.activation]
    if options.gated_mlp:
        hidden = activate(jnp.einsum("bsd,df->bsf", x, layer["w_gate"].astype(x.dtype))) * up
    else:
        hidden = activate(up)
    hidden = checkpoint_name(hidden, "mlp_hidden")
    down = jnp.einsum("bsf,fd->bsd", hidden, layer["w_down"].astype(x.dtype))
    return down + layer["b_down"].astype(x.dtype) if "b_down" in layer else down


def _block(layer: Any, x: jax.Array, window: Any, options: TransformerOptions, feed: FeedForward) -> tuple[Any, Any]:
    """One layer. Returns the residual stream and the layer's extra loss."""
    normed = _norm(layer, "attn_norm", x, options)
    attended = checkpoint_name(self_attention(layer, normed, window, options), "attn_out")
    if not options.parallel_block:
        x = x + attended
        normed = _norm(layer, "mlp_norm", x, options)
    fed, extra_loss = feed(layer, normed)
    fed = checkpoint_name(fed, "mlp_out")
    return checkpoint_name(x + attended + fed if options.parallel_block else x + fed, "layer_out"), extra_loss


def _window(options: TransformerOptions, index: Any) -> Any:
    """How far back layer `index` sees: None (all), a number, or a scalar array when `index` is traced."""
    if options.sliding_window is None or not options.local_per_global:
        return options.sliding_window
    is_global = (index + 1) % (options.local_per_global + 1) == 0
    if isinstance(index, int):
        return None if is_global else options.sliding_window
    return jnp.where(is_global, options.seq, options.sliding_window)


def _order(options: TransformerOptions) -> Any:
    """The positions of the tokens in the order in which the layers take them; None where it is their own."""
    return None if options.zigzag_parts is None else zigzag_order(options.seq, options.zigzag_parts)


def forward(params: Any, tokens: jax.Array, options: TransformerOptions, feed: FeedForward) -> tuple[Any, Any]:
    """Tokens (batch, seq) to logits (batch, seq, vocab) float32, and the layers' mean extra loss (or None).

    Both in the order of the layers.
    """
    order = _order(options)
    x = params["embedding"][tokens].astype(options.compute_dtype)
    if options.positions == "learned":
        x = x + params["positions"][slice(options.seq) if order is None else order].astype(x.dtype)
    x = checkpoint_name(x, "embedded")

    def block(x: jax.Array, layer: Any, window: Any) -> tuple[Any, Any]:
        return _block(layer, x, window, options, feed)

    if options.scan:
        run = remat(block, options.remat, in_scan=True)
        if options.sliding_window is not None and options.local_per_global:
            numbered = (params["layers"], jnp.arange(options.layers, dtype=jnp.int32))
            x, extra = jax.lax.scan(lambda x, item: run(x, item[0], _window(options, item[1])), x, numbered)
        else:
            x, extra = jax.lax.scan(lambda x, layer: run(x, layer, _window(options, 0)), x, params["layers"])
    else:
        run = remat(block, options.remat, in_scan=False)
        extras = []
        for index, layer in enumerate(params["layers"]):
            x, layer_loss = run(x, layer, _window(options, index))
            extras.append(layer_loss)
        extra = None if extras[0] is None else jnp.stack(extras)
    x = _norm(params, "final_norm", x, options)
    if options.tied_embeddings:
        head, formula = params["embedding"], "bsd,vd->bsv"
    else:
        head, formula = params["head"], "bsd,dv->bsv"
    logits = jnp.einsum(formula, x, head.astype(x.dtype), preferred_element_type=jnp.float32)
    return checkpoint_name(logits, "logits"), None if extra is None else jnp.mean(extra)


def assemble_decoder(
    options: TransformerOptions, layer: dict[str, Parameter], feed: FeedForward, loss_weight: float = 0.0
) -> ModelProgram:
    """A decoder, given the parameters of one layer and its feed-forward function."""

    order = _order(options)

    def loss(params: Any, extra: Any, batch: Any) -> tuple[jax.Array, Any]:
        tokens, targets = batch["tokens"], batch["targets"]
        if order is not None:
            tokens, targets = tokens[:, order], targets[:, order]
        logits, extra_loss = forward(params, tokens, options, feed)
        value = cross_entropy(logits, targets)
        return (value if extra_loss is None else value + loss_weight * extra_loss), extra

    params = table(options, layer)
    tokens = options.batch * options.seq
    matmul_params = round(sum(p.size * p.matmul for p in jax.tree.leaves(params)))
    # Scores and context, 2 FLOP * seq * heads * head_dim each for a token; the causal half is computed, so it counts.
    scores = 4 * options.layers * options.heads * options.head_dim * options.seq
    if options.zigzag_parts is not None:
        scores = scores * (2 * options.zigzag_parts + 1) // (4 * options.zigzag_parts)
    array = jax.ShapeDtypeStruct((options.batch, options.seq), jnp.int32)
    return assemble(
        options,
        params,
        loss,
        batch_specs={"tokens": array, "targets": array},
        batch_axes={"tokens": ("batch", "seq"), "targets": ("batch", "seq")},
        batches=lambda seed=0: token_batches(seed, options.batch, options.seq, options.vocab),
        forward_matmul_flop=tokens * (2 * matmul_params + scores),
    )


def program(options: TransformerOptions) -> ModelProgram:
    """The model that `build("transformer", ...)` returns."""

    def feed(layer: Any, x: jax.Array) -> tuple[jax.Array, None]:
        return feed_forward(layer, x, options), None

    return assemble_decoder(options, attention_table(options) | mlp_table(options), feed)
