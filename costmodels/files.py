"""YAML files of users: profiles of hardware and cards of models."""

from pathlib import Path
from typing import Any

import yaml

from autoshard.costmodels.errors import ProfileError

MAX_BYTES = 2**22
"""Most bytes of such a file: what is larger (or has no end) is another one."""


def read_yaml(path: Path, what: str) -> Any:
    """The plain data of a YAML file; `ProfileError` says why it cannot be read. what: the name of such a file."""
    if "\0" in str(path):
        raise ProfileError(f"cannot read {what} {str(path)!r}: names of files hold no NUL character")
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileError(f"{what} {path} is larger than {MAX_BYTES} bytes")
        return yaml.safe_load(data.decode("utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read {what} {path}: {error.strerror or error}") from None
    except ProfileError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: no UTF-8, dates and numbers that cannot be
        raise ProfileError(f"{what} {path} is not YAML: {error}") from None
    except RecursionError:
        raise ProfileError(f"{what} {path} is nested too deeply to be read") from None
