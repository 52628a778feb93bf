"""Leaves of trees of inputs and outputs, by their paths inside of the tree."""

import re

from autoshard.constraints.patterns import Addresses, path_matches
from autoshard.errors import InputError

_GLOB = re.compile(r"[*?\[]")


def leaf_names(pattern: str, addresses: Addresses, where: str) -> dict[str, str]:
    """Path inside of the tree that a pattern addresses -> whole path of the leaf, in the order of the program.

    The steps before the first glob are the stem; a stem alone addresses all leaves beneath it. `InputError` where there
    are no leaves.
    """
    pattern = pattern.strip().rstrip("/")
    steps = pattern.split("/")
    stem = next((steps[:k] for k, step in enumerate(steps) if _GLOB.search(step)), steps)
    is_output = steps[0] == "out"
    names = addresses.program.output_names if is_output else [name for name, _ in addresses.inputs]
    leaves = {"/".join(n.split("/")[len(stem) :]): n for n in names if path_matches(pattern, n)}
    if not leaves:
        leaves = {n[len(pattern) + 1 :]: n for n in names if n.startswith(pattern + "/")}
    if not leaves:
        raise InputError(f"{where}: {pattern!r} matches no {'output' if is_output else 'input'}; "
                         f"{addresses.hint(pattern)}")  # fmt: skip
    return leaves
