"""`Problem` and `Finding`: what is wrong with an annotation, as all checks report it."""

from dataclasses import dataclass

ERROR, WARNING, NO_RULE = "error", "warning", "no rule"
"""Malformed or contradictory; legal, but it costs something or leaves something open; no rule for the operator."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong. code: a short name that stays the same in later versions. operand: its input, or -1."""

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
