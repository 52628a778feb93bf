"""Synthetic batches that a model can learn: the loss falls within a few dozen steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

TOKENS_IN_USE = 64
SURPRISE = 0.1


def token_batches(seed: int, batch: int, seq: int, vocab: int) -> Iterator[dict[str, Any]]:
    """`tokens` and `targets` (batch, seq) int32 of a Markov chain: each token has one likely successor.

    Only a quarter of the vocabulary (at most 64 tokens) occurs; a model first learns which tokens these are.
    """
    fixed = np.random.default_rng([seed, 0])
    used = fixed.choice(vocab, size=max(1, min(TOKENS_IN_USE, vocab // 4)), replace=False)
    successor = fixed.permutation(len(used))
    step = 0
    while True:
        step += 1
        rng = np.random.default_rng([seed, step])
        walk = rng.integers(len(used), size=(batch, seq + 1))
        surprised = rng.random((batch, seq + 1)) < SURPRISE
        for t in range(1, seq + 1):
            walk[:, t] = np.where(surprised[:, t], walk[:, t], successor[walk[:, t - 1]])
        text = used[walk].astype(np.int32)
        yield {"tokens": text[:, :-1], "targets": text[:, 1:]}


def vector_batches(seed: int, batch: int, inputs: int, outputs: int, task: str) -> Iterator[dict[str, Any]]:
    """`x` (batch, inputs) float32 and `y`.

    Classification: `y` (batch,) int32 is the cluster that `x` was drawn around. Regression: `y` (batch, outputs)
    float32 is a fixed linear map of `x`.
    """
    fixed = np.random.default_rng([seed, 0]).normal(size=(outputs, inputs))
    step = 0
    while True:
        step += 1
        rng = np.random.default_rng([seed, step])
        noise = rng.normal(size=(batch, inputs))
        if task == "classification":
            y = rng.integers(outputs, size=batch)
            yield {"x": (fixed[y] + 0.3 * noise).astype(np.float32), "y": y.astype(np.int32)}
        else:
            yield {"x": noise.astype(np.float32), "y": (noise @ fixed.T / np.sqrt(inputs)).astype(np.float32)}


def image_batches(seed: int, batch: int, image: int, channels: int, classes: int) -> Iterator[dict[str, Any]]:
    """`images` (batch, image, image, channels) float32, a pattern per class under noise, and `labels` (batch,) int32.

    A pattern is made of two plane waves per channel, so that thousands of classes need little memory.
    """
    waves = np.random.default_rng([seed, 0]).normal(size=(classes, 2, 2, channels))
    grid = np.linspace(0, 2 * np.pi, image, endpoint=False)
    step = 0
    while True:
        step += 1
        rng = np.random.default_rng([seed, step])
        labels = rng.integers(classes, size=batch)
        rows, columns = np.moveaxis(waves[labels], 2, 0)  # (batch, wave, channel) each
        phase = rows[:, :, None, None] * grid[:, None, None] + columns[:, :, None, None] * grid[:, None]
        signal = np.sin(phase).sum(axis=1)
        noise = rng.normal(size=signal.shape) * 0.3
        yield {"images": (signal + noise).astype(np.float32), "labels": labels.astype(np.int32)}
