"""What one device does for each op, on its blocks of the operands.

Most primitives run unchanged on blocks; the files of this folder have the others. A primitive that no file knows runs
only where nothing is cut.
"""

from autoshard.lowering.local import contraction, indexing, kernels, random, structure, windows
from autoshard.lowering.local.context import LocalOp, run_local

__all__ = ["LocalOp", "contraction", "indexing", "kernels", "random", "run_local", "structure", "windows"]
