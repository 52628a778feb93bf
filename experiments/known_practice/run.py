"""Two layouts that practice knows and a serial sum misses: plans under both objectives, by their own estimates.

    python experiments/known_practice/run.py        # about a minute

Mixtral 8x7B on 8x8 H100: experts belong inside NVLink. Llama 3 8B with a small batch on 16x16 v5e: FSDP over all chips
and context parallelism in place of tensor parallelism.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

COMMON = {"param_dtype": "bfloat16", "compute_dtype": "bfloat16", "scan": True, "remat": True, "seq": 4096}
CASES = (
    ("Mixtral 8x7B, 64 x 4096, 8x8 H100", "moe", {"dims": "mixtral_8x7b", "batch": 64}, {"data": 8, "expert": 8},
     "h100"),
    ("Llama 3 8B, 16 x 4096, 16x16 v5e", "transformer", {"dims": "llama3_8b", "batch": 16}, {"data": 16, "model": 16},
     "tpu_v5e"),
)  # fmt: skip


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()

    import autoshard
    from autoshard.models import build

    print("| model, machine | objective | objective s | gap | serial s | estimate s | planned in s |")
    print("|---|---|---|---|---|---|---|")
    for title, model, options, mesh, hardware in CASES:
        program = build(model, **COMMON, **options)
        for objective in ("serial", "overlap"):
            began = time.monotonic()
            plan = autoshard.plan(
                program.step, *program.specs, mesh=mesh, hardware=hardware, objective=objective,
                donate_argnums=program.donate_argnums, memory_limit="none",
            )  # fmt: skip
            figures = (plan.objective_s, plan.gap, plan.cost.step_s, plan.step_time.estimate_s)
            shown = " | ".join(f"{x:.4g}" for x in figures)
            print(f"| {title} | {objective} | {shown} | {time.monotonic() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
