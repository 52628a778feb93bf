"""Parts of a plan's record, as they stand in plan.json: typed, frozen, and checked when they are read.

Names of fields are those of the file, in its order. Amounts are bytes and seconds.
"""

from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoshard.errors import InputError
from autoshard.program.forms import check_form

Number = int | float
"""An amount as the file has it: ``2`` stays an integer."""


class Part(BaseModel):
    """Base of the parts. Fields of later versions are left out when a file is read."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    def to_dict(self) -> dict[str, Any]:
        """The part as it stands in plan.json."""
        return self.model_dump(by_alias=True)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The inverse of `to_dict`; `InputError` names the first field that does not fit."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(at) for at in first["loc"]) or cls.__name__
            raise InputError(f"plan: {where}: {first['msg']}, found {str(first.get('input'))[:60]!r}") from None


class BaselineCost(Part):
    """What a named strategy costs in the same program: its objective, or why it cannot be."""

    name: str
    objective_s: Number | None
    peak_bytes: int | None = None
    reason: str = ""


class BoundProof(Part):
    """The proof of a bound, and which network it is about (`planning.certified`).

    of: whether of the plan's bound, of the optimum all at once beside its stages, or of a stage; or of a refusal.
    bound: in ticks; None in a refusal, where the proof is that there is no plan.
    limit: bytes that the network was held to; moments: at which it knew of what depends on several decisions; shares:
    whether repeated layers share their decisions there, where they do in the plan. weights: of links by name, where it
    counts a weighted mean of what devices wait for and what links work (objective overlap). counts: whether it knows of
    the stated counts of reshards; prices: ticks that every reshard costs there in the place of each count. data: the
    certificate, in base64.
    """

    of: Literal["plan", "joint", "stage", "refusal"]
    bound: int | None
    limit: int | None
    moments: dict[str, tuple[int, ...]] | None
    data: str = Field(repr=False)
    shares: bool = True
    weights: dict[str, Number] = {}
    counts: bool = True
    prices: tuple[int, ...] = ()


_PLACED = {str: {str: [[str]]}}
"""Mesh axes by factor or dimension, by the number of a value, an output or an op, by kind of place."""
_AMOUNT = (int, float, None)
_STAGE = {
    "placed": _PLACED,
    "left_out?": _PLACED,
    "relaxed?": [
        {
            "what": str, "keys": [str], "name": str, "on": int, "axes": [str], "source": str, "why": str,
            "proved": bool, "price_s": _AMOUNT, "peak_bytes": _AMOUNT,
        }
    ],
    "unlimited?": ({"cost_s": (int, float), "peak_bytes": (int, float)}, None),
}  # fmt: skip


class StageRecord(Part):
    """What one stage decided.

    cost_s, bound_s: of its optimum, and the proof. price_s: how much dearer than the stage before; the first one than
    the optimum without any pin. placed: what it placed that stages before had not. relaxed: placements that it wanted
    and could not keep; unlimited: its cost and peak with all that it wanted, without the memory limit, where that limit
    left no room for some of it (see `planning.relaxed`). left_out: what its statements propagate and it did not take as
    given; certificate: the proof of its bound, on the network with what it did and with what stages before it placed.
    """

    priority: int
    name: str
    statements: tuple[str, ...]
    axes: tuple[str, ...]
    cost_s: Number
    bound_s: Number
    gap: Number
    status: str
    peak_bytes: int
    price_s: Number
    placed: dict[str, Any]
    relaxed: tuple[dict[str, Any], ...] = ()
    unlimited: dict[str, Any] | None = None
    left_out: dict[str, Any] = Field(default_factory=dict)
    certificate: BoundProof | None = None

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The inverse of `to_dict`."""
        check_form(data, _STAGE, "stages")
        return super().from_dict(data)


class JointOptimum(Part):
    """The optimum with all statements at once, beside a decision in stages.

    price_of_stages_s: how much more the decision in stages costs.
    """

    cost_s: Number
    bound_s: Number
    gap: Number
    status: str
    price_of_stages_s: Number


class SharingPrice(Part):
    """What it costs that repeated layers share their decisions.

    decisions: how many decisions there are. shared: how many of them are taken over from another layer. bound_s: no
    plan in which layers differ costs less; None where that was not worked out. price_at_most_s: the most that sharing
    can cost, or None.
    """

    decisions: int
    shared: int
    bound_s: Number | None
    price_at_most_s: Number | None


class MeshTried(Part):
    """The result for one mesh of a search over meshes: its best plan and bound, or why there is none.

    status: that of the plan, ``pruned`` (its bound rules it out), ``alike`` (the same as the mesh in `reason` but for
    the names of the axes), ``cannot be`` (proved, or the machine has no such mesh), ``none found`` or ``out of time``.
    """

    mesh: dict[str, int]
    status: str
    objective_s: Number | None = None
    bound_s: Number | None = None
    peak_bytes: int | None = None
    reason: str = ""


class MeshPoint(Part):
    """A plan on the frontier of time and memory: no plan that was found is both quicker and smaller."""

    mesh: dict[str, int]
    objective_s: Number
    peak_bytes: int
    memory_limit: int | None


class MeshSearched(Part):
    """The search over the sizes of a mesh.

    bound_s: no mesh of the search has a plan that costs less.
    """

    devices: int
    axes: tuple[str, ...]
    bound_s: Number
    tried: tuple[MeshTried, ...]
    frontier: tuple[MeshPoint, ...]


class NamedPriorities(Part):
    """Stages by names of strategies.

    names: the strategies, in the order of the stages. roles: the logical axes of each input's dimensions. slow: the
    mesh axes between slices.
    """

    names: tuple[str | dict[str, Any], ...]
    roles: dict[str, tuple[str | None, ...]]
    slow: tuple[str, ...]


class ToldLimit(Part):
    """The memory limit in bytes per device (None: lifted), and whether the user stated it or the device sets it."""

    bytes: int | None
    source: Literal["stated", "device"] = Field(validation_alias="from", serialization_alias="from")


class ToldOptions(Part):
    """The options that the plan was made with; questions to the plan use them too. None where a file does not say.

    objective: what `objective_s` counts, see `autoshard.costs.exposure`; ``serial`` in plans of earlier versions.
    """

    effort: Number | None = None
    seed: int | None = None
    accepted_gap: Number | None = None
    share_repeats: bool | None = None
    sub_axes: dict[str, tuple[int, ...]] | None = None
    strategy: str | None = None
    objective: Literal["serial", "overlap"] | None = None


RunForm = Literal["explicit", "constraints", "shardings"]
RUN_FORMS: tuple[RunForm, ...] = get_args(RunForm)
"""The forms in which a plan is run."""
PLACED_FORMS: tuple[RunForm, ...] = RUN_FORMS[:2]
"""Those that hold what the plan decides about values inside: collectives too, or placements alone."""
OWN_SCHEDULER = "autoshard's scheduler"
"""The judge where no compiler is."""


class ChosenForm(Part):
    """In which form the plan is handed to XLA, where it is not simply written out.

    asked: what was asked for; form: what was chosen. Where that was by simulation: judge: who ordered the steps;
    seconds: of a step by form; notes: forms that were not judged, and why.
    """

    asked: Literal["constraints", "shardings", "auto", "all"]
    form: RunForm
    judge: str | None = None
    seconds: dict[str, Number] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def saves_s(self) -> float:
        """Seconds of a step that the form saves beside written-out collectives, or beside the next best where these are
        not known; 0 where only one is known."""
        others = {name: s for name, s in self.seconds.items() if name != self.form}
        if not others or self.form not in self.seconds:
            return 0.0
        return max(0.0, others.get("explicit", min(others.values())) - self.seconds[self.form])


class ToldChange(Part):
    """What a question asked otherwise than the plan that it was put to.

    pins: further ones, as statements; what contradicts them gave way. kept: those that the plan had anyway, which make
    no stage. memory_limit, machine, program: where those are others. options: of the search, where they are others.
    """

    pins: tuple[dict[str, Any], ...] = ()
    kept: tuple[dict[str, Any], ...] = ()
    memory_limit: ToldLimit | None = None
    machine: dict[str, Any] | None = None
    program: bool = False
    options: dict[str, Number | None] = Field(default_factory=dict)


class JudgedRival(Part):
    """A plan that was simulated beside others.

    also: other names under which the same plan was found. objective_s: its modelled seconds, as the plan's objective
    counts them, with the minute price on memory; calibrated_s: those by calibrated figures of its chip, where there are
    any. seconds: of a simulated step, by form; refused: why there is none.
    """

    name: str
    also: tuple[str, ...] = ()
    objective_s: Number
    calibrated_s: Number | None = None
    peak_bytes: int
    seconds: dict[str, Number]
    refused: dict[str, str] = Field(default_factory=dict)


class LeftOutRival(Part):
    """A plan that was not simulated: its modelled seconds where it has any, and why it was left out."""

    name: str
    objective_s: Number | None = None
    reason: str


class JudgedRivals(Part):
    """A choice among plans of one problem by simulation. The first of `compared` is the plan that was at hand.

    within: share of that plan's modelled seconds by which a rival may be above them, or of the least seconds by
    calibrated figures by which it may be above these. judge, clock: who ordered the
    steps, and how work was timed. chosen: the name of the plan that this one is. notes: why another judge was not.
    """

    within: Number
    judge: str
    clock: str
    chosen: str
    compared: tuple[JudgedRival, ...]
    left_out: tuple[LeftOutRival, ...] = ()
    notes: tuple[str, ...] = ()
