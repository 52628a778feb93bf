"""Every place of a plan, a config and a profile with every odd value: what chance finds late, in order.

    python experiments/fuzz/sweep.py [--kinds plan,config,profile] [--part 0/2]

A place is a path in the document, elements of lists and entries with numbered names taken together. A plan that `show`
refuses is not tried with other commands, as all read it with the same reader. Faults are printed as they are found, one
of each kind; exit code 1 where there is one.
"""

import argparse
import copy
import gc
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from damage import beside, json_of, tree_of, yaml_of
from judge import Case, environment, run_case

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -0.0, float("nan"), float("inf"), 1e308, "", "x", "1", "\0",
    "\ud800", "é" * 300, "../x", "[{}]", '[{"data"}, {}]', [], [[]], [0], [-1], ["x"], [None], {}, {"x": 1},
    {"": None}, {"0": [1]},
)  # fmt: skip
"""Values of every kind, that are right nearly nowhere."""
GONE = object()
PLANS = ("step", "mlp", "searched")
READS = ["show", "plan.json", "inputs", "collectives", "step", "memory", "baselines", "notes"]
OTHERS = (
    ["verify", "plan.json", "--json"], ["explain", "plan.json", "**"], ["specs", "plan.json"],
    ["report", "plan.json", "-o", "out.html"], ["report", "plan.json", "--format", "perfetto", "-o", "out.json"],
    ["report", "plan.json", "--format", "csv", "-o", "out"], ["diff", "plan.json", "good.json"],
    ["report", "plan.json", "--format", "model-explorer", "-o", "out.json"], ["objectives", "plan.json"],
    ["lower", "plan.json", "--target", "explicit", "--no-report", "--output", "out.txt", "--trust"],
    ["simulate", "plan.json", "--compiler", "own", "--trust"], ["specs", "plan.json", "--rules", "flax"],
    ["run", "plan.json", "--steps", "1", "--trust"],
)  # fmt: skip
SAME = "as it is"
"""What stands for a document without a change, which every command has to take."""


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All paths in a tree of plain data."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def kinds_of_places(tree: Any) -> list[tuple[Any, ...]]:
    """One path for each kind of place: numbers, and names made of kinds and numbers of ops, count as the same."""
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for path in places(tree):
        found.setdefault(
            tuple("*" if isinstance(k, int) else re.sub(r"\w*:?\d+(\.\d+)?", "*", str(k)) for k in path), path
        )
    return list(found.values())


def places_and_values(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """First the tree as it is, then every odd value in every kind of place, in a random order, so that a part of them
    says something of all.
    """
    yield (), SAME
    all_of_them = [(path, value) for path in kinds_of_places(tree) for value in (GONE, *ODD)]
    yield from random.Random(0).sample(all_of_them, len(all_of_them))


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value in a place, or without it."""
    if value is SAME:
        return tree
    if not path:
        return None if value is GONE else value
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    if value is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return tree


def plans(corpus: Path) -> Iterator[tuple[str, list[Case]]]:
    """Cases of plan files: the first that reads the file, and those to be tried where it is taken."""
    for name in PLANS:
        good = corpus / "plans" / name / "plan.json"
        tree, around = tree_of(good), beside(corpus)
        for path, value in places_and_values(tree):
            files = {"plan.json": json_of(changed(tree, path, value)), "good.json": good.read_bytes(), **around}
            commands = [args for args in OTHERS if name == "mlp" or "--rules" not in args]  # it alone has logical axes
            cases = [Case(args, files, outputs=("out.txt", "out.html", "out.json", "out")) for args in commands]
            yield f"{name} {path} {value!r}"[:200], [Case(READS, files), *cases]


def configs(corpus: Path) -> Iterator[tuple[str, list[Case]]]:
    """Cases of configs, solved."""
    for name in ("mlp", "step", "searched", "onnx", "annotated", "quickstart"):
        tree = dict(tree_of(corpus / f"{name}.yaml"))
        tree.pop("verify", None)
        tree.pop("run", None)
        for path, value in places_and_values(tree):
            files = {"c.yaml": yaml_of(changed(tree, path, value)), **beside(corpus)}
            args = ["solve", "c.yaml", "-o", "out", "--time-limit", "2", "-q"]
            yield f"{name} {path} {value!r}"[:200], [Case(args, files, outputs=("out",))]


def profiles(corpus: Path) -> Iterator[tuple[str, list[Case]]]:
    """Cases of hardware profiles, shown and used."""
    import yaml

    import costmodels

    folder = Path(costmodels.__file__).parent / "profiles"
    for name in ("h100", "tpu_v5e"):
        file = min(folder.rglob(f"{name}.yaml"), key=lambda found: len(found.parts))
        tree = yaml.safe_load(file.read_text())
        for path, value in places_and_values(tree):
            files = {"mine.yaml": yaml_of(changed(tree, path, value)), **beside(corpus)}
            cost = "cost collective --kind all-gather --bytes 2e9 --mesh x=8,y=4 --axes y --hardware mine.yaml"
            cases = [Case(args, files) for args in (["hardware", "mine.yaml"], cost.split())]
            yield f"{name} {path} {value!r}"[:200], cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="plan,config,profile")
    parser.add_argument("--part", default="0/1", help="one of several parts, each in a process of its own")
    asked = parser.parse_args()
    made = {"plan": plans, "config": configs, "profile": profiles}
    if unknown := [kind for kind in asked.kinds.split(",") if kind not in made]:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(made)}")
    part, parts = map(int, asked.part.split("/"))
    home = Path(tempfile.mkdtemp(prefix="autoshard-sweep."))
    os.environ.update(environment(home))
    from corpus import make

    corpus = home / "corpus"
    make(corpus)
    seen: set[str] = set()
    tried, began = 0, time.monotonic()
    for kind, cases in made.items():
        if kind not in asked.kinds.split(","):
            continue
        for number, (words, several) in enumerate(cases(corpus)):
            if number % parts != part:
                continue
            for at, case in enumerate(several):
                box = Path(tempfile.mkdtemp(dir=home))
                outcome = run_case(case, box)
                shutil.rmtree(box)
                tried += 1
                if words.endswith(repr(SAME)) and outcome.code not in (0, 1 if case.args[0] == "verify" else 0):
                    outcome.faults.append(f"the document as it is is refused: {outcome.stderr}")
                for fault in outcome.faults:
                    short = re.sub(r"\d+", "*", fault.splitlines()[0])
                    if short not in seen:
                        seen.add(short)
                        print(f"FAULT {kind} {words}: {' '.join(case.args)}\n{fault}\n", flush=True)
                if at == 0 and outcome.code == 2 and kind == "plan":
                    break
            if number % 500 == part:
                import jax

                jax.clear_caches()
                gc.collect()
                print(f"{kind}: {number} documents, {tried} inputs, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tried} inputs, kinds of faults: {len(seen)}")
    shutil.rmtree(home)
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
