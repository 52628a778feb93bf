"""Random JAX functions: our propagation over the traced function against Shardy's over the module JAX lowers it to.

    python experiments/propagation_diff/functions.py --cases 1000 [--calls]

Functions of one to eight steps on 8x8 arrays, with loops and branches in one another, gradients, remat, constants and
constraints, some within loops; a third of the arguments are stated. Compared are the axes of arguments and results
(tests/propagation/against_shardy.py). Dead code is removed first: Shardy looks at it before it goes. With --calls
some steps are calls of jitted functions, which Shardy keeps apart and a traced function does not.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cases import run, work

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "propagation"))

SIZE = 8
WITHIN_GRADIENTS = ("dot", "add", "tanh", "transpose", "mean", "constant")
PLAIN = (*WITHIN_GRADIENTS, "constraint")
INNER = ("fori", "scan of stacks", "cond", "scan")
ALL = (*PLAIN, "remat", "fori", "while", "scan", "scan of stacks", "reverse scan", "cond", "gradient")
CALL = "call"


def some_spec(chance: random.Random) -> Any:
    """Axes on some dimensions, others closed or left open."""
    from jax.sharding import PartitionSpec as P

    axes = ["data", "model"]
    chance.shuffle(axes)
    free = (None, P.UNCONSTRAINED, P.UNCONSTRAINED)
    return P(*[axes.pop() if axes and chance.random() < 0.4 else chance.choice(free) for _ in range(2)])


def steps(seed: float, values: Sequence[Any], depth: int, kinds: Sequence[str], most: int = 2) -> list[Any]:
    """The values, and those of one to `most` steps from them."""
    chance, values = random.Random(seed), list(values)
    for _ in range(chance.randint(1, most)):
        a = values[-1] if depth else chance.choice(values)
        values += step(chance, a, chance.choice(values), depth, chance.choice(kinds))
    return values


def step(chance: random.Random, a: Any, b: Any, depth: int, kind: str) -> list[Any]:
    """What a step of this kind makes of two arrays; the bodies of loops and branches are steps one level deeper."""
    import jax
    import jax.numpy as jnp
    from against_shardy import JAX_MESH
    from jax.sharding import NamedSharding

    seed = chance.random()

    def body(*values: Any, seed: float = seed) -> list[Any]:
        within = WITHIN_GRADIENTS if kind == "gradient" else PLAIN if depth else (*PLAIN, *PLAIN, *INNER)
        return steps(seed, values, depth + 1, within)[len(values) - 1 :]

    def unstacked(carry: Any, _: None) -> tuple[Any, Any]:
        made = body(carry, b)
        return made[-1], made[0].sum(0)

    def of_stacks(carry: Any, x: Any) -> tuple[Any, Any]:
        last = body(carry, carry + x, b)[-1]
        return last, last[0] * x

    match kind:
        case "dot":
            return [a @ b]
        case "add":
            return [a + b]
        case "tanh":
            return [jnp.tanh(a)]
        case "transpose":
            return [a.T]
        case "mean":
            return [a - b.mean(1, keepdims=True)]
        case "constant":
            ramp = jnp.arange(float(SIZE))
            return [a * chance.choice([jnp.ones((SIZE, SIZE)), ramp[None], ramp[:, None], jnp.eye(SIZE)])]
        case "constraint":
            return [jax.lax.with_sharding_constraint(a, NamedSharding(JAX_MESH, some_spec(chance)))]
        case "remat":
            return [jax.checkpoint(lambda p, q: jnp.tanh(p @ q))(a, b)]
        case "call":
            return [jax.jit(lambda p, q: jnp.tanh(p) + q)(a, b)]
        case "fori":
            return [jax.lax.fori_loop(0, 3, lambda i, c: body(c, a, b)[-1], a)]
        case "while":
            return [jax.lax.while_loop(lambda c: (c * b).sum() < 3, lambda c: body(c, b)[-1], a)]
        case "scan":
            return list(jax.lax.scan(unstacked, a, None, length=SIZE))
        case "scan of stacks" | "reverse scan":
            return list(jax.lax.scan(of_stacks, b, a, reverse=kind == "reverse scan"))
        case "cond":
            other = chance.random()
            return [
                jax.lax.cond(a.sum() > 0, lambda p, q: body(p, q)[-1], lambda p, q: body(p, q, seed=other)[-1], a, b)
            ]
        case "gradient":
            return [jax.grad(lambda p: body(p, b)[-1].sum())(a)]
    raise AssertionError(kind)


def function_of(seed: int, calls: bool) -> Callable[..., tuple[Any, ...]]:
    """A function of three arrays that returns what each of its steps makes, without dead code."""
    import jax
    import jax.numpy as jnp
    from jax.extend.core import jaxpr_as_fun
    from jax.interpreters import partial_eval

    kinds = (*ALL, CALL) if calls else ALL
    most = random.Random(seed).choice((1, 2, 4, 8))
    arrays = [jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32)] * 3
    traced = jax.make_jaxpr(lambda *given: tuple(steps(seed, given, 0, kinds, most)[3:]))(*arrays)
    alive, _ = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    return jaxpr_as_fun(traced.replace(jaxpr=alive))


def compare(seed: int, calls: bool) -> tuple[str, str]:
    """The verdict of one case, and where the two differ."""
    from against_shardy import ours_and_shardys
    from programs import axes_of

    chance = random.Random(seed + 10**6)
    specs = [some_spec(chance) if chance.random() < 0.6 else None for _ in range(3)]
    ours, theirs = ours_and_shardys(function_of(seed, calls), [(SIZE, SIZE)] * 3, specs)
    wrong = [
        f"{place}: {other} against our {mine}"
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True))
        if axes_of(mine) != axes_of(other)
    ]
    return ("different", "; ".join(wrong)) if wrong else ("equal", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--calls", action="store_true", help="some steps call jitted functions")
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, lambda seed: compare(seed, args.calls))
        return
    counts, different = run(__file__, args.first, args.cases, *(["--calls"] if args.calls else []))
    print(counts)
    print("different:", different)


if __name__ == "__main__":
    main()
