"""Time of our user-priority propagation against Shardy's on unrolled transformer train steps.

    python experiments/propagation_speed/run.py --layers 1 8 32 64

Both start from the same imported module (rules populated), so only propagation is timed; for ours also the time to
build the graph from the module and to write the shardings back. Each is done several times; the fastest counts.
Both run on one thread, so the ratio of CPU seconds is what the ratio of wall seconds is on an idle machine.
"""

import argparse
import os
import time
from dataclasses import dataclass

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs on a device

import jax
import jax.numpy as jnp


def train_step_text(layers: int) -> str:
    """StableHLO of a train step: attention, gated mlp, cross entropy, Adam; batch on data, weights on model."""
    d, f, heads, vocab, batch, seq = 256, 1024, 8, 1024, 16, 128

    def norm(x, g):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g

    def block(p, x):
        h = norm(x, p["g1"])
        q, k, v = (jnp.einsum("bsd,dhk->bshk", h, p[n]) for n in ("wq", "wk", "wv"))
        logits = jnp.einsum("bqhk,bshk->bhqs", q, k) / 5.6
        mask = jnp.tril(jnp.ones((seq, seq), bool))
        a = jax.nn.softmax(jnp.where(mask, logits, -1e9), -1)
        x = x + jnp.einsum("bqhk,hkd->bqd", jnp.einsum("bhqs,bshk->bqhk", a, v), p["wo"])
        h = norm(x, p["g2"])
        return x + (jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])) @ p["w2"]

    def loss(params, tokens, targets):
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = block(p, x)
        logits = x @ params["out"]
        z = jax.nn.logsumexp(logits, -1)
        return jnp.mean(z - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0])

    def step(state, tokens, targets):
        params, m, v = state
        g = jax.grad(loss)(params, tokens, targets)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
        params = jax.tree.map(lambda p, a, b: p - 1e-3 * a / (jnp.sqrt(b) + 1e-8), params, m, v)
        return params, m, v

    k = d // heads
    shapes = {
        "g1": (d,),
        "g2": (d,),
        "wq": (d, heads, k),
        "wk": (d, heads, k),
        "wv": (d, heads, k),
        "wo": (heads, k, d),
    }
    shapes |= {"w1": (d, f), "w3": (d, f), "w2": (f, d)}
    spec = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in shapes.items()}
    params = {
        "embed": jax.ShapeDtypeStruct((vocab, d), jnp.float32),
        "out": jax.ShapeDtypeStruct((d, vocab), jnp.float32),
        "layers": [dict(spec) for _ in range(layers)],
    }
    tokens = jax.ShapeDtypeStruct((batch, seq), jnp.int32)
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    p = jax.sharding.PartitionSpec
    u = jax.sharding.PartitionSpec.UNCONSTRAINED

    def put(x, *axes):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh, p(*axes)))

    tokens = put(tokens, "data", u)
    for layer in params["layers"]:
        layer["w1"] = put(layer["w1"], u, "model")
        layer["wq"] = put(layer["wq"], u, "model", u)
        layer["wo"] = put(layer["wo"], "model", u, u)
    state = (params, params, params)
    return jax.jit(step).trace(state, tokens, tokens).lower(lowering_platforms=("cpu",)).as_text()


@dataclass
class Times:
    """Wall seconds of one run: Shardy's, and ours for reading, propagating and writing (and the collector afterwards).

    theirs_cpu, total_cpu: CPU seconds.
    """

    theirs: float
    read: float
    propagate: float
    write: float
    total: float
    theirs_cpu: float
    total_cpu: float


def measure(imported: str) -> tuple[Times, str, str, int]:
    """Times, the two results as text, and the number of ops; the module must be imported, with rules."""
    from autoshard.frontends.mlir.context import module_text, parse_module, run_passes
    from autoshard.garbage import uncollected
    from autoshard.propagation.engine import Strategy, run_propagation
    from autoshard.propagation.mlir.graph import build_module_graph
    from autoshard.propagation.mlir.passes import export_passes

    module = parse_module(imported)
    start, cpu = time.perf_counter(), time.process_time()
    run_passes(module, "sdy-user-priority-propagate{keep-sharding-rules=true}")
    theirs, theirs_cpu = time.perf_counter() - start, time.process_time() - cpu
    run_passes(module, export_passes())
    wanted = module_text(module)
    module = parse_module(imported)
    begin, cpu = time.perf_counter(), time.process_time()
    with uncollected():
        built = build_module_graph(module)
        read = time.perf_counter()
        run = run_propagation(built.graph, Strategy.USER_PRIORITY)
        propagated = time.perf_counter()
        built.write(list(run.erased))
        written = time.perf_counter()
    end, total_cpu = time.perf_counter(), time.process_time() - cpu
    run_passes(module, export_passes())
    times = Times(theirs, read - begin, propagated - read, written - propagated, end - begin, theirs_cpu, total_cpu)
    return times, module_text(module), wanted, len(built.graph.nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
    from autoshard.propagation.mlir.passes import import_passes

    print(
        f"{'layers':>6} {'ops':>6} {'Shardy s':>9} {'read s':>8} {'ours s':>7} {'write s':>8} "
        f"{'ratio':>6} {'CPU ratio':>9} equal"
    )
    for layers in args.layers:
        module = parse_module(train_step_text(layers))
        with mlir_context():
            run_passes(module, import_passes() + ",func.func(sdy-populate-op-sharding-rules)")
            runs = [measure(module_text(module)) for _ in range(args.repeat)]
        best = min((r[0] for r in runs), key=lambda t: t.total)
        theirs = min(r[0].theirs for r in runs)
        cpu_ratio = min(r[0].total_cpu for r in runs) / min(r[0].theirs_cpu for r in runs)
        equal = all(ours == wanted for _, ours, wanted, _ in runs)
        print(
            f"{layers:6d} {runs[0][3]:6d} {theirs:9.3f} {best.read:8.3f} {best.propagate:7.3f} {best.write:8.3f} "
            f"{best.total / theirs:6.2f} {cpu_ratio:9.2f} {equal}",
            flush=True,
        )


if __name__ == "__main__":
    main()
