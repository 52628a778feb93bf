"""Reading files with errors that a user understands, and writing them whole or not at all."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autoshard.errors import InputError
from autoshard.garbage import uncollected

_MOST_OF_DEVICES = 2**26
"""Bytes read from what is no file (a terminal, ``/dev/zero``), which may have no end."""

_ODD_IN_JSON = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_NO_NAME = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""Characters in no name of a file: NUL, and halves of surrogate pairs but those that stand for bytes (PEP 383)."""

_TOKEN = re.compile(r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)|"(?:[^"\\]|\\.)*"|[{}\[\]]')
"""In JSON: a key, another text, or the begin or end of an object or a list."""


def read_text(path: str | os.PathLike[str], *, what: str = "file", max_bytes: int | None = None) -> str:
    """The UTF-8 text of a file; `InputError` says why it cannot be read.

    what: the name of such a file in messages (``config``, ``plan``).
    """
    return decode_text(read_bytes(path, what=what, max_bytes=max_bytes), str(Path(path)), what=what)


def read_bytes(path: str | os.PathLike[str], *, what: str = "file", max_bytes: int | None = None) -> bytes:
    """The content of a file, as `read_text` but not decoded."""
    path = Path(path)
    if "\0" in str(path):
        raise InputError(f"{what} {str(path)!r} cannot be read: names of files hold no NUL character")
    if path.is_dir():
        article = "an" if what[0] in "aeiouM" else "a"  # an MLIR module
        raise InputError(f"{path} is a directory; give the path of {article} {what}")
    try:
        if max_bytes is None and stat.S_ISCHR(path.stat().st_mode):
            max_bytes = _MOST_OF_DEVICES
        with path.open("rb") as stream:
            data = stream.read() if max_bytes is None else stream.read(max_bytes + 1)
    except FileNotFoundError:
        near = _similar_names(path)
        hint = f"; did you mean {near}?" if near else ""
        raise InputError(f"{what} {path} does not exist{hint}") from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror or error}") from None
    if max_bytes is not None and len(data) > max_bytes:
        raise InputError(f"{what} {path} is larger than {max_bytes} bytes")
    return data


def decode_text(data: bytes, name: str, *, what: str = "file") -> str:
    """Bytes as UTF-8 text; `InputError` names the line of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name}:{line}: the {what} is not UTF-8 text (byte 0x{data[error.start]:02x} at offset {error.start}); "
            "save it as UTF-8"
        ) from None


def check_writable(path: str | os.PathLike[str], reads: Iterable[str | os.PathLike[str]] = ()) -> None:
    """`InputError` where a file of this name surely cannot be written. Callers check before long work, not after it.

    reads: the files that the caller reads, which it must not overwrite.
    """
    path = Path(path)
    if "\0" in str(path):
        raise InputError(f"cannot write {str(path)!r}: names of files hold no NUL character")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory")
    if path.exists() and any(os.path.exists(file) and os.path.samefile(path, file) for file in reads):
        raise InputError(f"cannot write {path}: it is what the command reads; give another name")
    for folder in path.absolute().parents:
        if folder.is_dir():
            if not os.access(folder, os.W_OK | os.X_OK) and not path.exists():
                raise InputError(f"cannot write {path}: no permission to write in {folder}")
            return
        if folder.exists():
            raise InputError(f"cannot write {path}: {folder} is a file, not a directory")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    r"""Write `text` as UTF-8, whole or not at all, as `write_bytes` does.

    Bytes of file names that are no text are written as ``\udc..``.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` so that a reader, or a crash, sees the old file or the new one and never a part.

    The data goes to a temporary file in the same directory, which then takes the name. Where the path is a symbolic
    link, its target is replaced and the link stays. A path that is no ordinary file (``/dev/stdout``, a pipe) is
    written to directly; ``-`` is refused.
    """
    path = Path(path)
    if path.parts[:1] == ("-",):
        raise InputError(f"{path} is taken for no file: text is printed where no file is named, or give /dev/stdout")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        path = path.resolve() if path.is_symlink() else path
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes the file private; give it the mode an ordinary new file would have
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write `data` as JSON, one canonical text for equal data: keys in the given order, no NaN."""
    with uncollected():
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: str | os.PathLike[str], *, what: str = "file") -> Any:
    """The data of a JSON file; `InputError` with line and column where it is malformed or says a key twice.

    Of a key that an object has twice Python keeps the last and says nothing, and it reads ``NaN`` and ``Infinity``,
    which are no JSON. The data's texts hold no NUL character and
    no half of a surrogate pair: no file can be asked for by such a name.
    """
    text = read_text(path, what=what)
    try:
        with uncollected():
            data = json.loads(text, object_pairs_hook=_with_keys_once, parse_constant=_no_number)
            odd = next(filter(_NO_NAME.search, _texts(data)), None) if _ODD_IN_JSON.search(text) else None
    except json.JSONDecodeError as error:
        hint = "; `autoshard solve` makes a plan.json of a config" if Path(path).suffix in (".yaml", ".yml") else ""
        raise InputError(
            f"{path}:{error.lineno}:{error.colno}: the {what} is not valid JSON: {error.msg}{hint}"
        ) from None
    except _KeyTwiceError:
        line, column, key, first = _key_twice(text)
        raise InputError(
            f"{path}:{line}:{column}: the {what} has the key {json.dumps(key, ensure_ascii=False)[:60]} twice in one "
            f"object, first at line {first}; which of the two counts is not said: leave one of them out"
        ) from None
    except _NoNumberError as error:
        raise InputError(f"{path}: the {what} is not valid JSON: it has {error}, which is no number there") from None
    except ValueError:  # Python reads no numbers of thousands of digits
        raise InputError(f"{path}: the {what} has a number of too many digits") from None
    except RecursionError:
        raise InputError(f"{path}: the {what} is nested too deeply to be read") from None
    if odd is not None:
        raise InputError(
            f"{path}: texts in the {what} hold no NUL character and no half of a surrogate pair, found {odd[:60]!r}"
        )
    return data


class _NoNumberError(Exception):
    """A file has NaN or Infinity."""


def _no_number(word: str) -> None:
    raise _NoNumberError(word)


class _KeyTwiceError(Exception):
    """An object of a JSON text has a key twice."""


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _KeyTwiceError
    return found


def _key_twice(text: str) -> tuple[int, int, str, int]:
    """Line and column of the first key that its object has already, the key, and the line where it has it.

    text: valid JSON up to the end of that object.

    >>> _key_twice('{"a": [{"b": 1}, {"b": 2}],' + chr(10) + ' "c": "{", "\\\\u0061": 3}')
    (2, 12, 'a', 1)
    """
    inside: list[dict[str, int]] = []
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            inside.append({})
        elif token[0] in "}]":
            inside.pop()
        elif token["key"]:
            key, at = json.loads(token["key"]), token.start()
            if key in inside[-1]:
                line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
                return line, column, key, text.count("\n", 0, inside[-1][key]) + 1
            inside[-1][key] = at
    raise ValueError("no object has a key twice")


def _texts(data: Any) -> Iterator[str]:
    """All texts in plain data, and keys."""
    if isinstance(data, str):
        yield data
    for inner in data if isinstance(data, list) else (*data, *data.values()) if isinstance(data, dict) else ():
        yield from _texts(inner)


def _similar_names(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.is_file())
    except OSError:
        return ""
    return ", ".join(str(path.parent / n) for n in get_close_matches(path.name, names, n=2, cutoff=0.75))
