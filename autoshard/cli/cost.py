"""``autoshard cost``: small questions about a machine, without a program.

``cost --model NAME ...`` asks for a strategy on a named model; the other questions are commands of their own.
"""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Annotated, Any, get_args

import typer

from autoshard.cli.common import (
    assignments,
    grouped,
    is_size,
    json_text,
    links_option,
    mesh_option,
    number_or_text,
    reports_errors,
)
from autoshard.errors import InputError

app = typer.Typer(
    name="cost",
    help="Small questions without a program: a collective, a sharded matmul, a strategy on a named model, serving it.",
    no_args_is_help=True,
)

Hardware = Annotated[str, typer.Option(help="A profile's name, or the path of a YAML profile.")]
MeshText = Annotated[str, typer.Option("--mesh", help="Sizes by axis, outermost first: x=8,y=4.")]
SliceShape = Annotated[
    str | None, typer.Option(help="Shape of one slice of a torus, chips by dimension: 16x20x28. Chosen if not given.")
]
Links = Annotated[list[str] | None, typer.Option("--link", help="Put an axis on a link: data=dcn. May be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


Model = Annotated[str, typer.Option("--model", help="A model of costmodels/model_cards.yaml, such as llama3_70b.")]
Strategy = Annotated[
    str, typer.Option("--strategy", help="Parts joined by +, each on the mesh axis named for it: fsdp+tensor.")
]
Dtype = Annotated[str, typer.Option(help="Element type of weights and activations.")]


@dataclass(frozen=True)
class StepOptions:
    """How a training step of a model is run, as `ask_strategy` takes it."""

    seq: Annotated[int | None, typer.Option(help="Sequence length; the model's own where not given.", min=1)] = None
    dtype: Dtype = "bfloat16"
    microbatches: Annotated[
        int | None, typer.Option(help="Of a pipeline; without one, of gradient accumulation.", min=1)
    ] = None
    repeats: Annotated[int, typer.Option(help="Stages of a pipeline on each device (interleaving).", min=1)] = 1
    pieces: Annotated[
        int, typer.Option(help="Of fsdp: collectives in which it gathers the weights of a layer.", min=1)
    ] = 1
    efficiency: Annotated[
        float | None,
        typer.Option(help="Share of the peak rate that work reaches; the profile's, for the estimate, if not given."),
    ] = None
    recompute: Annotated[float, typer.Option(help="Share of the forward work that is done again (remat).")] = 0.0


@dataclass(frozen=True)
class MeshOnMachine:
    """How the axes of a mesh lie on the links of a machine."""

    link: Links = None
    slice_shape: SliceShape = None

    def arguments(self) -> dict[str, Any]:
        """`links` and `slice_shape` as the questions take them."""
        return {"links": links_option(self.link or ()), "slice_shape": _shape(self.slice_shape)}


@app.callback(invoke_without_command=True)
@reports_errors
@grouped
def model_step(
    context: typer.Context,
    *,
    model: Annotated[str | None, get_args(Model)[1]] = None,
    strategy: Annotated[str | None, get_args(Strategy)[1]] = None,
    mesh: Annotated[
        str | None, typer.Option("--mesh", help="Sizes by axis, outermost first: fsdp=64,tensor=8.")
    ] = None,
    batch_tokens: Annotated[str | None, typer.Option(help="Tokens of the whole batch: 4e6.")] = None,
    hardware: Annotated[str | None, typer.Option(help="A profile's name, or the path of a YAML profile.")] = None,
    step: StepOptions,
    on_machine: MeshOnMachine,
    as_json: AsJson = False,
) -> None:
    """A training step of a named model under a strategy: collectives, step time, MFU, verdicts."""
    required = {
        "--model": model,
        "--strategy": strategy,
        "--mesh": mesh,
        "--batch-tokens": batch_tokens,
        "--hardware": hardware,
    }
    if context.invoked_subcommand is not None:
        if stray := _given(context):
            raise InputError(
                f"{stray[0]} before {context.invoked_subcommand!r}: write it behind, or leave the command out"
            )
        return
    if missing := [option for option, value in required.items() if value is None]:
        commands = typer.main.get_group(app).list_commands(context)
        raise InputError(
            f"autoshard cost needs {', '.join(missing)} for a strategy on a model, or a command: {', '.join(commands)}"
        )
    from autoshard.costmodels.strategy_questions import ask_strategy

    assert model is not None and strategy is not None and mesh is not None and hardware is not None
    answer = ask_strategy(
        model,
        strategy,
        mesh_option(mesh),
        _positive("--batch-tokens", str(batch_tokens)),
        hardware,
        **asdict(step),
        **on_machine.arguments(),
    )
    if as_json:
        tell(answer.to_dict(), True)
    else:
        from autoshard.report.answers import strategy_text

        print(strategy_text(answer.to_dict()))


def _given(context: typer.Context) -> list[str]:
    """The options that the command line has, as they are called."""
    sources = {p.opts[0]: context.get_parameter_source(p.name or "") for p in context.command.params}
    return [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


@app.command()
@reports_errors
@grouped
def critical_batch(
    *,
    model: Model,
    strategy: Strategy,
    mesh: MeshText,
    hardware: Hardware,
    batch_tokens: Annotated[
        str | None, typer.Option(help="Tokens of the whole batch, for the best split of fsdp+tensor.")
    ] = None,
    dtype: Dtype = "bfloat16",
    on_machine: MeshOnMachine,
    as_json: AsJson = False,
) -> None:
    """Batch and axis sizes at which each part of a strategy turns compute bound."""
    from autoshard.costmodels.hardware_tables import critical_intensities
    from autoshard.costmodels.load import load_profile
    from autoshard.costmodels.strategy_questions import ask_critical_batch

    rows = ask_critical_batch(
        model,
        strategy,
        mesh_option(mesh),
        hardware,
        batch_tokens=None if batch_tokens is None else _positive("--batch-tokens", batch_tokens),
        dtype=dtype,
        **on_machine.arguments(),
    )
    answer = {
        "model": model,
        "strategy": strategy,
        "hardware": hardware,
        "critical": rows,
        "machine_flops_per_byte": critical_intensities(load_profile(hardware), dtype),
    }
    tell(answer, as_json)


@app.command()
@reports_errors
@grouped
def collective(
    *,
    kind: Annotated[
        str,
        typer.Option(help="all-gather, reduce-scatter, all-reduce, all-to-all, permute, any-permute or slice."),
    ],
    amount: Annotated[
        str, typer.Option("--bytes", help="The whole array on the axes: what an all-gather returns. 2e9, 64MiB.")
    ],
    mesh: MeshText,
    axes: Annotated[str, typer.Option(help="The axes (or sub-axes, y:(1)2) it runs over, major to minor: x,y.")],
    hardware: Hardware,
    on_machine: MeshOnMachine,
    in_network_reduction: Annotated[bool, typer.Option(help="Of an all-reduce: let switches add (SHARP).")] = False,
    as_json: AsJson = False,
) -> None:
    """How long one collective takes, what bounds it, and the links it uses."""
    from autoshard.costmodels.questions import ask_collective

    answer = ask_collective(
        kind,
        bytes_option(amount),
        mesh_option(mesh),
        names_option(axes),
        hardware,
        **on_machine.arguments(),
        in_network_reduction=in_network_reduction,
    )
    tell(answer.to_dict(), as_json)


@app.command()
@reports_errors
@grouped
def matmul(
    *,
    text: Annotated[str, typer.Argument(help="MaxText notation: 'B_x E @ E M -> B_x M'.")],
    dim: Annotated[list[str], typer.Option(help="Size of a dimension: B=4096. May be repeated.")],
    mesh: MeshText,
    hardware: Hardware,
    dtype: Dtype = "bfloat16",
    storage: Annotated[
        str | None,
        typer.Option(help="Types in which left, right and result are held and sent: bfloat16,int8,bfloat16."),
    ] = None,
    pad_tiles: Annotated[bool, typer.Option(help="Pad local dimensions to whole tiles of the matrix unit.")] = False,
    on_machine: MeshOnMachine,
    as_json: AsJson = False,
) -> None:
    """The collectives, the time and the verdict of one sharded matmul."""
    from autoshard.costmodels.questions import ask_matmul

    answer = ask_matmul(
        text,
        assignments("--dim", dim),
        mesh_option(mesh),
        hardware,
        dtype=dtype,
        storage=[name.strip() for name in storage.split(",")] if storage is not None else None,
        pad_tiles=pad_tiles,
        **on_machine.arguments(),
    )
    tell(answer.to_dict(), as_json)


Narrower = Annotated[str | None, typer.Option(help="Another type; that of --dtype if not given.")]


@app.command("model")
@reports_errors
def model_counts(
    name: Annotated[str, typer.Argument(help="A model, such as llama3_70b, or the path of a card in YAML.")],
    seq: Annotated[int | None, typer.Option(help="Sequence length; the model's own where not given.")] = None,
    dtype: Dtype = "bfloat16",
    kv_dtype: Narrower = None,
    as_json: AsJson = False,
) -> None:
    """Parameters of a model, FLOP per token, and what weights, optimizer and key/value caches hold."""
    from autoshard.costmodels.model_questions import ask_model

    tell(ask_model(name, seq=seq, dtype=dtype, kv_dtype=kv_dtype).to_dict(), as_json)


@app.command()
@reports_errors
def inference(
    model: Model,
    devices: Annotated[int, typer.Option(help="Devices over which weights and caches are cut.")],
    hardware: Hardware,
    batch: Annotated[int, typer.Option(help="Sequences that generate at once.")] = 1,
    context: Annotated[int | None, typer.Option(help="Tokens of each; the model's own where not given.")] = None,
    tensor: Annotated[int | None, typer.Option(help="Devices that share a copy of the weights; all of them.")] = None,
    dtype: Dtype = "bfloat16",
    weight_dtype: Narrower = None,
    kv_dtype: Narrower = None,
    as_json: AsJson = False,
) -> None:
    """The least time of generating one token for each sequence, and what fits."""
    from autoshard.costmodels.model_questions import ask_inference

    answer = ask_inference(
        model,
        devices,
        hardware,
        batch=batch,
        context=context,
        tensor=tensor,
        dtype=dtype,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    tell(answer.to_dict(), as_json)


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = text.lower().replace(",", "x").split("x")
    if not all(map(is_size, sizes)):
        raise InputError(f"--slice-shape: cannot read {text[:80]!r}; write 4x4 or 16x20x28")
    return tuple(int(size) for size in sizes)


_THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9}


def _positive(option: str, text: str) -> float:
    """A positive number, with ``k``, ``M`` or ``B`` for thousands, millions and billions if need be."""
    plain = text.strip()
    unit = _THOUSANDS.get(plain[-1:])
    number = number_or_text(plain if unit is None else plain[:-1])
    if unit is not None and isinstance(number, float):
        number *= unit
    if not isinstance(number, float) or not 0 < number < float("inf"):
        raise InputError(f"{option}: expected a positive number such as 4e6, found {text!r}")
    return number


def names_option(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def bytes_option(text: str) -> float:
    """A number of bytes (zero is a fair question) or an amount with a unit."""
    from autoshard.units import memory_amount

    number = number_or_text(text)
    if isinstance(number, float):
        if not isfinite(number):
            raise InputError(f"--bytes: a number of bytes is finite, found {text}")
        if number < 0:
            raise InputError(f"--bytes: a number of bytes is not negative, found {text}")
        return number
    try:
        amount = memory_amount(text)
    except InputError as error:
        raise InputError(f"--bytes: {error}") from None
    if amount.bytes is None:
        raise InputError(f"--bytes: expected bytes, found the share {text}")
    return float(amount.bytes)


def tell(answer: dict[str, Any], as_json: bool) -> None:
    """Print an answer, for people or as JSON."""
    if as_json:
        print(json_text(answer))
    else:
        from autoshard.report.answers import answer_text

        print(answer_text(answer))
