"""The record of a plan: what was decided, what it costs and how sure that is, and its JSON in both directions."""

from autoshard.plan_record.asked import AskedRecord
from autoshard.plan_record.parts import (
    OWN_SCHEDULER,
    PLACED_FORMS,
    RUN_FORMS,
    BaselineCost,
    BoundProof,
    ChosenForm,
    JointOptimum,
    JudgedRival,
    JudgedRivals,
    LeftOutRival,
    MeshPoint,
    MeshSearched,
    MeshTried,
    NamedPriorities,
    RunForm,
    SharingPrice,
    StageRecord,
    ToldChange,
    ToldLimit,
    ToldOptions,
)
from autoshard.plan_record.record import PlanRecord
from autoshard.plan_record.refusal import RefusalRecord

__all__ = [
    "OWN_SCHEDULER",
    "PLACED_FORMS",
    "RUN_FORMS",
    "AskedRecord",
    "BaselineCost",
    "BoundProof",
    "ChosenForm",
    "JointOptimum",
    "JudgedRival",
    "JudgedRivals",
    "LeftOutRival",
    "MeshPoint",
    "MeshSearched",
    "MeshTried",
    "NamedPriorities",
    "PlanRecord",
    "RefusalRecord",
    "RunForm",
    "SharingPrice",
    "StageRecord",
    "ToldChange",
    "ToldLimit",
    "ToldOptions",
]
