"""What does attention over blocks cost at length, with its loops as they stand and in parts, beside a named strategy?

    python experiments/long_context/run.py [--seconds 200] [--only NAME ...] [--output results.csv]
    python experiments/long_context/run.py --values

Each row is the train step of Llama 3 8B on 256 chips of TPU v5e (16x16), in a process of its own: planned within the
memory of the device, or priced by the named strategy fsdp+context without a limit (the plan beside that is what half
of the time finds). With ``--values`` blockwise attention and its gradients run on eight simulated devices, cut
along the sequence in each way, and are compared with float64 on one device.
"""

import argparse
import json
import os
import resource
import subprocess
import sys

PROGRAMS = {  # name: sequences, tokens of each, rows of a block (0: no blocks), parts
    "4k": (16, 4096, 0, 1),
    "4k blocks": (16, 4096, 512, 1),
    "4k blocks in parts": (16, 4096, 512, 16),
    "128k": (2, 131_072, 0, 1),
    "128k blocks in parts": (2, 131_072, 512, 16),
}
NAMED = "fsdp+context"


def planned(name: str, seconds: float, limit: bool) -> dict[str, object]:
    """One plan; without a limit the named strategy is priced too."""
    import autoshard
    from autoshard.models import build

    batch, seq, block, parts = PROGRAMS[name]
    model = build(
        "transformer", dims="llama3_8b", batch=batch, seq=seq, attention_block=block or None, scan=True, remat=True,
        param_dtype="bfloat16", compute_dtype="bfloat16",
    )  # fmt: skip
    asked = {} if limit else {"memory_limit": "none"}
    try:
        plan = autoshard.plan(
            model.step, *model.specs, mesh={"data": 16, "model": 16}, hardware="tpu_v5e", argnames=model.argnames,
            donate_argnums=model.donate_argnums, roles=model.logical_axes, loop_parts=parts, time_limit=seconds,
            baselines=[NAMED], **asked,
        )  # fmt: skip
    except autoshard.AutoshardError as error:
        return {"plan_s": None, "why": str(error).splitlines()[0]}
    row: dict[str, object] = {
        "plan_s": plan.objective_s, "gap": plan.gap, "peak_GiB": round(plan.memory.peak_bytes / 2**30, 2),
        "collectives": int(plan.collectives["times"].sum()),
    }  # fmt: skip
    for baseline in plan.baselines:
        peak = baseline.peak_bytes
        row |= {"named_s": baseline.objective_s, "named_GiB": None if peak is None else round(peak / 2**30, 2)}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {**row, "cpu_s": round(usage.ru_utime + usage.ru_stime, 1)}


def values() -> int:
    """Run attention with its gradients on eight devices: by gathering, all-to-alls, and a ring in both orders."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import autoshard
    from autoshard.models.layers import attention
    from autoshard.models.ring import ring_attention
    from autoshard.models.zigzag import zigzag_attention

    jax.config.update("jax_enable_x64", True)  # for the judge: sums of a million numbers are off by 1e-4 in float32

    def in_blocks(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.square(attention(q, k, v, block=16)).mean()

    def in_a_ring(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.square(ring_attention(q, k, v, 8)).mean()

    def in_zigzag(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.square(zigzag_attention(q, k, v, 8)).mean()

    worst = 0.0
    ring = [autoshard.Pin("@ring_*", '[{"context"}, {}, {}, {}, {}]')]
    rounds = [autoshard.Pin("@ring_*", '[{"context"}, {}, {}, {}, {}, {}]')]
    ways = (
        ("keys and values gathered", 2, in_blocks, []),
        ("all-to-all on heads", 8, in_blocks, []),
        ("ring of permutes", 2, in_a_ring, ring),
        ("ring of permutes, zigzag", 2, in_zigzag, rounds),
    )
    for way, heads, loss, stated in ways:
        step = jax.value_and_grad(loss, argnums=(0, 1, 2))
        specs = (jax.ShapeDtypeStruct((2, 1024, heads, 64), jnp.float32),) * 3
        pins = [autoshard.Pin(name, '[{}, {"context"}, {}, {}]') for name in ("q", "k", "v", "out/1/*")] + stated
        plan = autoshard.plan(step, *specs, mesh={"context": 8}, hardware="tpu_v5e", constraints=pins, loop_parts=8)
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(s.shape, np.float32) for s in specs]
        ours, theirs = plan.jit()(*plan.place(*arrays)), jax.jit(step)(*(x.astype(np.float64) for x in arrays))
        off = [
            float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
        ]
        worst = max(worst, *off)
        kinds = plan.collectives.groupby("kind")["times"].sum().to_dict()
        flop = plan.step_time.matmul_flop_per_device
        told = f"collectives {kinds}, {flop:.2e} matmul FLOP a device"
        print(f"{way}: {told}, largest difference {max(off):.1e} of the largest element")
    return 0 if worst < 1e-5 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=200, help="time limit of each plan")
    parser.add_argument("--only", nargs="*", choices=sorted(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output")
    given = parser.parse_args()
    if given.values:
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        return values()
    if given.one:
        print(json.dumps(planned(given.one[0], given.seconds, given.one[1] == "limit")))
        return 0
    import pandas as pd

    rows = []
    for name in given.only:
        for limit in ("limit", "none"):
            seconds = given.seconds if limit == "limit" else given.seconds / 2
            command = [sys.executable, __file__, "--seconds", str(seconds), "--one", name, limit]
            done = subprocess.run(command, capture_output=True, text=True)
            told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"why": done.stderr[-300:]}
            rows.append({"program": name, "memory": limit, **told})
            print(rows[-1], flush=True)
    if given.output:
        pd.DataFrame(rows).to_csv(given.output, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
