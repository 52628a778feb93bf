"""Mixture of experts: top-k routing, then experts by capacity (GShard einsums) or by sorting (ragged matmuls)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from autoshard.models.layers import ACTIVATION
from autoshard.models.model import ModelProgram
from autoshard.models.options import MoeOptions
from autoshard.models.parameters import Parameter, weight
from autoshard.models.transformer import assemble_decoder, attention_table


def moe_table(options: MoeOptions) -> dict[str, Parameter]:
    """Parameters of one layer's router and experts."""
    d, f, e = options.d_model, options.d_ff, options.experts
    used = options.experts_per_token / e
    into, back = ("experts", "embed", "mlp"), ("experts", "mlp", "embed")
    layer = {"router": weight((d, e), ("embed", "experts"), fan_in=d)}
    if options.gated_mlp:
        layer["w_gate"] = weight((e, d, f), into, fan_in=d, used=used)
    layer["w_up"] = weight((e, d, f), into, fan_in=d, used=used)
    layer["w_down"] = weight((e, f, d), back, fan_in=f, scale=(2 * options.layers) ** -0.5, used=used)
    return layer


def route(layer: Any, x: jax.Array, options: MoeOptions) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choices (batch, seq, k) int32, their gates (float32, sum 1), and the load-balancing loss.

    Gates are the softmax over the chosen logits (Mixtral, arXiv 2401.04088), which equals the renormalised softmax
    over all. The loss is E times the sum over experts of share of choices times mean probability
    (Switch, arXiv 2101.03961, eq. 4); 1 when balanced.
    """
    logits = jnp.einsum("bsd,de->bse", x, layer["router"].astype(x.dtype), preferred_element_type=jnp.float32)
    chosen_logits, chosen = jax.lax.top_k(logits, options.experts_per_token)
    gates = jax.nn.softmax(chosen_logits, axis=-1)
    probability = jnp.mean(jax.nn.softmax(logits, axis=-1), axis=(0, 1))
    share = jnp.mean(jax.nn.one_hot(chosen, options.experts), axis=(0, 1, 2))
    return chosen, gates, options.experts * jnp.sum(share * probability)


def einsum_experts(layer: Any, x: jax.Array, chosen: jax.Array, gates: jax.Array, options: MoeOptions) -> jax.Array:
    """Dispatch and combine by one-hot matmuls (GShard, arXiv 2006.16668); shards over experts.

    Each expert has `capacity` slots per sequence. Slots go to all first choices in sequence order, then to all second
    choices, and so on; a token without a slot gets nothing from that expert.
    """
    counts = jax.nn.one_hot(chosen, options.experts)  # (b, s, k, e) float32, exact for counting up to 2**24
    before_in_choice = jnp.cumsum(counts, axis=1) - counts
    per_choice = jnp.sum(counts, axis=1, keepdims=True)
    before_choice = jnp.cumsum(per_choice, axis=2) - per_choice
    slot = jnp.sum((before_in_choice + before_choice) * counts, axis=-1).astype(jnp.int32)  # (b, s, k)
    slots = jax.nn.one_hot(slot, options.capacity, dtype=x.dtype)  # all zeros where the slot is past the capacity
    dispatch = jnp.einsum("bske,bskc->bsec", counts.astype(x.dtype), slots)
    combine = jnp.einsum("bske,bskc->bsec", (counts * gates[..., None]).astype(x.dtype), slots)

    inputs = checkpoint_name(jnp.einsum("bsec,bsd->ebcd", dispatch, x), "expert_in")
    up = jnp.einsum("ebcd,edf->ebcf", inputs, layer["w_up"].astype(x.dtype))
    activate = ACTIVATION[options.activation]
    if options.gated_mlp:
        hidden = activate(jnp.einsum("ebcd,edf->ebcf", inputs, layer["w_gate"].astype(x.dtype))) * up
    else:
        hidden = activate(up)
    hidden = checkpoint_name(hidden, "mlp_hidden")
    outputs = jnp.einsum("ebcf,efd->ebcd", hidden, layer["w_down"].astype(x.dtype))
    return jnp.einsum("bsec,ebcd->bsd", combine, checkpoint_name(outputs, "expert_out"))


def ragged_experts(layer: Any, x: jax.Array, chosen: jax.Array, gates: jax.Array, options: MoeOptions) -> jax.Array:
    """Dispatch by sorting copies of tokens by expert; experts are one `ragged_dot` per weight. Drops nothing."""
    batch, seq, d_model = x.shape
    k = options.experts_per_token
    expert = chosen.reshape(-1)  # (batch * seq * k,)
    order = jnp.argsort(expert, stable=True)
    sizes = jnp.sum(jax.nn.one_hot(expert, options.experts, dtype=jnp.int32), axis=0)
    token = order // k
    inputs = checkpoint_name(x.reshape(-1, d_model)[token], "expert_in")
    up = jax.lax.ragged_dot(inputs, layer["w_up"].astype(x.dtype), sizes)
    activate = ACTIVATION[options.activation]
    if options.gated_mlp:
        hidden = activate(jax.lax.ragged_dot(inputs, layer["w_gate"].astype(x.dtype), sizes)) * up
    else:
        hidden = activate(up)
    hidden = checkpoint_name(hidden, "mlp_hidden")
    outputs = checkpoint_name(jax.lax.ragged_dot(hidden, layer["w_down"].astype(x.dtype), sizes), "expert_out")
    weighted = outputs * gates.reshape(-1)[order][:, None].astype(x.dtype)
    return jnp.zeros((batch * seq, d_model), x.dtype).at[token].add(weighted).reshape(x.shape)


EXPERTS = {"einsum": einsum_experts, "ragged": ragged_experts}


def feed_forward(layer: Any, x: jax.Array, options: MoeOptions) -> tuple[jax.Array, jax.Array]:
    """(batch, seq, d_model) to the same shape, and the router's loss."""
    chosen, gates, balance = route(layer, x, options)
    return EXPERTS[options.dispatch](layer, x, chosen, gates, options), balance


def program(options: MoeOptions) -> ModelProgram:
    """The model that `build("moe", ...)` returns."""

    def feed(layer: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return feed_forward(layer, x, options)

    return assemble_decoder(options, attention_table(options) | moe_table(options), feed, options.router_loss)
