"""Random changes of inputs: of bytes, of words of a text, of trees of plain data. All chance is the caller's."""

import copy
import random
import re
from collections.abc import Callable
from typing import Any

JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**10, 10**30, -(2**63), 0.0, -0.0, 0.5, 1e-300, 1e308,
    float("nan"), float("inf"), float("-inf"), "", " ", "0", "-1", "1e9", "nan", "x", "data", "model", "null", "\0",
    "a\0b", "é漢字😀", "\ud800", "x" * 5000, "../../etc/passwd", "/dev/full", "/dev/null", "%s%n{0}", "[", "{", "**",
    "*", "[0-9",
    "[{}, {}]", '[{"data"}, {?}]', "float32[8,16]", "float32[-1]", "14GiB", "90%", "10min", "out/0", "builtins:exit",
    "os:system", [], {}, [[]], [None], [0], {"": 0}, {"a": {"b": []}}, [1, 2, 3], ["data"], [["data", "model"]],
    {"name": "mlp"}, {"size": 4}, {"size": 4, "link": "dcn"}, {"steps": 1}, list(range(300)), b"bytes",
)  # fmt: skip
"""Values put in place of others, whatever the place."""

SCRAPS = (
    b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\r", b"\t", b"\n", b"{", b"}", b"[", b"]", b'"', b"'", b":", b",",
    b"&a ",
    b"*a", b"<<: ", b"!!python/object:os.system ", b"---\n", b"? ", b"- ", b"-", b"1e999", b"0x",
    b"99999999999999999999",
    b"NaN", b"null", b"%", b"#", b"@", b"!", b"<", b">", b"->", b"(", b")", b"?", b"\\u0000", b"\\ud800", b"\x1b[31m",
)  # fmt: skip

_WORD = re.compile(r"[A-Za-z_]\w*|\d+|\s+|.", re.DOTALL)

Path = tuple[Any, ...]


def bytes_changed(rng: random.Random, data: bytes) -> bytes:
    """One to six changes of bytes: a flip, a scrap put in, a piece left out, doubled, moved, or the end cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 1, 2, 8, 40))
        way = rng.randrange(6)
        if way == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            changed[at:at] = rng.choice(SCRAPS)
        elif way == 2:
            del changed[at : at + length]
        elif way == 3:
            changed[at:at] = changed[at : at + length] * rng.choice((1, 1, 20))
        elif way == 4:
            other = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[other : other + length]
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def words_changed(rng: random.Random, text: str) -> str:
    """One to four changes of words: one for another of the text, a number for another, one left out or doubled."""
    words = _WORD.findall(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not words:
            break
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        way = rng.randrange(5)
        if words[at].isdigit() and rng.random() < 0.7:
            words[at] = str(rng.choice((0, 1, 2, 3, 5, 8, 16, 2**31, 2**63, 10**25)))
        elif way == 0:
            words[at] = words[other]
        elif way == 1:
            words[at], words[other] = words[other], words[at]
        elif way == 2:
            del words[at]
        elif way == 3:
            words.insert(at, words[other])
        else:
            words[at] = rng.choice(SCRAPS).decode("latin-1")
    return "".join(words)


def tree_changed(rng: random.Random, tree: Any, *, junk: Callable[[], Any] | None = None) -> Any:
    """One to three changes of a tree of plain data; what is put in is junk, a neighbour or another part."""
    tree = copy.deepcopy(tree)
    some = junk or (lambda: copy.deepcopy(rng.choice(JUNK)))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = _place(rng, tree)
        if not path:
            return some()
        parent = _at(tree, path[:-1])
        value = parent[path[-1]]
        way = rng.randrange(10)
        if way <= 2:
            parent[path[-1]] = some()
        elif way == 3:
            parent[path[-1]] = _near(rng, value)
        elif way == 4:
            del parent[path[-1]]
        elif way == 5:
            parent[path[-1]] = copy.deepcopy(_at(tree, _place(rng, tree)))
        elif way == 6:
            parent[path[-1]] = [value] if rng.random() < 0.5 else {"value": value}
        elif way == 7 and isinstance(parent, dict):
            name = f"{path[-1]}"
            parent[_near(rng, name) if rng.random() < 0.7 else some_key(some())] = parent.pop(path[-1])
        elif way == 8 and isinstance(value, list):
            value += copy.deepcopy(value[: rng.randrange(3)]) or [some()]
        elif way == 9 and isinstance(value, dict):
            value[rng.choice(("x", "", "extra", 7, None))] = some()
        else:
            parent[path[-1]] = _near(rng, value)
    return tree


def some_key(value: Any) -> Any:
    """The value, where it can be a key; else its text."""
    return value if isinstance(value, int | float | str) or value is None else str(value)[:40]


def _place(rng: random.Random, tree: Any) -> Path:
    """A random path into the tree: deeper or not at every level."""
    path: list[Any] = []
    while isinstance(tree, dict | list) and tree and (not path or rng.random() < 0.85):
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        path.append(key)
        tree = tree[key]
    return tuple(path)


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _near(rng: random.Random, value: Any) -> Any:
    """A value of the same type that differs a little."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 1000, 0, str(value), float(value % 2**53)))
    if isinstance(value, float):
        return rng.choice((value * 2, -value, value / 3, int(value) if abs(value) < 1e300 else 0, str(value)))
    if isinstance(value, str):
        return words_changed(rng, value)
    if isinstance(value, list):
        return rng.choice((value[::-1], value[:-1], value + value, value[1:], dict(enumerate(value))))
    if isinstance(value, dict):
        return rng.choice((dict(reversed(value.items())), dict(list(value.items())[1:]), list(value.items())))
    return str(value)
