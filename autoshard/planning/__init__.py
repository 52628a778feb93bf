"""From a program and what the user states to decisions: build the network, solve it, decode and check the answer.

Knows no front end.
"""

from autoshard.planning.decide import ACCEPTED_GAP, Decision, assumptions, check_room, decide, finish, name_nodes
from autoshard.planning.model import Model, Problem, build_model, donated_ties

__all__ = [
    "ACCEPTED_GAP",
    "Decision",
    "Model",
    "Problem",
    "assumptions",
    "build_model",
    "check_room",
    "decide",
    "donated_ties",
    "finish",
    "name_nodes",
]
