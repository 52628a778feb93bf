"""Collectives on what a transpose reads: done on the array as the transpose leaves it.

The gradient of a weight is a matmul whose result is transposed, and its partial sums may be added up in between. A
compiler makes matmul and transpose one where they follow each other; with a collective between them it keeps the
array the other way around instead, up to the weight and its optimizer state, and turns all of these around in
memory. So what is transposed next anyway is transposed first: the matmul gives it that way, the collective is the same
one, of as many bytes, along the same dimension under its other number, and transposing back and forth
afterwards is nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoshard.frontends.jax.function import TracedFunction
from autoshard.program.schedule import Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, Step

_KEEPS_ORDER: Final = frozenset({"convert_element_type", "copy", "reduce_precision"})
"""Ops between matmul and transpose past which a compiler moves the transpose."""


def turned_next(traced: TracedFunction, only_uses: Mapping[int, Use]) -> dict[int, Sequence[int]]:
    """By value that a matmul makes and nothing but a transpose reads, the order of dimensions that this leaves."""
    out: dict[int, Sequence[int]] = {}
    made: set[int] = set()
    for op, _ in traced.program.walk():
        if op.kind == "dot_general" or (op.kind in _KEEPS_ORDER and op.operands[0] in made):
            made.add(op.results[0])
        elif op.kind == "transpose" and op.operands[0] in made and op.operands[0] in only_uses:
            out[op.operands[0]] = tuple(traced.jax_ops[op.id].params["permutation"])
    return out


def transposed(reshard: Reshard, order: Sequence[int]) -> Reshard:
    """The reshard of a value whose dimensions are in another order; dimension k is `order[k]` of the value."""
    place = {dim: k for k, dim in enumerate(order)}

    def layout(of: Layout) -> Layout:
        return Layout(tuple(of.dims[d] for d in order), of.unreduced)

    def step(of: Step) -> Step:
        return replace(of, dim=place.get(of.dim, -1), to_dim=place.get(of.to_dim, -1))

    return Reshard(layout(reshard.source), layout(reshard.target), tuple(map(step, reshard.steps)))
