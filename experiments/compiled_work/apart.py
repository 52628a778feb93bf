"""When is an update better kept apart from its matmul? Train steps of one chip, with and without a barrier in between.

    python experiments/compiled_work/apart.py tpu_v5e,tpu_v5p,tpu_v6e --rows 1024,4096 --types float32,bfloat16

An MLP of 4096 x 8192 x 4096 with Adam: its matmuls of gradients have an operand of rows x 4096 and one of rows x 8192
elements. Each program is compiled ahead of time twice, as it stands and with a barrier before every update, and
timed on the compiler's schedule (docs/simulation.md). Needs libtpu and no TPU; half a minute each.
"""

import argparse
import sys
from pathlib import Path

from run import TOPOLOGY

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import counts, names_of

WIDTH, HIDDEN = 4096, 8192
BYTES = {"float32": 4, "bfloat16": 2}


def seconds(chip: str, rows: int, dtype: str) -> list[float]:
    """Of a step by the compiler's schedule: as it stands, and with the updates kept apart."""
    from jax.experimental import topologies

    import autoshard
    from autoshard.api.targets import Target
    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.costmodels.profile import Quantity
    from autoshard.costs.apart import barriers
    from autoshard.lowering.lower import lower
    from autoshard.models import build
    from autoshard.simulation import tpu
    from autoshard.simulation.scheduled import read_module
    from autoshard.simulation.timeline import timeline

    options = {} if dtype == "float32" else {"compute_dtype": dtype}
    model = build("mlp", inputs=WIDTH, hidden=HIDDEN, outputs=WIDTH, layers=2, batch=rows, **options)
    plan = autoshard.plan(
        model.step, *model.specs, mesh={"x": 1}, hardware=chip, donate_argnums=model.donate_argnums, memory_limit="none"
    )
    profile, out = load_profile(chip), []
    devices = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY[chip]).devices[:1]
    for size in ({}, {"bf16": Quantity(value=1, unit="bytes", source="libtpu")}):
        memory = profile.memory.model_copy(update={"on_chip": size})
        apart = barriers(plan.program, plan.schedule, profile.model_copy(update={"memory": memory}))
        text = tpu.compiled(Target("explicit", lower(plan.traced, plan.schedule, apart=apart)).staged(devices)).text
        out.append(timeline(read_module(text), place_mesh(profile, {"x": 1})).seconds)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chips", type=names_of(TOPOLOGY, "chip"))
    parser.add_argument("--rows", type=counts, default="1024,2048,3072,4096,6144,8192")
    parser.add_argument("--types", type=names_of(BYTES, "type"), default="float32,bfloat16")
    arguments = parser.parse_args()
    from autoshard.simulation.ahead import prepare

    prepare()
    print("| chip | type | rows | smaller operand, MiB | fused, ms | apart, ms | |\n|---|---|---|---|---|---|---|")
    for chip in arguments.chips:
        for dtype in arguments.types:
            for rows in arguments.rows:
                fused, apart = seconds(chip, rows, dtype)
                size = rows * WIDTH * BYTES[dtype] / 2**20
                row = f"| {chip} | {dtype} | {rows} | {size:g} | {1e3 * fused:.2f} | {1e3 * apart:.2f} "
                print(f"{row}| {apart / fused - 1:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
