"""Files of the corpus, read and changed; and what a case may find in the place of its output."""

import json
import lzma
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from judge import OLD, Case
from mutate import bytes_changed, tree_changed, words_changed


@lru_cache(maxsize=256)
def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


@lru_cache(maxsize=64)
def tree_of(path: Path) -> Any:
    text = bytes_of(path).decode()
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def yaml_of(tree: Any) -> bytes:
    """The tree as YAML; where it cannot be that, as something like it."""
    try:
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError, TypeError):
        return repr(tree).encode("utf-8", "surrogatepass")


def json_of(tree: Any) -> bytes:
    return json.dumps(tree, default=repr).encode()


def damaged(rng: random.Random, path: Path, *, by_tree: float) -> bytes:
    """The file changed by tree, by words or by bytes."""
    if rng.random() < by_tree:
        changed = tree_changed(rng, tree_of(path))
        return json_of(changed) if path.suffix == ".json" else yaml_of(changed)
    data = bytes_of(path)
    if rng.random() < 0.5:
        return words_changed(rng, data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    return bytes_changed(rng, data)


def certificate_damaged(rng: random.Random, path: Path) -> bytes:
    """A certificate with other bytes: as they lie there, in its first line, or in what is packed behind it."""
    data = bytes_of(path)
    head, packed = data.split(b"\n", 1)
    way = rng.random()
    if way < 0.2:
        return bytes_changed(rng, data)
    if way < 0.5:
        return json_of(tree_changed(rng, json.loads(head))) + b"\n" + packed
    return head + b"\n" + lzma.compress(bytes_changed(rng, lzma.decompress(packed)))


def output(rng: random.Random, case: Case, name: str, *, folder: bool = False) -> Case:
    """Sometimes a file is there already, the name cannot be one, or the disk is full."""
    case.outputs = (name,)
    way = rng.random()
    if way < 0.25 and not folder:
        case.files[name] = OLD
    elif way < 0.3:
        case.files[f"{name}/x" if not folder else name] = (
            OLD  # a folder where a file should go, and the other way round
        )
    elif way < 0.4:
        case.most_bytes = rng.choice((0, 10, 3000, 30_000))
    return case


def argument(text: Any) -> str:
    return str(text)[:3000]


def beside(corpus: Path) -> dict[str, bytes]:
    return {name: bytes_of(corpus / name) for name in ("fuzzed.py", "plain.onnx", "mlp.onnx")}
