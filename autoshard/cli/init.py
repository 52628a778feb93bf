"""The command init: writes a config to begin with, an example or a frame for a function of the user."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import reports_errors
from autoshard.errors import InputError, listing


def examples() -> dict[str, Path]:
    """The configs that come with autoshard, by name."""
    folder = Path(__file__).resolve().parent.parent / "examples"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


@reports_errors
def init(
    example: Annotated[
        str | None, typer.Argument(help="The example to begin with; quickstart where none is named.")
    ] = None,
    function: Annotated[
        str | None, typer.Option("--function", help="A frame for a function of yours, module:name, instead.")
    ] = None,
    hardware: Annotated[str, typer.Option("--hardware", help="The machine in that frame.")] = "tpu_v5e",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; <name>.yaml where not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the examples.")] = False,
) -> None:
    """Begin: write a config to change, an example or a frame for a function of your own."""
    from autoshard.cli.frame import frame, parameters_of
    from autoshard.files import check_writable, write_text

    known, unread = examples(), ""
    if show_list:
        for name, file in known.items():
            first = file.read_text(encoding="utf-8").splitlines()[0]
            print(f"{name:<16}{first.removeprefix('#').strip()}")
        return
    if function is not None:
        if example is not None:
            raise InputError(f"give either an example ({example}) or --function {function}")
        module, colon, name = function.partition(":")
        if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise InputError(f"--function: found {function!r}; write module:name, such as train:step")
        file = output or Path(f"{name}.yaml")
        parameters = parameters_of(function, (Path.cwd(), file.parent))
        text = frame(function, hardware, file, parameters)
        if parameters is None:
            unread = (
                f"{module} has no function {name} that could be read: the argument x in it stands for its arguments\n"
            )
    else:
        wanted = example or "quickstart"
        if wanted not in known:
            raise InputError(f"there is no example {wanted!r}; {listing(wanted, known)}")
        file = output or Path(f"{wanted}.yaml")
        text = known[wanted].read_text(encoding="utf-8")
    if file.exists() and not force:
        raise InputError(f"{file} exists; --output names another file, --force replaces it")
    check_writable(file)
    write_text(file, text)
    print(f"wrote {file}\n{unread}next: autoshard solve {file}")
