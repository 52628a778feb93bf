"""The end-to-end set of ONNX models: solved on 2 x 4, run on 8 simulated devices against onnxruntime, exported.

    python experiments/onnx_models/run.py [NAME...]

Exit code 1 if a model failed, or was left out because its package is not installed.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
warnings.simplefilter("ignore")

CONFIG = """\
model: {model}
shapes: {shapes}
mesh: {{data: 2, model: 4}}
hardware: tpu_v5e
baselines: []
"""


def session(model: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # with several the order of sums differs from run to run
    return onnxruntime.InferenceSession(str(model), options)


def raised(model: Path, ir_version: int) -> Any:
    """The model with another IR version: from 4 on onnxruntime takes initializers for constants and fuses more."""
    import onnx

    proto = onnx.load(model, load_external_data=False)
    proto.ir_version = ir_version
    other = model.with_name(f"{model.stem}_ir{ir_version}.onnx") if model.parent.name.startswith("tmp") else None
    if other is None:
        other = Path(tempfile.mkdtemp()) / model.name
    onnx.save(proto, other)
    return session(other)


def faults_for_onnx_ir(path: Path) -> int:
    """How many faults onnx-ir's own check of sharding annotations finds in a file."""
    import onnx_ir
    from onnx_ir._multi_device import _check_device_configurations as faults_of

    model = onnx_ir.load(path)
    assert model.device_configurations, "onnx-ir reads no annotations: nothing is judged"
    return len(faults_of(model))


def judge(case: Any, folder: Path) -> str:
    """One line about a model: every step was done, or an assertion says which was wrong."""
    import jax
    import numpy as np
    from models import inputs_of

    from autoshard.api.onnx_export import export_plan
    from autoshard.api.session import plan_config
    from autoshard.config.load import load_config
    from autoshard.config.onnx_model import model_of
    from autoshard.config.problem import build_problem
    from autoshard.onnx import load
    from autoshard.onnx.arguments import read_weights
    from autoshard.onnx.check import check
    from autoshard.onnx.function import function

    config = folder / f"{case.name}.yaml"
    config.write_text(CONFIG.format(model=case.path, shapes=case.shapes or "{}"))
    settings = load_config(config)
    began = time.monotonic()
    plan = plan_config(settings, build_problem(settings))
    solved_s = time.monotonic() - began
    model = load(case.path)
    made = function(model, case.shapes)
    inputs = inputs_of(case, made)
    found = plan.jit()(*plan.place(read_weights(made, model), inputs))
    runtime = session(case.path)
    types = {i.name: np.int64 if i.type == "tensor(int64)" else None for i in runtime.get_inputs()}
    feeds = {n: x if types[n] is None else x.astype(types[n]) for n, x in inputs.items()}
    wanted = runtime.run(None, feeds)
    worst = max(float(np.max(np.abs(np.asarray(found[n]) - w))) for n, w in zip(model.outputs, wanted))
    largest = max(float(np.max(np.abs(w))) for w in wanted)
    middle = float(np.median(np.abs(wanted[0])))
    assert worst <= 1e-4 * max(largest, 1e-3), f"{worst} of {largest}"
    output = case.path.with_name(f"{case.path.stem}_planned.onnx") if case.name == "transformer" else (
        folder / f"{case.name}_planned.onnx"
    )  # fmt: skip
    exported = export_plan(plan, output)
    model = model_of(settings, with_shapes=True)
    errors = len(check(load(output, shapes=model.shapes)).errors)
    judged_by_ir = faults_for_onnx_ir(output)
    same = raised(case.path, exported.proto.ir_version).run(None, feeds)
    again = session(output).run(None, feeds)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(same, again)), "annotations changed a result"
    back = folder / f"{case.name}_again.yaml"
    back.write_text(CONFIG.format(model=output, shapes=case.shapes or "{}") + "annotations: pins\n")
    settings = load_config(back)
    second = plan_config(settings, build_problem(settings))
    unsaid = f", {len(exported.unsaid)} not said" if exported.unsaid else ""
    jax.clear_caches()
    return (
        f"{case.name}: {len(model.graph.node)} nodes, {len(made.weights)} weights; {plan.status} "
        f"{plan.objective_s:.4g} s in {solved_s:.0f} s; off by {worst:.2g} of {largest:.2g} (median {middle:.2g}); "
        f"{exported.annotated} nodes annotated{unsaid}, "
        f"{errors} errors in check, {judged_by_ir} faults for onnx-ir; "
        f"read back {second.objective_s:.4g} s"
    )


def main() -> int:
    from models import cases

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        made = cases(Path(folder))
        parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is given: {', '.join(made)}")
        names = parser.parse_args().names
        if unknown := [name for name in names if name not in made]:
            parser.error(f"no model {unknown[0]!r}; there are {', '.join(made)}")
        for name in names or made:
            try:
                print(judge(made[name](), Path(folder)), flush=True)
            except ImportError as error:
                failed += 1
                print(f"{name}: left out, {error.name or error} is not installed", flush=True)
            except Exception as error:
                failed += 1
                print(f"{name}: FAILED: {type(error).__name__}: {str(error)[:400]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
