"""Rules of ONNX operators: which factors the axes of their inputs and outputs are, one short function an operator.

A factor is *parallel* (it is in outputs), *reduced* (in inputs only; its parts are combined) or *whole* (no axis of it
may be cut). Operators that ONNX's proposal 0007 lists, and those that it is silent about, are here alike; `SILENT_0007`
are those that it calls not supported. An operator without a rule is one that nobody described; it may be used, but
nothing is said about what is cut.
"""

from autoshard.onnx.rules.rule import Call, OpRule, RankUnknown, RuleFunction, ShapesDisagree
from autoshard.onnx.rules.table import SILENT_0007, rule_of

__all__ = ["SILENT_0007", "Call", "OpRule", "RankUnknown", "RuleFunction", "ShapesDisagree", "rule_of"]
