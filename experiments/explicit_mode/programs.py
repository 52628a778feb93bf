"""The train steps of the experiment: the library's transformer, and MaxText's own Llama decoder."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from autoshard.models import build

LAYERS, EMBED, HEADS, HEAD_DIM, MLP, VOCAB, BATCH, SEQ = 2, 1024, 16, 64, 4096, 8192, 2, 512
"""Both programs: large enough that a plan for TPUs cuts them, and a batch that cannot take all devices alone."""


@dataclass(frozen=True)
class Problem:
    """A train step `(state, batch) -> (state, metrics)`.

    names: logical names of the dimensions of each input, by path. own: compiled under the program's own rules; None
    where it has none.
    """

    step: Callable[[Any, Any], Any]
    specs: tuple[Any, Any]
    names: Mapping[str, tuple[str | None, ...]]
    own: Callable[[], Any] | None = None


def transformer(mesh: dict[str, int]) -> Problem:
    """The library's transformer, AdamW, layers in a scan."""
    model = build(
        "transformer", layers=LAYERS, d_model=EMBED, d_ff=MLP, heads=HEADS, kv_heads=HEADS, head_dim=HEAD_DIM,
        vocab=VOCAB, batch=BATCH, seq=SEQ,
    )  # fmt: skip
    return Problem(model.step, model.specs, {path: model.axes_of(path) for path in model.paths()})


def maxtext(mesh: dict[str, int]) -> Problem:
    """MaxText's Llama decoder with its layers, its remat and its config; the loss is a mean cross entropy, AdamW."""
    import flax.linen as nn
    from maxtext.configs import pyconfig
    from maxtext.models import models

    base = next(p for p in sys.path if p.endswith("src")) + "/maxtext/configs/base.yml"
    sizes = [f"ici_{axis}_parallelism={size}" for axis, size in mesh.items()]
    config = pyconfig.initialize(
        [
            "", base, "run_name=autoshard", "decoder_block=llama2", f"base_emb_dim={EMBED}", f"vocab_size={VOCAB}",
            f"base_num_query_heads={HEADS}", f"base_num_kv_heads={HEADS}", f"head_dim={HEAD_DIM}",
            f"base_mlp_dim={MLP}", f"base_num_decoder_layers={LAYERS}", f"max_target_length={SEQ}",
            f"per_device_batch_size={BATCH / 8}", "skip_jax_distributed_system=true", "enable_checkpointing=false",
            "attention=dot_product", "dtype=float32", "dataset_type=synthetic", *sizes,
        ]
    )  # fmt: skip
    shape = [mesh.get(axis, 1) for axis in config.mesh_axes]
    devices = Mesh(np.array(jax.devices()).reshape(shape), config.mesh_axes)
    model = models.transformer_as_linen(config, devices, quant=None, model_mode="train")
    ids = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32)
    batch = {"inputs": ids, "targets": ids, "positions": ids, "segments": ids}
    tx = optax.adamw(1e-3)

    def logits(params: Any, batch: Any) -> jax.Array:
        out = model.apply(
            {"params": params}, batch["inputs"], batch["positions"], decoder_segment_ids=batch["segments"],
            enable_dropout=False, rngs={"params": jax.random.key(0)},
        )  # fmt: skip
        return out[0] if isinstance(out, tuple) else out

    def step(state: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            scores = optax.softmax_cross_entropy_with_integer_labels(logits(params, batch), batch["targets"])
            return scores.mean()

        value, grads = jax.value_and_grad(loss)(state["params"])
        updates, opt = tx.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, {"loss": value}

    def fresh(batch: Any) -> Any:
        return model.init(
            {"params": jax.random.key(0)}, batch["inputs"], batch["positions"],
            decoder_segment_ids=batch["segments"], enable_dropout=False,
        )["params"]  # fmt: skip

    boxed = jax.eval_shape(fresh, batch)
    params = nn.unbox(boxed)
    state = {"params": params, "opt": jax.eval_shape(tx.init, params)}
    of_params = {
        path: leaf.names for path, leaf in _leaves(boxed, lambda x: isinstance(x, nn.LogicallyPartitioned)).items()
    }
    names: dict[str, tuple[str | None, ...]] = {
        f"state/{path}": next((n for end, n in of_params.items() if path.endswith(end)), ()) if leaf.shape else ()
        for path, leaf in _leaves(state).items()
    }
    names |= {f"batch/{key}": ("activation_batch", "activation_length") for key in batch}

    def own() -> Any:
        def sharding(path: str) -> NamedSharding:
            spec = nn.logical_to_mesh_axes(names[path], config.logical_axis_rules) if names[path] else PartitionSpec()
            return NamedSharding(devices, spec)

        shardings = [
            jax.tree_util.tree_map_with_path(lambda p, _, a=argument: sharding("/".join([a, *map(_step, p)])), tree)
            for argument, tree in (("state", state), ("batch", batch))
        ]
        with devices, nn.logical_axis_rules(config.logical_axis_rules):
            jitted = jax.jit(step, in_shardings=tuple(shardings), out_shardings=(shardings[0], None))
            return jitted.lower(state, batch)

    return Problem(step, (state, batch), names, own)


def _leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> dict[str, Any]:
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {"/".join(map(_step, path)): leaf for path, leaf in found}


def _step(key: Any) -> str:
    return str(next(getattr(key, a) for a in ("name", "key", "idx") if hasattr(key, a)))


PROGRAMS: Mapping[str, tuple[Callable[[dict[str, int]], Problem], tuple[str, str]]] = {
    "transformer": (transformer, ("data", "model")),
    "maxtext": (maxtext, ("fsdp", "tensor")),
}
"""How each program is made, and the names of its two mesh axes."""
