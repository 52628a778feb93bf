"""Advice where a module is malformed: one sentence for each kind of message; the first that fits is given."""

_ADVICE: tuple[tuple[str, str], ...] = (
    ("cannot coexist", "choose sub-axes of which one's pre-size is a multiple of the other's pre-size times size"),
    ("unregistered dialect", "autoshard reads StableHLO, CHLO, func and sdy; write the op or type in one of these"),
    ("is unknown (tried", "correct the op's name; ops are written with their dialect, as in stablehlo.add"),
    ("priority in format", 'write the priority behind the brace, {"x"}p1; priorities are 0, 1, 2, ...'),
    ("empty and closed", "open the dimension ({?}) or drop the priority"),
    ("doesn't match expected sharding", "give the result the sharding that follows from the operand's and the axes"),
    ("sharded size of result", "a permute keeps the number of parts of every dimension"),
    ("can't apply", "name axes at the minor end of the operand's dimension, in their order"),
    ("overlaps with operand", "name axes that the operand's sharding does not use"),
    ("are not equivalent", "give operand and result one sharding, or use another collective"),
    ("out_unreduced_axes should be", "the result is unreduced over the operand's unreduced axes and those named"),
    ("expected string", "write axis names in double quotes, and no empty lists"),
    ("axis size must be", "an axis has at least one device; drop the axis or correct its size"),
    ("use of value", "use the value with the type that it was defined with"),
    ("cannot be sharded", "drop or move the axis that has nothing left to split"),
    ("names whole axes only", "use whole axes, or leave the rest of the axis to another dimension"),
    ("unknown mesh", 'declare it with sdy.mesh @name = <["axis"=size]> or name a declared one'),
    ("unknown axis name", "use an axis of the mesh that the sharding is bound to"),
    ("duplicate axis ref", "an axis may appear once over all dimensions, replicated and unreduced axes"),
    ("can be merged", "write neighbouring sub-axes of one axis as one"),
    ("not ordered w.r.t. mesh", "list the axes in the order of the mesh"),
    ("both sub-axis and full-axis", "use either the whole axis or its sub-axes in one sharding"),
    ("sub-axis pre-size", "the pre-size is the product of the parts before the sub-axis, at least 1"),
    ("sub-axis sizes must", "a sub-axis splits something: its size is at least 2"),
    ("doesn't divide the size of the full axis", "pre-size times size must divide the size of the axis"),
    ("equal to the full axis size", "write the whole axis"),
    ("overlapping sub-axes", "choose sub-axes that do not share a part of the axis"),
    ("doesn't match tensor rank", "give one dimension sharding for every dimension of the tensor"),
    ("negative priority", "priorities are 0, 1, 2, ...; 0 goes first"),
    ("already bound by a parent", "inside a manual computation only the axes that are not manual are free"),
    ("expected '", "compare the text with the syntax of the op or attribute"),
    ("manual", "manual axes come first in a dimension, divide it, and appear in every in and out sharding"),
    ("device", "the device list is a permutation of 0..N-1 with N the product of the axis sizes"),
    ("maximal", "a maximal sharding has no dimension shardings, replicated or unreduced axes"),
    ("factor", "every factor needs a size, and the sizes of a dimension's factors multiply to its size"),
    ("malformed null-terminated string", "the bytecode is damaged: write the module anew, or give it as text"),
    ("attempting to parse", "the bytecode is damaged: write the module anew, or give it as text"),
    ("bytecode", "write the module anew with this MLIR, or give it as text"),
    ("undeclared SSA value", "define the value before its first use, or correct the name"),
    ("expected", "compare the text with the syntax of the op or attribute"),
    ("' op", "change the op or its types so that they fit its definition"),
)
ANY_ADVICE = "correct the text at this place"


def advice_on(message: str) -> str:
    """Advice for a message of MLIR's verifiers or of autoshard's own checks."""
    return next((advice for part, advice in _ADVICE if part in message), ANY_ADVICE)
