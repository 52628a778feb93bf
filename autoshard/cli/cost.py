"""``autoshard cost``: small questions about a machine, without a program.

``cost --model NAME ...`` asks for a strategy on a named model; the other questions are commands of their own.
"""

import json
from typing import Annotated, Any, get_args

import typer

from autoshard.cli.common import assignments, links_option, mesh_option, number_or_text, reports_errors
from autoshard.errors import InputError

app = typer.Typer(
    name="cost",
    help="Small questions without a program: a collective, a sharded matmul, a strategy on a named model.",
    no_args_is_help=True,
)

Hardware = Annotated[str, typer.Option(help="A profile's name, or the path of a YAML profile.")]
MeshText = Annotated[str, typer.Option("--mesh", help="Sizes by axis, outermost first: x=8,y=4.")]
Links = Annotated[list[str] | None, typer.Option("--link", help="Put an axis on a link: data=dcn. May be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


Model = Annotated[str, typer.Option("--model", help="A model of costmodels/model_cards.yaml, such as llama3_70b.")]
Strategy = Annotated[
    str, typer.Option("--strategy", help="Parts joined by +, each on the mesh axis named for it: fsdp+tensor.")
]
Dtype = Annotated[str, typer.Option(help="Element type of weights and activations.")]


@app.callback(invoke_without_command=True)
@reports_errors
def model_step(
    context: typer.Context,
    model: Annotated[str | None, get_args(Model)[1]] = None,
    strategy: Annotated[str | None, get_args(Strategy)[1]] = None,
    mesh: Annotated[
        str | None, typer.Option("--mesh", help="Sizes by axis, outermost first: fsdp=64,tensor=8.")
    ] = None,
    batch_tokens: Annotated[str | None, typer.Option(help="Tokens of the whole batch: 4e6.")] = None,
    hardware: Annotated[str | None, typer.Option(help="A profile's name, or the path of a YAML profile.")] = None,
    seq: Annotated[int | None, typer.Option(help="Sequence length; the model's own where not given.", min=1)] = None,
    dtype: Dtype = "bfloat16",
    microbatches: Annotated[
        int | None, typer.Option(help="Of a pipeline; without one, of gradient accumulation.", min=1)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Stages of a pipeline on each device (interleaving).", min=1)] = 1,
    efficiency: Annotated[
        float | None,
        typer.Option(help="Share of the peak rate that work reaches; the profile's, for the estimate, if not given."),
    ] = None,
    recompute: Annotated[float, typer.Option(help="Share of the forward work that is done again (remat).")] = 0.0,
    link: Links = None,
    as_json: AsJson = False,
) -> None:
    """A training step of a named model under a strategy: collectives, step time, MFU, verdicts."""
    given = {
        "--model": model,
        "--strategy": strategy,
        "--mesh": mesh,
        "--batch-tokens": batch_tokens,
        "--hardware": hardware,
    }
    if context.invoked_subcommand is not None:
        if stray := [option for option, value in given.items() if value is not None]:
            raise InputError(
                f"{stray[0]} before {context.invoked_subcommand!r}: write it behind, or leave the command out"
            )
        return
    if missing := [option for option, value in given.items() if value is None]:
        raise InputError(
            f"autoshard cost needs {', '.join(missing)} for a strategy on a model, or a command: collective, matmul, "
            "critical-batch"
        )
    from costmodels.questions import ask_strategy

    assert model is not None and strategy is not None and mesh is not None and hardware is not None
    answer = ask_strategy(
        model,
        strategy,
        mesh_option(mesh),
        _positive("--batch-tokens", str(batch_tokens)),
        hardware,
        seq=seq,
        dtype=dtype,
        microbatches=microbatches,
        repeats=repeats,
        efficiency=efficiency,
        recompute=recompute,
        links=links_option(link or ()),
    )
    if as_json:
        _tell(answer.to_dict(), True)
    else:
        from autoshard.report.answers import strategy_text

        print(strategy_text(answer.to_dict()))


@app.command()
@reports_errors
def critical_batch(
    model: Model,
    strategy: Strategy,
    mesh: MeshText,
    hardware: Hardware,
    dtype: Dtype = "bfloat16",
    link: Links = None,
    as_json: AsJson = False,
) -> None:
    """Batch and axis sizes at which each part of a strategy turns compute bound."""
    from costmodels.questions import ask_critical_batch

    rows = ask_critical_batch(model, strategy, mesh_option(mesh), hardware, dtype=dtype, links=links_option(link or ()))
    _tell({"model": model, "strategy": strategy, "hardware": hardware, "critical": rows}, as_json)


@app.command()
@reports_errors
def collective(
    kind: Annotated[str, typer.Option(help="all-gather, reduce-scatter, all-reduce, all-to-all, permute.")],
    amount: Annotated[
        str, typer.Option("--bytes", help="The whole array on the axes: what an all-gather returns. 2e9, 64MiB.")
    ],
    mesh: MeshText,
    axes: Annotated[str, typer.Option(help="The axes (or sub-axes, y:(1)2) it runs over, major to minor: x,y.")],
    hardware: Hardware,
    link: Links = None,
    in_network_reduction: Annotated[bool, typer.Option(help="Let switches add, where they can (SHARP).")] = False,
    as_json: AsJson = False,
) -> None:
    """How long one collective takes, what bounds it, and the links it uses."""
    from costmodels.questions import ask_collective

    answer = ask_collective(
        kind,
        _bytes(amount),
        mesh_option(mesh),
        [axis.strip() for axis in axes.split(",") if axis.strip()],
        hardware,
        links=links_option(link or ()),
        in_network_reduction=in_network_reduction,
    )
    _tell(answer.to_dict(), as_json)


@app.command()
@reports_errors
def matmul(
    text: Annotated[str, typer.Argument(help="MaxText notation: 'B_x E @ E M -> B_x M'.")],
    dim: Annotated[list[str], typer.Option(help="Size of a dimension: B=4096. May be repeated.")],
    mesh: MeshText,
    hardware: Hardware,
    dtype: Dtype = "bfloat16",
    pad_tiles: Annotated[bool, typer.Option(help="Pad local dimensions to whole tiles of the matrix unit.")] = False,
    link: Links = None,
    as_json: AsJson = False,
) -> None:
    """The collectives, the time and the verdict of one sharded matmul."""
    from costmodels.questions import ask_matmul

    answer = ask_matmul(
        text,
        assignments("--dim", dim),
        mesh_option(mesh),
        hardware,
        dtype=dtype,
        pad_tiles=pad_tiles,
        links=links_option(link or ()),
    )
    _tell(answer.to_dict(), as_json)


def _positive(option: str, text: str) -> float:
    number = number_or_text(text)
    if not isinstance(number, float) or not 0 < number < float("inf"):
        raise InputError(f"{option}: expected a positive number such as 4e6, found {text!r}")
    return number


def _bytes(text: str) -> float:
    """A number of bytes (zero is a fair question) or an amount with a unit."""
    from autoshard.config.units import memory_amount

    number = number_or_text(text)
    if isinstance(number, float):
        if not 0 <= number < float("inf"):
            raise InputError(f"--bytes: a number of bytes is not negative, found {text}")
        return number
    try:
        amount = memory_amount(text)
    except InputError as error:
        raise InputError(f"--bytes: {error}") from None
    if amount.bytes is None:
        raise InputError(f"--bytes: expected bytes, found the share {text}")
    return float(amount.bytes)


def _tell(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=1))
    else:
        from autoshard.report.answers import answer_text

        print(answer_text(answer))
