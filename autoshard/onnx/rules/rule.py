"""What a rule is, and what the functions that make rules are given."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autoshard.onnx.graph import Dim, ValueType

Factors = tuple[tuple[int, ...], ...]
"""For every axis its factors, major to minor; none where the axis (of size 1) is broadcast or was reduced."""

Label = Hashable


@dataclass(frozen=True)
class Compound:
    """An axis that is a product of factors: (label, size), major to minor."""

    parts: tuple[tuple[Label, Dim], ...]


Axis = Label | Compound | None
Axes = Sequence[Any]


class RankUnknown(Exception):
    """A rule cannot be written because the rank of this tensor is not known."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


class ShapesDisagree(Exception):
    """Two axes that must be of one size are not."""


@dataclass(frozen=True)
class OpRule:
    """Factors of every axis of a node's inputs and outputs.

    sizes: of the factors, as far as known. inputs, outputs: None for an absent one, and for an input of which only the
    shape is read. reduced: factors of inputs alone, to be combined by `combine`. whole: factors that may not be cut.
    elementwise: axes pass straight through. broadcast: for every input the axes of size 1 that are repeated.
    """

    sizes: tuple[Dim, ...]
    inputs: tuple[Factors | None, ...]
    outputs: tuple[Factors | None, ...]
    reduced: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    combine: str = "add"
    elementwise: bool = False
    broadcast: tuple[tuple[int, ...], ...] = ()

    def text(self) -> str:
        """``([ij, k], [k, l])->([ij, l]) reduced={k}``.

        >>> OpRule((8, 4), (((0,), (1,)),), (((0,),),), frozenset({1})).text()
        '([i, j])->([i]) reduced={j}'
        """

        def tensor(factors: Factors | None) -> str:
            return "-" if factors is None else "[" + ", ".join("".join(map(_letter, a)) or "_" for a in factors) + "]"

        text = f"({', '.join(map(tensor, self.inputs))})->({', '.join(map(tensor, self.outputs))})"
        for name, special in (("reduced", self.reduced), ("whole", self.whole)):
            if special:
                text += f" {name}={{{', '.join(_letter(f) for f in sorted(special))}}}"
        return text + (f" combine={self.combine}" if self.combine != "add" else "")


def _letter(factor: int) -> str:
    return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"


@dataclass(frozen=True)
class Call:
    """A node with the types of its tensors.

    inputs: None where an optional one is left out. attributes: by name, as Python values. constants: numbers of inputs
    that are known, by position. version: of the operator set of its domain. reals: as constants, of floating point, for
    the operators whose rules need them.
    """

    op: str
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]
    names: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    version: int = 1
    reals: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Dimensions of an input; `RankUnknown` where even their number is not known."""
        kind = self.inputs[index] if index < len(self.inputs) else None
        if kind is None or kind.dims is None:
            raise RankUnknown(self.names[index] if index < len(self.names) else f"input {index}")
        return kind.dims

    def rank(self, index: int) -> int:
        """Number of dimensions of an input; `RankUnknown` where it is not known."""
        return len(self.dims(index))

    def out_dims(self, index: int = 0) -> tuple[Dim, ...]:
        """Dimensions of an output; `RankUnknown` where even their number is not known."""
        kind = self.outputs[index] if index < len(self.outputs) else None
        if kind is None or kind.dims is None:
            raise RankUnknown(f"output {index}")
        return kind.dims

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """The attribute `axis`, counted from the front."""
        return _from_front(int(self.attributes.get(name, default)), rank, self.op)

    def axes(self, rank: int, index: int = 1, name: str = "axes") -> tuple[int, ...] | None:
        """Axes from the attribute, or from a constant input; None where they are given and not known."""
        stated = self.attributes.get(name)
        if stated is None and self.has(index):
            stated = self.constants.get(index)
            if stated is None:
                return None
        return tuple(sorted({_from_front(int(a), rank, self.op) for a in stated or ()}))

    @cached_property
    def present_outputs(self) -> int:
        """How many outputs the node has."""
        return len(self.outputs)

    def whole_axes(self, index: int) -> list[Axis]:
        """Labels of an input that may not be cut at all; for `build`, which knows them as whole."""
        return [Whole(("input", index, a)) for a in range(self.rank(index))]

    def build(
        self,
        inputs: Sequence[Axes | None],
        outputs: Sequence[Axes],
        *,
        reduced: Iterable[Label] = (),
        combine: str = "add",
        elementwise: bool = False,
    ) -> OpRule:
        """Number the labels. Inputs that the rule does not name must be whole; outputs beyond the named ones too."""
        return _Builder(self).build(inputs, outputs, frozenset(reduced), combine, elementwise)


@dataclass(frozen=True)
class Whole:
    """A label that may not be cut."""

    label: Label


RuleFunction = Callable[[Call], OpRule]


class _Builder:
    """Numbers of labels, and their sizes."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.numbers: dict[Label, int] = {}
        self.sizes: list[Dim] = []
        self.whole: set[int] = set()

    def build(
        self,
        inputs: Sequence[Axes | None],
        outputs: Sequence[Axes],
        reduced: frozenset[Label],
        combine: str,
        elementwise: bool,
    ) -> OpRule:
        call = self.call
        operands = [*inputs, *(self._other(i) for i in range(len(inputs), len(call.inputs)))]
        ins = tuple(
            self._factors(axes, kind) if kind is not None and axes is not None else None
            for axes, kind in zip(operands, call.inputs, strict=False)
        )
        outs = tuple(
            None if kind is None else self._factors(outputs[i], kind) if i < len(outputs) else self._free(i, kind)
            for i, kind in enumerate(call.outputs)
        )
        broadcast = tuple(
            () if f is None or axes is None else tuple(a for a, parts in enumerate(f) if not parts)
            for f, axes in zip(ins, operands, strict=False)
        )
        numbers = frozenset(self.numbers[label] for label in reduced if label in self.numbers)
        return OpRule(tuple(self.sizes), ins, outs, numbers, frozenset(self.whole), combine, elementwise, broadcast)

    def _other(self, index: int) -> Axes | None:
        kind = self.call.inputs[index]
        return None if kind is None or kind.dims is None else self.call.whole_axes(index)

    def _free(self, index: int, kind: ValueType) -> Factors | None:
        if kind.dims is None:
            return None
        return self._factors([Whole(("output", index, a)) for a in range(len(kind.dims))], kind)

    def _factors(self, axes: Axes, kind: ValueType) -> Factors:
        dims = kind.dims if kind.dims is not None and len(kind.dims) == len(axes) else (None,) * len(axes)
        if kind.dims is not None and len(kind.dims) != len(axes):
            raise ShapesDisagree(f"{self.call.op} has a tensor {kind} where one of rank {len(axes)} belongs")
        return tuple(self._axis(axis, dim) for axis, dim in zip(axes, dims, strict=True))

    def _axis(self, axis: Axis, dim: Dim) -> tuple[int, ...]:
        if axis is None:
            return ()
        if isinstance(axis, Compound):
            return tuple(self._number(label, size) for label, size in axis.parts)
        return (self._number(axis, dim),)

    def _number(self, label: Label, size: Dim) -> int:
        must = isinstance(label, Whole)
        if label not in self.numbers:
            self.numbers[label] = len(self.sizes)
            self.sizes.append(size)
            if must:
                self.whole.add(self.numbers[label])
        number = self.numbers[label]
        known = self.sizes[number]
        if known is None or (isinstance(known, str) and isinstance(size, int)):
            self.sizes[number] = size
        elif isinstance(known, int) and isinstance(size, int) and known != size:
            raise ShapesDisagree(f"{self.call.op} has axes of sizes {known} and {size} where they must be equal")
        return number


def _from_front(axis: int, rank: int, op: str) -> int:
    if not -rank <= axis < max(rank, 1):
        raise ShapesDisagree(f"{op} names axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0
