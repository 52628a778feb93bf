"""From a program and what the user states to decisions: build the network, solve it, decode and check the answer.

Knows no front end.
"""

from autoshard.planning.answer import answer, check_room
from autoshard.planning.axis_orders import notes_on_parts
from autoshard.planning.decide import decide
from autoshard.planning.decision import STOPPED_BY_USER, Decision, assumptions, best_seen, finish
from autoshard.planning.model import Model, build_model
from autoshard.planning.named_stages import check_names, named_stages
from autoshard.planning.no_plan import name_nodes
from autoshard.planning.problem import Problem
from autoshard.planning.sharing import price_of_sharing
from autoshard.planning.stages import StagePlan, decide_staged, stated_stages

__all__ = [
    "STOPPED_BY_USER",
    "Decision",
    "Model",
    "Problem",
    "StagePlan",
    "answer",
    "assumptions",
    "best_seen",
    "build_model",
    "check_names",
    "check_room",
    "decide",
    "decide_staged",
    "finish",
    "name_nodes",
    "named_stages",
    "notes_on_parts",
    "price_of_sharing",
    "stated_stages",
]
