"""What can be wrong with an annotation, in one kind of value for all who look."""

from dataclasses import dataclass

ERROR, WARNING, NO_RULE = "error", "warning", "no rule"
"""Malformed or senseless; legal, but costs something or leaves something open; nothing is known about the operator."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong. code: a short name that stays. operand: which input of the node it is about, -1 for none."""

    code: str
    severity: str
    message: str
    advice: str = ""
    operand: int = -1
    axis: int | None = None
    tensor: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its place.

    scope: empty for the main graph; node: its name, or index and type; both empty for the model.
    configuration: the one that it holds for; empty where it is about none.
    """

    severity: str
    code: str
    message: str
    advice: str = ""
    scope: str = ""
    node: str = ""
    tensor: str = ""
    axis: int | None = None
    configuration: str = ""
    op: str = ""

    def __str__(self) -> str:
        """``node 'a' (MatMul), 'x' axis 1: what is wrong; what to try``."""
        place = [self.scope, f"node {self.node}" if self.node else "", f"'{self.tensor}'" if self.tensor else ""]
        where = ", ".join(p for p in place if p) + (f" axis {self.axis}" if self.axis is not None else "")
        return (f"{where}: " if where else "") + self.message + (f"; {self.advice}" if self.advice else "")
