"""Random JAX programs: a function that draws its ops while it is traced, so that a seed is a program.

Values keep a moderate size, so that float32 sums in another order stay within the tolerance. What decides by
comparing (sort, argmax, top_k, indices, predicates) takes *exact* values only: inputs, and what moves, negates, adds
or picks from exact values, because those are the same bits in every plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import drawn_arithmetic  # noqa: F401  (fills the table of ops)
import drawn_moves  # noqa: F401  (in this order: a seed is a program)
import jax
import jax.numpy as jnp
import numpy as np
from drawing import LARGEST, OPS, SIZES, Drawing, Known, NothingToDo


@dataclass(frozen=True)
class RandomProgram:
    """A function, its arguments, and the names of its ops in order."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    seed: int

    def __str__(self) -> str:
        return f"program {self.seed}"


def random_program(seed: int, *, ops: int = 4) -> RandomProgram:
    """The program of a seed: two to four float inputs, an integer one, a key; sometimes its gradients, or bfloat16."""
    random = Random(seed)
    rng = np.random.default_rng(seed)
    floats = []
    for _ in range(random.randint(2, 3)):
        shape = tuple(random.choice(SIZES) for _ in range(random.choice([1, 2, 2, 2, 3])))
        floats.append(jnp.asarray(rng.normal(size=shape), jnp.float32))
    if random.random() < 0.7:  # something to add to, and to multiply with
        floats.append(jnp.asarray(rng.normal(size=floats[0].shape), jnp.float32))
    integers = jnp.asarray(rng.integers(0, 12, tuple(random.choice(SIZES) for _ in range(random.choice([1, 2])))))
    differentiated, narrow = random.random() < 0.3, random.random() < 0.12
    count = random.randint(1, 2 if differentiated else ops)

    def body(floats: Any, integers: Any, key: Any) -> dict[str, Any]:
        typed = [x.astype(jnp.bfloat16) if narrow else x for x in floats]
        known = [*(Known(x, True) for x in typed), Known(integers.astype(jnp.int32), True)]
        drawing = Drawing(seed, known, key, differentiated)
        names = [n for n, (weight, _) in OPS.items() for _ in range(weight)]
        given = len(known)
        done: list[str] = []
        made: list[str] = []
        while len(done) < count:
            name = drawing.random.choice(names)
            try:
                new = OPS[name][1](drawing)
            except NothingToDo:
                continue
            new = new if isinstance(new, list) else [new]
            if any(k.x.size > 4 * LARGEST or k.rank > 5 for k in new):
                continue
            done.append(name)
            made += [name] * len(new)
            drawing.known += new
        return {f"{k}_{name}": v.x for k, (name, v) in enumerate(zip(made, drawing.known[given:], strict=True))}

    if not differentiated:
        return RandomProgram(body, (floats, integers, jax.random.key(seed)), seed)

    def loss(floats: Any, integers: Any, key: Any) -> Any:
        found = body(floats, integers, key)
        smooth = [
            jnp.sin(x).astype(jnp.float32).mean() for x in found.values() if jnp.issubdtype(x.dtype, jnp.floating)
        ]
        return sum(smooth, jnp.float32(0)), found

    def gradients(floats: Any, integers: Any, key: Any) -> Any:
        (value, found), grads = jax.value_and_grad(loss, has_aux=True)(floats, integers, key)
        last = dict(list(found.items())[-2:])
        return {"loss": value, "grads": grads, **last}

    return RandomProgram(gradients, (floats, integers, jax.random.key(seed)), seed)
