"""Diffusion models: diffusers."""

from typing import Any

import jax
import jax.numpy as jnp

from programs.registry import Made, f32, ids, plain, program, trained, warm


def _unet() -> Any:
    from diffusers import FlaxUNet2DConditionModel

    return FlaxUNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, attention_head_dim=2, cross_attention_dim=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip


@program("diffusers", "flax", "optax", rows=("batch/0", "batch/1", "batch/2", "batch/3"))
def diffusers_unet() -> Made:
    """diffusers: the UNet of Stable Diffusion with cross attention, trained to predict the noise of DDPM."""
    from diffusers import FlaxDDPMScheduler

    unet, scheduler = _unet(), FlaxDDPMScheduler(num_train_timesteps=100)
    params, noising = unet.init_weights(jax.random.key(0)), scheduler.create_state()
    tx = plain()

    def loss(params: Any, images: Any, noise: Any, times: Any, words: Any) -> Any:
        noisy = scheduler.add_noise(noising, images, noise, times)
        predicted = unet.apply({"params": params}, noisy, times, words).sample
        return jnp.square(predicted - noise).mean()

    batch = f32(8, 4, 8, 8), f32(8, 4, 8, 8), ids(100, 8), f32(8, 4, 16)
    return Made(trained(loss, tx), (params, warm(tx.init(params))), batch)


@program("diffusers", "flax", rows=("images", "words"))
def diffusers_sampling() -> Made:
    """diffusers: denoising steps of DDIM with guidance, the image as the state of the loop."""
    from diffusers import FlaxDDIMScheduler

    unet, scheduler = _unet(), FlaxDDIMScheduler(num_train_timesteps=100)
    params = unet.init_weights(jax.random.key(0))
    setting = scheduler.set_timesteps(scheduler.create_state(), num_inference_steps=10, shape=(8, 4, 8, 8))

    def step(images: Any, at: Any, params: Any, words: Any) -> Any:
        time = setting.timesteps[at]
        twice = jnp.concatenate([images, images])
        both = jnp.concatenate([words, jnp.zeros_like(words)])
        noise = unet.apply({"params": params}, twice, jnp.broadcast_to(time, 16), both).sample
        told, free = jnp.split(noise, 2)
        images, _ = scheduler.step(setting, free + 3.0 * (told - free), time, images, return_dict=False)
        return images, at + 1

    carry = {"out/0": "images", "out/1": "at"}  # all of it single arrays, which nothing tells
    return Made(step, (f32(8, 4, 8, 8), jnp.int32(0)), (params, f32(8, 4, 16)), carry)
