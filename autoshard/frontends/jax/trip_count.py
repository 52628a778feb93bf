"""The number of iterations of a `while`, from its condition and body."""

import jax.numpy as jnp

from autoshard.frontends.draft import DraftOp, DraftValue, Scalar
from autoshard.program.program import Origin


def while_trips(op: DraftOp) -> int | None:
    """The number of iterations of a `while` that counts one carry by a constant step from and to literal bounds.

    Recognises ``i < n`` (and ``<=``, ``>``, ``>=``, ``!=``, with either operand first) where ``i`` starts at a literal
    and the body adds or subtracts a literal, and ``n`` is a literal, or a carry or constant that always has the value
    of a literal. None for other loops.
    """
    cond, body = op.regions
    first_cond, n_consts = op.attrs["cond_nconsts"], op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]
    test = next((o for o in cond.ops if cond.results[0] in o.results), None)
    if test is None or len(test.operands) != 2 or test.kind not in _COMPARE:
        return None

    def constant(value: DraftValue) -> Scalar | None:
        """The scalar a value of the condition has on every trip."""
        if value.origin is Origin.LITERAL:
            return value.literal
        if value not in cond.args:
            return None
        k = cond.args.index(value)
        if k < first_cond:
            return op.operands[k].literal
        carry = k - first_cond
        unchanged = body.results[carry] is body.args[op.attrs["body_nconsts"] + carry]
        return op.operands[n_consts + carry].literal if unchanged else None

    left, right = test.operands
    kind = test.kind
    if constant(left) is not None:
        left, right, kind = right, left, _FLIPPED[kind]
    bound = constant(right)
    if bound is None or left not in cond.args or cond.args.index(left) < first_cond:
        return None
    carry = cond.args.index(left) - first_cond
    start = op.operands[n_consts + carry].literal
    arg = body.args[op.attrs["body_nconsts"] + carry]
    step = next((o for o in body.ops if body.results[carry] in o.results), None)
    if start is None or step is None or step.kind not in ("add", "sub") or len(step.operands) != 2:
        return None
    a, b = step.operands
    if b is arg and step.kind == "add":
        a, b = b, a
    if a is not arg or b.literal is None:
        return None
    by = b.literal if step.kind == "add" else -b.literal
    if not all(isinstance(x, int) for x in (start, bound, by)):
        return None
    return _count(int(start), int(bound), int(by), kind, left.type.dtype)  # type: ignore[arg-type]


_COMPARE = frozenset({"lt", "le", "gt", "ge", "ne"})
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def _count(start: int, bound: int, by: int, kind: str, dtype: str) -> int | None:
    """Iterations of ``while start <kind> bound: start += by``; None where the counter wraps around or the loop never
    ends.
    """
    if kind in ("gt", "ge"):
        start, bound, by, kind = -start, -bound, -by, {"gt": "lt", "ge": "le"}[kind]
    if kind == "ne":
        if start == bound:
            return 0
        return (bound - start) // by if by and (bound - start) % by == 0 and (bound - start) // by > 0 else None
    limit = bound + (kind == "le")
    if start >= limit:
        return 0
    if by <= 0:
        return None
    trips = -(-(limit - start) // by)
    info = jnp.iinfo(dtype) if dtype.startswith(("int", "uint")) else None
    return None if info is None or abs(start + trips * by) > info.max else trips
