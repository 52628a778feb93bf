# ruff: noqa: E501 (lines of MLIR are kept whole)
"""Compare the verdicts of `autoshard check` with those of Shardy's parser and verifiers on random modules.

    python experiments/propagation_diff/check.py --cases 20000

A module that Shardy rejects must be rejected; one that it accepts must be accepted, but for the faults that only ours
looks for (`OURS`: named in docs/propagation.md). With `--own`, single shardings are read by our own reader and
judged by our own invariants, without MLIR.
"""

import argparse
from pathlib import Path

from cases import run, work

OURS = ("cannot coexist", "the members of sharding group")
"""What is an error to us and not to Shardy's verifiers."""


def compare(seed: int) -> tuple[str, str]:
    from random_check import random_check_module

    from autoshard.errors import InputError
    from autoshard.frontends.mlir.check import check_mlir
    from autoshard.frontends.mlir.context import parse_module

    text = random_check_module(seed)
    try:
        parse_module(text)
        reason = ""
    except InputError as error:
        reason = str(error)
    errors = [d for d in check_mlir(text) if d.severity == "error"]
    if any(not d.message or not d.advice for d in errors):
        return "different: no message or advice", text
    if reason:
        located = all(d.line for d in errors)
        return (
            ("both reject", "")
            if errors and located
            else ("different: we accept or cannot say where", f"{reason}\n{text}")
        )
    if not errors:
        return "both accept", ""
    if all(any(part in d.message for part in OURS) for d in errors):
        return "only ours rejects, as documented", ""
    return "different: we reject", "\n".join(d.message for d in errors) + "\n" + text


def compare_own(seed: int) -> tuple[str, str]:
    from random import Random

    from random_check import SIZES, damaged, sharding

    from autoshard.errors import AutoshardError, InputError
    from autoshard.frontends.mlir.context import parse_module
    from autoshard.sharding.mesh import Mesh
    from autoshard.sharding.tensor_sharding import TensorSharding

    rng = Random(seed)
    axes = {f"a{i}": rng.choice(SIZES) for i in range(rng.randint(1, 4))}
    rank = rng.choice((0, 1, 2, 2, 3))
    text = sharding(rng, axes, rank)
    if rng.random() < 0.3:
        text = damaged(rng, text)
    if "@mesh" not in text or "={}" in text:  # a sharding without mesh, an empty list: ours reads them too
        return "left out", ""
    mesh = Mesh.from_dict(axes)
    module = f"sdy.mesh @mesh = {mesh}\nfunc.func @main(%a: tensor<{'1024x' * rank}f32> {{sdy.sharding = #sdy.sharding{text}}}) {{ return }}"
    try:
        parse_module(module)
        theirs = ""
    except InputError as error:
        theirs = str(error)
    try:
        ours = TensorSharding.from_text(text).violations(mesh, (1024,) * rank)
    except AutoshardError as error:
        ours = (str(error),)
    if bool(ours) == bool(theirs):
        return "both reject" if ours else "both accept", ""
    if ours and all("cannot coexist" in v or "cannot be sharded by" in v for v in ours):
        return "only ours rejects, as documented", ""
    return "different: own reader", f"{axes} {text}\nShardy: {theirs}\nours: {ours}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, compare_own if args.own else compare)
        return
    counts, different = run(str(Path(__file__)), args.first, args.cases, *(["--own"] if args.own else []))
    print(counts)
    print("different:", different)


if __name__ == "__main__":
    main()
