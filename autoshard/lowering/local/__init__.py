"""What one device does for each op, on its blocks of the operands.

Most primitives run unchanged on blocks; the files here hold those that do not. A primitive that none of
them knows runs only where nothing is cut.
"""

from autoshard.lowering.local import contraction, indexing, random, structure, windows
from autoshard.lowering.local.context import LocalOp, run_local

__all__ = ["LocalOp", "contraction", "indexing", "random", "run_local", "structure", "windows"]
