"""What every op of a program does, as far as the speed of compiled work depends on it.

Beside the op itself its place matters. A compiler fuses pointwise work into matmuls and convolutions, but what waits
for a reduction (a norm) passes over memory on its own; what is done to the scores of attention belongs to attention;
and a matmul runs slower where the update of a weight is fused to the gradient that it makes.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from autoshard.costmodels.compiled import FEW_QUERIES, WorkKind
from autoshard.costs.critical import MatmulOrder, matmul_order
from autoshard.costs.fusion import is_root
from autoshard.costs.work import MATMUL_KINDS, common_dimensions
from autoshard.program.program import Block, Op, Program
from autoshard.program.rule import ShardingRule

_REDUCTIONS: Final = ("reduce_", "arg", "cum", "select_and")
_NO_REDUCTIONS: Final = frozenset({"reduce_precision"})
_SLICES: Final = frozenset({"slice", "dynamic_slice"})
_EXPONENTIALS: Final = frozenset({"exp", "exp2"})


def work_kinds(program: Program) -> Mapping[int, WorkKind]:
    """Op id -> what it does; for ops with a rule."""
    order = matmul_order(program)
    kinds = {op.id: _by_itself(op, order.after) for op, _ in program.walk() if op.rule is not None}
    kinds.update(_attention_of_one_sequence(program, kinds))
    for block in _blocks(program.body):
        waiting = _waiting(block)
        for op in block.ops:
            if kinds.get(op.id) is WorkKind.ELEMENTWISE and not waiting.isdisjoint(op.results):
                kinds[op.id] = WorkKind.REDUCED
        for op in _on_scores(program, block, kinds):
            kinds[op.id] = WorkKind.SCORES
        for op in _updated(program, block, kinds, order, waiting):
            kinds[op.id] = WorkKind.UPDATED
    sliced = _slices(program)
    for op, _ in program.walk():
        if kinds.get(op.id) is WorkKind.MATMUL and _largest_operand(program, op) in sliced:
            kinds[op.id] = WorkKind.SLICED
    return kinds


def _slices(program: Program) -> frozenset[int]:
    """Slices of larger arrays, those that a scan takes apart too, and what is made of them element by element."""
    found: set[int] = set()
    for block in _blocks(program.body):
        for op in block.ops:
            if op.kind == "scan":
                found.update(op.regions[0].args[op.attrs["num_consts"] + op.attrs["num_carry"] :])
            if op.regions or op.kind in MATMUL_KINDS or not op.operands:
                continue
            made_of = [v for v in op.operands if _elements(program, v) > 1]
            most = max((_elements(program, v) for v in made_of), default=0)
            one_by_one = op.kind == "broadcast_in_dim" or all(_elements(program, v) == most for v in op.results)
            if op.kind in _SLICES or (one_by_one and made_of and found.issuperset(made_of)):
                found.update(op.results)
    return frozenset(found)


def _largest_operand(program: Program, op: Op) -> int:
    return max(op.operands, key=lambda v: program.type_of(v).elements)


def _by_itself(op: Op, after: frozenset[int]) -> WorkKind:
    """after: the values that some matmul depends on."""
    assert op.rule is not None
    if "work" in op.attrs:
        return WorkKind.KERNEL
    if op.kind == "conv_general_dilated":
        return WorkKind.CONVOLUTION
    if op.kind in MATMUL_KINDS:
        if common_dimensions(op.rule) < 2:
            return WorkKind.MATMUL
        return WorkKind.ATTENTION if _has_scores(op.rule) else WorkKind.CACHED
    return WorkKind.ELEMENTWISE if any(value in after for value in op.results) else WorkKind.UPDATE


def _has_scores(rule: ShardingRule) -> bool:
    """Whether rows, columns and contraction of a batched matmul are all as long as when many queries have scores."""
    left, right, result = ({f for dim in t for f in dim} for t in (*rule.operands, *rule.results))
    sides = ((left & result) - right, (right & result) - left, (left & right) - result)
    return min(prod(rule.factor_sizes[f] for f in side) for side in sides) >= FEW_QUERIES


def is_reduction(op: Op) -> bool:
    """Whether each element of an op's result stands for many of its operand."""
    return op.kind == "reduce" or (op.kind.startswith(_REDUCTIONS) and op.kind not in _NO_REDUCTIONS)


def _waiting(block: Block) -> frozenset[int]:
    """Values of a block that a reduction made, or that wait for one since the last matmul."""
    found: set[int] = set()
    for op in block.ops:
        if not op.regions and op.kind not in MATMUL_KINDS and "work" not in op.attrs:
            if is_reduction(op) or not found.isdisjoint(op.operands):
                found.update(op.results)
    return frozenset(found)


def _on_scores(program: Program, block: Block, kinds: Mapping[int, WorkKind]) -> list[Op]:
    """Ops that read or write scores: the largest tensors of attention's matmuls, and what is made of them element by
    element until the next matmul.
    """
    scores = [_largest(program, op) for op in block.ops if kinds.get(op.id) is WorkKind.ATTENTION]
    return _tied(program, _touching(block, kinds), scores)


def _attention_of_one_sequence(program: Program, kinds: Mapping[int, WorkKind]) -> dict[int, WorkKind]:
    """Matmuls with one dimension in all of their tensors (heads), as attention has where a batch is one sequence.

    Experts have one too. So one of them must be on an exponential of its scores, a softmax; the others, gradients in
    another block for one, have the same sizes.
    """
    found: dict[int, tuple[int, ...]] = {}
    sizes: set[tuple[int, ...]] = set()
    for block in _blocks(program.body):
        mine = [op for op in block.ops if kinds.get(op.id) is WorkKind.MATMUL and _is_of_heads(op.rule)]
        touching = _touching(block, kinds) if mine else {}
        for op in mine:
            assert op.rule is not None
            found[op.id] = tuple(sorted(size for size in op.rule.factor_sizes if size > 1))
            if any(o.kind in _EXPONENTIALS for o in _tied(program, touching, [_largest(program, op)])):
                sizes.add(found[op.id])
    return {op: WorkKind.ATTENTION for op, own in found.items() if own in sizes}


def _is_of_heads(rule: ShardingRule | None) -> bool:
    return rule is not None and common_dimensions(rule) == 1 and _has_scores(rule)


def _largest(program: Program, op: Op) -> int:
    return max((*op.operands, *op.results), key=lambda v: program.type_of(v).elements)


def _touching(block: Block, kinds: Mapping[int, WorkKind]) -> dict[int, list[Op]]:
    """Value -> the ops beside matmuls that read or write it."""
    touching: dict[int, list[Op]] = {}
    for op in block.ops:
        if kinds.get(op.id) in (WorkKind.ELEMENTWISE, WorkKind.REDUCED, WorkKind.UPDATE):
            for value in (*op.operands, *op.results):
                touching.setdefault(value, []).append(op)
    return touching


def _tied(program: Program, touching: Mapping[int, list[Op]], values: list[int]) -> list[Op]:
    """Ops that touch these values, or what is made of them element by element."""
    queue, seen, found = list(values), set(values), {}
    while queue:
        value = queue.pop()
        for op in touching.get(value, ()):
            found[op.id] = op
            like = {v for v in (*op.operands, *op.results) if _elements(program, v) == _elements(program, value)}
            queue += like - seen
            seen |= like
    return list(found.values())


def _updated(
    program: Program, block: Block, kinds: Mapping[int, WorkKind], order: MatmulOrder, waiting: frozenset[int]
) -> Iterator[Op]:
    """Matmuls whose product, changed element by element and waiting for no reduction, meets an array that no matmul
    made, a weight or its moments, on its way out of the block.
    """
    readers: dict[int, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys(op.operands):
            readers.setdefault(value, []).append(op)
    results = frozenset(block.results)
    for op in block.ops:
        if kinds.get(op.id) is WorkKind.MATMUL and order.after.isdisjoint(op.results):
            size, seen, queue = _elements(program, op.results[0]), set(), [(op.results[0], False)]
            while queue:
                value, met = queue.pop()
                if met and value in results:
                    yield op
                    break
                for reader in readers.get(value, ()):
                    if reader.regions or is_root(reader) or not waiting.isdisjoint(reader.operands):
                        continue
                    meets = met or any(v not in order.before and _elements(program, v) == size for v in reader.operands)
                    new = {(v, meets) for v in reader.results if _elements(program, v) == size} - seen
                    seen |= new
                    queue += new


def _elements(program: Program, value: int) -> int:
    return program.type_of(value).elements


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region)
