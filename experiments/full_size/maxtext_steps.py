"""MaxText: its own train step with its own state, as its `train_compile` makes them, for models that it ships."""

from contextlib import ExitStack
from pathlib import Path

from steps import DEVICES, LENGTH, ROWS, Step, bare, listed, mesh_of


def _decoder(model: str, *stated: str) -> Step:
    """The step of a model; statements are `name=value`, as on MaxText's command line."""
    import maxtext
    from flax.linen import partitioning
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train, train_compile
    from maxtext.utils import maxtext_utils, sharding

    base = str(Path(maxtext.__path__[0]) / "configs" / "base.yml")
    config = pyconfig.initialize(
        [
            "", base, "run_name=full_size", f"model_name={model}", f"max_target_length={LENGTH}",
            f"per_device_batch_size={ROWS // DEVICES}", f"ici_fsdp_parallelism={DEVICES}", "dataset_type=synthetic",
            "attention=dot_product", "skip_jax_distributed_system=true", "enable_checkpointing=false", *stated,
        ]
    )  # fmt: skip
    mesh = mesh_of(**{axis: DEVICES if axis == "fsdp" else 1 for axis in config.mesh_axes})
    arguments, _, state, _, graph = train_compile.get_shaped_inputs(mesh, config)
    params, state = sharding.maybe_update_params_sharding_with_opt(config, state)
    rows = sharding.get_input_data_sharding(config, mesh)
    step, inside, out, *_ = maxtext_utils.get_functional_train_with_signature(
        train.train_step, rows, state, graph, config, params
    )

    def within() -> ExitStack:
        # jax.set_mesh, which MaxText enters too, would make of its constraints some that name no devices
        stack = ExitStack()
        for context in (mesh, partitioning.axis_rules(config.logical_axis_rules)):
            stack.enter_context(context)
        return stack

    return Step(step, bare(arguments), {"in_shardings": inside, "out_shardings": out}, within)


@listed("maxtext", "flax", "optax")
def maxtext_llama31_8b() -> Step:
    """MaxText llama3.1-8b: 32 layers in a scan, recomputed whole, weights and moments of AdamW in float32."""
    return _decoder("llama3.1-8b")


@listed("maxtext", "flax", "optax")
def maxtext_mixtral_8x7b() -> Step:
    """MaxText mixtral-8x7b: the same, with 8 experts that take 1.25 times their share of tokens."""
    return _decoder("mixtral-8x7b", "sparse_matmul=false", "megablox=false", "capacity_factor=1.25")
