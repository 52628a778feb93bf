"""Residual conv net (arXiv 1512.03385, 1611.05431) in NHWC, with batch norm over the whole batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from autoshard.models.data import image_batches
from autoshard.models.layers import NORM_EPSILON, cross_entropy
from autoshard.models.model import ModelProgram, assemble
from autoshard.models.options import ResnetOptions
from autoshard.models.parameters import Parameter, weight

KERNEL_AXES = ("kernel_height", "kernel_width", "conv_in", "conv_out")
BOTTLENECK_EXPANSION = 4


class _Shapes:
    """Collects the parameters, statistics and matmul FLOP in one walk over the net, layer by layer."""

    def __init__(self, options: ResnetOptions) -> None:
        self.options = options
        self.flop = 0

    def conv(self, side: int, size: int, inputs: int, outputs: int, stride: int, groups: int) -> tuple[Parameter, int]:
        """A kernel and the side of its output image ("SAME" padding)."""
        side = -(-side // stride)
        fan_in = size * size * inputs // groups
        self.flop += 2 * self.options.batch * side * side * fan_in * outputs
        shape = (size, size, inputs // groups, outputs)
        # He initialisation (arXiv 1502.01852): the gain makes up for relu
        return weight(shape, KERNEL_AXES, fan_in=fan_in, scale=2**0.5), side


def _norm(width: int, *, fill: float = 1.0) -> dict[str, Parameter]:
    return {
        "scale": Parameter(shape=(width,), axes=("conv_out",), fill=fill),
        "bias": Parameter(shape=(width,), axes=("conv_out",)),
    }


def _statistics(width: int) -> dict[str, Parameter]:
    return {
        "mean": Parameter(shape=(width,), axes=("conv_out",)),
        "variance": Parameter(shape=(width,), axes=("conv_out",), fill=1.0),
    }


def _convolutions(options: ResnetOptions, stage: int, index: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """(kernel, output width, stride, groups) of the convs of one block in order, and the stride of the block."""
    scale = 2**stage
    stride = 2 if stage > 0 and index == 0 else 1
    if not options.bottleneck:
        return [(3, options.width * scale, stride, 1), (3, options.width * scale, 1, 1)], stride
    inner = options.groups * options.group_width * scale
    wide = options.width * scale * BOTTLENECK_EXPANSION
    # the stride sits on the 3x3, as in most code ("ResNet v1.5"), not on the first 1x1 as in the paper
    return [(1, inner, 1, 1), (3, inner, stride, options.groups), (1, wide, 1, 1)], stride


def table(options: ResnetOptions) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Parameters, batch statistics, and FLOP of the convolutions and the classifier in one forward pass.

    Names: `stem`, `stages/<stage>/<block>/conv<i>`, `norm<i>`, `shortcut`, `shortcut_norm`, and `head`.
    """
    shapes = _Shapes(options)
    large = options.stem == "large"
    kernel, side = shapes.conv(options.image, 7 if large else 3, options.channels, options.width, 2 if large else 1, 1)
    params: dict[str, Any] = {"stem": {"conv": kernel, "norm": _norm(options.width)}, "stages": []}
    statistics: dict[str, Any] = {"stem": {"norm": _statistics(options.width)}, "stages": []}
    side = -(-side // 2)  # max pool
    width = options.width
    for stage, blocks in enumerate(options.stages):
        params["stages"].append([])
        statistics["stages"].append([])
        for index in range(blocks):
            convolutions, stride = _convolutions(options, stage, index)
            block: dict[str, Any] = {}
            running: dict[str, Any] = {}
            inputs, entry_width, entry_side = width, width, side
            for i, (size, outputs, step, groups) in enumerate(convolutions):
                block[f"conv{i}"], side = shapes.conv(side, size, inputs, outputs, step, groups)
                # the last norm starts at 0, so that a block starts as the identity (arXiv 1706.02677, section 5.1)
                block[f"norm{i}"] = _norm(outputs, fill=float(i < len(convolutions) - 1))
                running[f"norm{i}"] = _statistics(outputs)
                inputs = width = outputs
            if stride > 1 or entry_width != width:
                block["shortcut"], _ = shapes.conv(entry_side, 1, entry_width, width, stride, 1)
                block["shortcut_norm"] = _norm(width)
                running["shortcut_norm"] = _statistics(width)
            params["stages"][-1].append(block)
            statistics["stages"][-1].append(running)
    params["head"] = {
        "w": weight((width, options.classes), ("embed", "classes"), fan_in=width),
        "b": Parameter(shape=(options.classes,), axes=("classes",)),
    }
    shapes.flop += 2 * options.batch * width * options.classes
    return params, statistics, shapes.flop


def _conv(kernel: jax.Array, x: jax.Array, stride: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        window_strides=(stride, stride),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
    )


def _batch_norm(params: Any, running: Any, x: jax.Array, momentum: float) -> tuple[jax.Array, Any]:
    """Normalise by the batch's own mean and variance (arXiv 1502.03167), in float32; also the new running averages."""
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=(0, 1, 2))
    centred = wide - mean
    variance = jnp.mean(jnp.square(centred), axis=(0, 1, 2))
    y = centred * (jax.lax.rsqrt(variance + NORM_EPSILON) * params["scale"].astype(jnp.float32))
    new = {
        "mean": momentum * running["mean"] + (1 - momentum) * jax.lax.stop_gradient(mean),
        "variance": momentum * running["variance"] + (1 - momentum) * jax.lax.stop_gradient(variance),
    }
    return (y + params["bias"].astype(jnp.float32)).astype(x.dtype), new


def _max_pool(x: jax.Array, window: int) -> jax.Array:
    """`window` x `window`, stride 2."""
    shape, strides = (1, window, window, 1), (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, shape, strides, "SAME")


def _block(params: Any, running: Any, x: jax.Array, stage: int, index: int, options: ResnetOptions) -> tuple[Any, Any]:
    convolutions, stride = _convolutions(options, stage, index)
    new: dict[str, Any] = {}
    y = x
    for i, (_, _, step, _) in enumerate(convolutions):
        y = _conv(params[f"conv{i}"], y, step)
        y, new[f"norm{i}"] = _batch_norm(params[f"norm{i}"], running[f"norm{i}"], y, options.norm_momentum)
        if i < len(convolutions) - 1:
            y = jax.nn.relu(y)
    if "shortcut" in params:
        x = _conv(params["shortcut"], x, stride)
        norm, statistics = params["shortcut_norm"], running["shortcut_norm"]
        x, new["shortcut_norm"] = _batch_norm(norm, statistics, x, options.norm_momentum)
    return checkpoint_name(jax.nn.relu(x + y), "block_out"), new


def forward(params: Any, statistics: Any, images: jax.Array, options: ResnetOptions) -> tuple[jax.Array, Any]:
    """Images (batch, image, image, channels) to logits (batch, classes) float32, and the new running averages."""
    large = options.stem == "large"
    x = _conv(params["stem"]["conv"], images.astype(options.compute_dtype), 2 if large else 1)
    x, stem = _batch_norm(params["stem"]["norm"], statistics["stem"]["norm"], x, options.norm_momentum)
    x = checkpoint_name(_max_pool(jax.nn.relu(x), 3 if large else 2), "stem_out")
    stages = []
    for stage, blocks in enumerate(params["stages"]):
        stages.append([])
        for index, block in enumerate(blocks):
            x, new = _block(block, statistics["stages"][stage][index], x, stage, index, options)
            stages[-1].append(new)
    pooled = checkpoint_name(jnp.mean(x.astype(jnp.float32), axis=(1, 2)), "pooled")
    head = params["head"]["w"]
    logits = jnp.dot(
        pooled.astype(options.compute_dtype), head.astype(options.compute_dtype), preferred_element_type=jnp.float32
    )
    logits = checkpoint_name(logits + params["head"]["b"].astype(jnp.float32), "logits")
    return logits, {"stem": {"norm": stem}, "stages": stages}


def program(options: ResnetOptions) -> ModelProgram:
    """The model that `build("resnet", ...)` returns; its state has the running averages as `batch_stats`."""
    params, statistics, flop = table(options)

    def loss(params: Any, extra: Any, batch: Any) -> tuple[jax.Array, Any]:
        logits, new = forward(params, extra["batch_stats"], batch["images"], options)
        return cross_entropy(logits, batch["labels"]), {"batch_stats": new}

    batch, image, channels = options.batch, options.image, options.channels
    return assemble(
        options,
        params,
        loss,
        batch_specs={
            "images": jax.ShapeDtypeStruct((batch, image, image, channels), jnp.float32),
            "labels": jax.ShapeDtypeStruct((batch,), jnp.int32),
        },
        batch_axes={"images": ("batch", "height", "width", "channels"), "labels": ("batch",)},
        batches=lambda seed=0: image_batches(seed, batch, image, channels, options.classes),
        forward_matmul_flop=flop,
        extra_table={"batch_stats": statistics},
    )
