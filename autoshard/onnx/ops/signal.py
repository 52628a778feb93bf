"""Signals: Fourier transforms, windows of them, and the matrix of mel bands."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from autoshard.onnx.ops.registry import Node, op


@op("DFT", since=17, static=(1,))
def dft_by_attribute(node: Node, x: Any, length: Any = None) -> Any:
    """DFT before opset 20: the axis is an attribute."""
    return _dft(node, x, length, node["axis"])


@op("DFT", since=20, static=(1, 2))
def dft(node: Node, x: Any, length: Any = None, axis: Any = None) -> Any:
    """DFT since opset 20: the axis is an input. Real and imaginary parts are the last axis."""
    return _dft(node, x, length, -2 if axis is None else int(axis.reshape(())))


def _dft(node: Node, x: Any, length: Any, axis: int) -> Any:
    axis = axis % x.ndim
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    wanted = None if length is None else int(np.asarray(length).reshape(()))
    if wanted is None:
        wanted = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    signal = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if inverse and onesided:
        return jnp.fft.irfft(signal, wanted, axis)[..., None].astype(x.dtype)
    out = (jnp.fft.ifft if inverse else jnp.fft.fft)(signal, wanted, axis)
    if onesided:
        out = jnp.take(out, np.arange(wanted // 2 + 1), axis=axis)
    return _pairs(out, x)


def _pairs(complex_: Any, like: Any) -> Any:
    return jnp.stack([jnp.real(complex_), jnp.imag(complex_)], axis=-1).astype(like.dtype)


@op("STFT", since=17, static=(1, 3))
def stft(node: Node, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """STFT: Fourier transforms of windows that begin every `step` samples."""
    hop = int(np.asarray(step).reshape(()))
    if length is not None:
        size = int(np.asarray(length).reshape(()))
    else:
        size = x.shape[1] if window is None else window.shape[0]
    frames = 1 + (x.shape[1] - size) // hop
    signal = x if x.ndim == 2 else x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    at = np.arange(frames)[:, None] * hop + np.arange(size)
    parts = jnp.take(signal, at.astype(np.int32), axis=1)
    if window is not None:
        parts = parts * window
    out = jnp.fft.fft(parts, axis=-1)
    return _pairs(out[..., : size // 2 + 1] if node["onesided"] else out, x)
