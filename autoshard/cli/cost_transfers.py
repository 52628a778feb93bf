"""``autoshard cost point-to-point``, ``ragged-all-to-all``, ``host-copy`` and ``domains``: no collectives."""

from typing import Annotated

import typer

from autoshard.cli.common import grouped, mesh_option, reports_errors
from autoshard.cli.cost import AsJson, Hardware, MeshOnMachine, MeshText, app, bytes_option, names_option, tell

Amount = Annotated[str, typer.Option("--bytes", help="What is sent: 2e9, 64MiB.")]


@app.command()
@reports_errors
@grouped
def point_to_point(
    *,
    amount: Amount,
    mesh: MeshText,
    axes: Annotated[str, typer.Option(help="The axes between whose farthest devices it is sent: x,y.")],
    hardware: Hardware,
    on_machine: MeshOnMachine,
    as_json: AsJson = False,
) -> None:
    """How long it takes to send from one device to the farthest one of a group."""
    from autoshard.costmodels.transfers import ask_point_to_point

    sent, where = bytes_option(amount), on_machine.arguments()
    tell(ask_point_to_point(sent, mesh_option(mesh), names_option(axes), hardware, **where).to_dict(), as_json)


@app.command()
@reports_errors
@grouped
def ragged_all_to_all(
    *,
    amount: Annotated[str, typer.Option("--bytes", help="All tokens of the group, each once: 2e9, 64MiB.")],
    mesh: MeshText,
    axes: Annotated[str, typer.Option(help="The axes it runs over: x,y.")],
    hardware: Hardware,
    top_k: Annotated[int, typer.Option(help="Experts of a token, drawn evenly; it is sent to a device once.", min=1)],
    imbalance: Annotated[float, typer.Option(help="Tokens of the busiest device over the mean.")] = 1.0,
    on_machine: MeshOnMachine,
    as_json: AsJson = False,
) -> None:
    """How long it takes to send tokens to the devices of their experts."""
    from autoshard.costmodels.transfers import ask_ragged_all_to_all

    answer = ask_ragged_all_to_all(
        bytes_option(amount), mesh_option(mesh), names_option(axes), hardware,
        top_k=top_k, imbalance=imbalance, **on_machine.arguments(),
    )  # fmt: skip
    tell(answer.to_dict(), as_json)


@app.command()
@reports_errors
def host_copy(amount: Amount, hardware: Hardware, as_json: AsJson = False) -> None:
    """How long a copy between a device and its host takes, one way."""
    from autoshard.costmodels.transfers import ask_host_copy

    tell(ask_host_copy(bytes_option(amount), hardware).to_dict(), as_json)


@app.command()
@reports_errors
def domains(hardware: Hardware, as_json: AsJson = False) -> None:
    """What a whole domain of a machine (a node, the largest slice) has: work, memory, links and bisection."""
    from autoshard.costmodels.hardware_tables import domain_rows
    from autoshard.costmodels.load import load_profile

    tell({"hardware": hardware, "domains": domain_rows(load_profile(hardware))}, as_json)
