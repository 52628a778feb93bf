"""tunix: models of its own sizes, every layer written out, under its loss of supervised fine-tuning and AdamW."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from steps import DEVICES, LENGTH, ROWS, Step, bare, listed, mesh_of


def _fine_tuning(model: Any, module: ModuleType, **sizes: int) -> Step:
    """A step as of its `PeftTrainer`: inputs from tokens and their mask, its loss, the norm of the gradients.

    sizes: of the axes of its mesh.
    """
    from flax import nnx
    from tunix.sft import peft_trainer, utils

    graph, params, rest = nnx.split(model, nnx.Param, ...)
    tx = optax.adamw(1e-5)
    state = (params, jax.eval_shape(tx.init, params))
    batch = {name: jax.ShapeDtypeStruct((ROWS, LENGTH), kind) for name, kind in (("tokens", "int32"), ("mask", "bool"))}
    mesh = mesh_of(**(sizes or {"fsdp": DEVICES, "tp": 1}))

    def loss(params: Any, batch: Any) -> Any:
        mask = batch["mask"]
        return peft_trainer._default_loss_fn(
            nnx.merge(graph, params, rest), batch["tokens"], mask, utils.build_positions_from_mask(mask),
            utils.make_causal_attn_mask(mask),
        )  # fmt: skip

    def step(state: Any, batch: Any) -> Any:
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), value, optax.global_norm(grads)

    def shard(value: Any, axes: Any) -> Any:
        """Its function of this name as it is on TPUs; on CPUs it states nothing."""
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, PartitionSpec(*axes)))

    named = jax.tree.map(lambda spec: NamedSharding(mesh, spec), nnx.get_partition_spec(state))
    rows = NamedSharding(mesh, PartitionSpec("fsdp"))
    stated = {"in_shardings": (named, rows), "out_shardings": (named, None, None)}
    return Step(step, bare((state, batch)), stated, lambda: mock.patch.object(module, "shard", shard))


def _with(config: Any, **changed: Any) -> Any:
    return type(config)(**{name: getattr(config, name) for name in config.__dataclass_fields__} | changed)


@listed("google-tunix", "flax", "optax")
def tunix_llama3_8b() -> Step:
    """tunix llama3p1_8b: 32 layers, recomputed whole, all in bfloat16, as it loads checkpoints."""
    from flax import nnx
    from tunix.models.llama3 import model

    config = _with(model.ModelConfig.llama3p1_8b(), remat_config=model.RematConfig.DECODER)

    def made() -> Any:
        built = model.Llama3(config, rngs=nnx.Rngs(0))
        nnx.update(built, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), nnx.state(built, nnx.Param)))
        return built

    return _fine_tuning(nnx.eval_shape(made), model)


class _OnTpus(ModuleType):
    """`jax` for a module that asks it what devices there are."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)

    def devices(self) -> list[Any]:
        return [SimpleNamespace(platform="tpu")]


def _qwen3_30b_a3b(**sizes: int) -> Step:
    from flax import nnx
    from tunix.models.qwen3 import model

    config = _with(model.ModelConfig.qwen3_30b_a3b(), remat_config=model.RematConfig.DECODER, dtype=jnp.bfloat16)
    return _fine_tuning(nnx.eval_shape(lambda: model.Qwen3(config, rngs=nnx.Rngs(0))), model, **sizes)


@listed("google-tunix", "flax", "optax")
def tunix_qwen3_30b_a3b() -> Step:
    """tunix qwen3_30b_a3b as it runs on TPUs: the 128 experts of each of 48 layers by megablox's kernels and
    ragged_all_to_all, in its shard_map over fsdp 128 and tp 2; recomputed whole, weights and AdamW in float32.

    On 16x16 its buffers, of the size that the worst case asks for, take 34 GB a device, and fsdp 256 is more than it
    has experts.
    """
    from tunix.models.qwen3 import model

    sizes = {"fsdp": 128, "tp": 2}
    step = _qwen3_30b_a3b(**sizes)

    @contextmanager
    def within() -> Iterator[None]:
        with mesh_of(**sizes), mock.patch.object(model, "jax", _OnTpus("jax")), step.within():
            yield

    return replace(step, within=within, mesh=sizes)


@listed("google-tunix", "flax", "optax")
def tunix_qwen3_30b_a3b_off_tpus() -> Step:
    """The same with its 128 experts written out one after the other in each layer, as it has them on CPUs."""
    return _qwen3_30b_a3b()
