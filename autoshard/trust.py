"""Which plan files may name code that is imported: those made by this user, and those the user has allowed.

A plan made from a config says ``module:function``, which `verify`, `run` and others import. A plan from somebody else
does so only once the user has looked at it and said so (``--trust``). What is known are digests of plan files together
with the folder that code comes from, kept in a folder of the user's: a plan that was changed since, or that finds its
code elsewhere, is not known any more.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from autoshard.errors import InputError

TRUSTED = "AUTOSHARD_TRUSTED"
"""Environment variable: digests that are known in this process and those it starts, with commas."""
_LENGTH = 32
"""Hexadecimal digits of a digest: 128 bits, more than can be collided with on purpose in a lifetime of plans."""


class Trust(Enum):
    """What a config in memory carries under ``trusted``: no text in a file reads as this."""

    GIVEN = "given"


def digest(plan_file: str | os.PathLike[str]) -> str:
    """The digest of a plan file and of the folder that its code comes from; empty where the file cannot be read."""
    try:
        content = Path(plan_file).read_bytes()
        folder = folder_of(plan_file)
        if folder is None:
            folder = Path(str(json.loads(content)["config"]["file"])).resolve().parent
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return hashlib.sha256(os.fsencode(folder) + b"\0" + content).hexdigest()[:_LENGTH]


def allow(plan_file: str | os.PathLike[str]) -> None:
    """Know this plan, as it is, from now on. Where the user's folder cannot be written: in this process only."""
    known = digest(plan_file)
    if not known:
        return
    os.environ[TRUSTED] = ",".join(filter(None, (os.environ.get(TRUSTED, ""), known)))
    folder = _folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / known).touch()
    except OSError:
        return


def is_allowed(plan_file: str | os.PathLike[str]) -> bool:
    """Whether the file is one that this user made or allowed, unchanged."""
    known, folder = digest(plan_file), _folder()
    if not known:
        return False
    return known in os.environ.get(TRUSTED, "").split(",") or (folder is not None and (folder / known).exists())


def placed_config(config: Any, plan_file: str | os.PathLike[str]) -> Any:
    """The config in a plan, with its folder and whether the code that it names may be imported.

    The folder is as `folder_of` finds it beside the plan; where nothing is found, the key is left out. What is no
    mapping comes back as it is.
    """
    if not isinstance(config, Mapping):
        return config
    folder = folder_of(plan_file)
    return {
        **config,
        "trusted": Trust.GIVEN if is_allowed(plan_file) else None,
        **({} if folder is None else {"folder": str(folder)}),
    }


def folder_of(plan_file: str | os.PathLike[str]) -> Path | None:
    """The folder of the config that a plan was made from, by the run.json beside the plan; None where it is not there.

    The folder is sought where it was, and then as it lay from the plan, so that a tree may be moved as a whole.
    """
    beside = Path(plan_file).resolve().parent
    try:
        told = json.loads((beside / "run.json").read_bytes())["folder"]
        there, from_plan = Path(told["absolute"]), beside / told["from_plan"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return next((folder.resolve() for folder in (from_plan, there) if folder.is_dir()), None)


def told_folder(folder: Path, plan_file: str | os.PathLike[str]) -> dict[str, str]:
    """What run.json says about the config's folder, for `folder_of`."""
    absolute = folder.resolve()
    beside = Path(plan_file).resolve().parent
    try:
        from_plan = os.path.relpath(absolute, beside)
    except ValueError:  # another drive
        from_plan = str(absolute)
    return {"absolute": str(absolute), "from_plan": Path(from_plan).as_posix()}


def refusal(reference: str, folder: Path, file: str) -> InputError:
    """The error where a plan names code that this user has not allowed."""
    return InputError(
        f"the plan names code, {reference} (config {file}, looked for in {folder}), and was not made here by you: "
        "nothing of it was imported. Look at that module, then pass --trust once (in Python: "
        "autoshard.trust.allow(plan_file)), or hand the function in: Plan.load(plan_file).attach(f, *specs)"
    )


def _folder() -> Path | None:
    root = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".local" / "state") / "autoshard" / "plans"
    except RuntimeError:  # no home
        return None
