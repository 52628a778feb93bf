"""``autoshard cost``: small questions about a machine, without a program."""

import json
from typing import Annotated, Any

import typer

from autoshard.cli.common import assignments, links_option, mesh_option, number_or_text, reports_errors
from autoshard.errors import InputError

app = typer.Typer(
    name="cost", help="Small questions without a program: a collective, a sharded matmul.", no_args_is_help=True
)

Hardware = Annotated[str, typer.Option(help="A profile's name, or the path of a YAML profile.")]
MeshText = Annotated[str, typer.Option("--mesh", help="Sizes by axis, outermost first: x=8,y=4.")]
Links = Annotated[list[str] | None, typer.Option("--link", help="Put an axis on a link: data=dcn. May be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


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
    dtype: Annotated[str, typer.Option(help="Element type.")] = "bfloat16",
    link: Links = None,
    as_json: AsJson = False,
) -> None:
    """The collectives, the time and the verdict of one sharded matmul."""
    from costmodels.questions import ask_matmul

    answer = ask_matmul(
        text, assignments("--dim", dim), mesh_option(mesh), hardware, dtype=dtype, links=links_option(link or ())
    )
    _tell(answer.to_dict(), as_json)


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
