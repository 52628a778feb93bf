"""Compare our propagation with Shardy's on random modules: text for text.

    python experiments/propagation_diff/run.py --cases 5000

Each seed gives a module and one of eight ways to propagate it. Shardy's passes can end the process on input that
they did not expect; so the cases run in a process of their own, started again behind the case that ended it.
"""

import argparse
import difflib

from cases import run, work

WAYS = (
    (None, False),
    ("basic", False),
    ("aggressive", False),
    ("op-priority", False),
    ("user-priority", False),
    ("aggressive", True),
    (None, False),
    ("user-priority", True),
)


def way_of(seed: int) -> tuple[str | None, bool]:
    return WAYS[seed % len(WAYS)]


def oracle_pipeline(strategy: str | None, conservative: bool, edges: bool) -> str:
    if strategy is None:
        return "sdy-propagation-pipeline"
    step = f"sdy-{strategy}-propagate{{conservative-propagation={str(conservative).lower()}}}"
    return f"sdy-add-data-flow-edges,{step},func.func(sdy-sink-data-flow-edges)" if edges else step


def compare(seed: int, *, wide: bool = False) -> tuple[str, str]:
    """('equal' | 'different' | 'skipped: why', detail)."""
    from random_module import random_module
    from random_wide import wide_module

    from autoshard.errors import AutoshardError, InputError
    from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
    from autoshard.propagation.mlir.module import needs_edges, propagate_mlir

    strategy, conservative = way_of(seed)
    text = (wide_module if wide else random_module)(seed, overlapping_groups=strategy is None)
    try:
        module = parse_module(text)
    except InputError as error:
        return "skipped: malformed", str(error)
    with mlir_context():
        edges = needs_edges(module)
        try:
            run_passes(module, oracle_pipeline(strategy, conservative, edges))
            wanted = module_text(module)
        except InputError as error:
            wanted = None
            reason = str(error)
    try:
        found = propagate_mlir(text, strategy=strategy, conservative=conservative)
    except AutoshardError as error:
        return ("skipped: both refuse", str(error)) if wanted is None else ("different", f"we refuse: {error}")
    if wanted is None:
        return "different", f"Shardy refuses: {reason}"
    if found == wanted:
        return "equal", ""
    diff = "\n".join(
        difflib.unified_diff(wanted.splitlines(), found.splitlines(), "Shardy", "autoshard", lineterm="", n=0)
    )
    return "different", diff


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--wide", action="store_true", help="the modules of random_wide.py")
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, lambda seed: compare(seed, wide=args.wide))
        return
    counts, different = run(__file__, args.first, args.cases, *(["--wide"] if args.wide else []))
    print(counts)
    for seed in different:
        print(f"different: seed {seed}, {way_of(seed)}")


if __name__ == "__main__":
    main()
