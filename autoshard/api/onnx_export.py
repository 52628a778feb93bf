"""A plan of an ONNX model, written back to the model's file format."""

from pathlib import Path
from typing import TYPE_CHECKING

from autoshard.errors import InputError

if TYPE_CHECKING:
    from autoshard.onnx.from_plan import Export
    from autoshard.plan_record import PlanRecord


def export_plan(plan: "PlanRecord", output: Path, *, name: str = "the plan") -> "Export":
    """Annotate a copy of the model that the plan's config names, and write it to `output`."""
    from autoshard.config.load import Config
    from autoshard.config.onnx_model import model_of
    from autoshard.onnx.annotate import write_annotated
    from autoshard.onnx.from_plan import annotate_plan

    config = None if plan.config is None else Config.from_dict(plan.config)
    if config is None or config.settings.model_file is None:
        raise InputError(
            f"{name} is not of an ONNX model: only what was read from one can be written back; solve a config with "
            "model: FILE.onnx"
        )
    model = model_of(config, with_shapes=True)
    if model.path is not None and output.resolve() == model.path.resolve():
        raise InputError(f"--output: {output} is the model of the plan, which is never changed; name another file")
    export = annotate_plan(plan, model, configuration=config.settings.configuration or "mesh")
    write_annotated(export.proto, model, output)
    return export
