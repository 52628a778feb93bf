"""How fast compiled work runs beside the peak rates: a few shares of one chip, fitted to its compiler's own cycles.

Peak rates price a program as it is written. A compiler fuses elementwise work into matmuls, keeps arrays on the chip,
runs matmuls of some types at a part of the peak, and takes attention's scores through memory several times. A profile
that has `compiled_work` prices work so; one without it prices at the peak rates.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False)]
Traffic = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
FEW_QUERIES = 32
"""Attention of fewer queries (by sequence and group of heads) has next to no scores: it reads keys and values once, as
a matmul does. Heads are at least as wide, so a shorter dimension is that of the queries."""

CACHED_ON_CHIP = 3
"""A cache of up to so many times `memory.on_chip` is brought to the chip in pieces while few queries attend to it."""


class WorkKind(StrEnum):
    """What an op does, as far as its speed depends on it."""

    MATMUL = "matmul"  # one with weights: at most one dimension is in all of its tensors
    ATTENTION = "attention"  # one with two dimensions or more in all of its tensors (sequences and heads) and scores
    SLICED = "sliced"  # one that reads its weights out of an array of several, as a scan over layers does
    CACHED = "cached"  # attention of few queries, as in decoding: it reads keys and values once
    SCORES = "scores"  # what is done to attention's scores beside its matmuls: counted with these
    UPDATED = "updated"  # a matmul whose product changes a weight right where it lies
    SPILLED = "spilled"  # a matmul neither of whose operands stays on the chip (`costs.apart`)
    CONVOLUTION = "convolution"
    ELEMENTWISE = "elementwise"  # everything else that some matmul depends on: it fuses into matmuls
    REDUCED = "reduced"  # the same, where it is a reduction or waits for one (norms): it does not
    UPDATE = "update"  # everything else: what becomes of gradients, the loss
    KERNEL = "kernel"  # written by hand: its bytes are what it says


_READS_ONCE = frozenset({WorkKind.MATMUL, WorkKind.SLICED, WorkKind.UPDATED, WorkKind.SPILLED, WorkKind.CACHED})
_STARTED = _READS_ONCE | {WorkKind.ATTENTION, WorkKind.CONVOLUTION}


class CompiledWork(BaseModel):
    """Shares of the peak that compiled work reaches, and how often the bytes that the fusion model counts cross memory.

    matmul: share of the peak by family of the element type (``bf16``, ``f32``); one that is not there has the share of
    ``bf16``. convolution: share of the peak. memory: share of the memory's rate, of work that memory bounds.
    matmul_memory: the same of matmuls of few rows, which memory bounds; `memory` where the profile does not say.
    sliced_memory: the same of those that read a slice of stacked weights, which is not brought to the chip beforehand;
    `matmul_memory` where the profile does not say.
    cached_memory: the same of the attention of few queries to caches that are larger than `CACHED_ON_CHIP` says;
    `matmul_memory` where the profile does not say.
    attention_peak: share of the peak of attention's matmuls, whose FLOP and bytes take turns then; where the profile
    does not say it is that of `matmul`, and whichever is longer counts.
    updated: share of the peak by family of matmuls with which the update of a weight is fused; `matmul` where the
    profile does not say.
    spilled: the same of matmuls neither of whose operands stays on the chip (``memory.on_chip``): they are read again
    with every piece of the product.
    matmul_start_s: seconds that each matmul takes beside its work, as the start and the end of a GPU's kernel do.
    matmul_written: by family, bytes that matmuls write when their FLOP are done over those of their results. Where the
    profile does not say it is 0: they are written meanwhile.
    elementwise, reduced, update, attention, scores: bytes that cross memory over those of the fusion model
    (docs/memory.md); `elementwise` for `reduced` and `scores` where the profile does not say. 0: counted elsewhere.
    moved_as_used: whether all-gathers and all-to-alls carry the type that all uses of what they move convert it to,
    and constants are made where they are needed. sums_combined: whether all-reduces of gradients are combined.
    hides_behind_uses: whether a gather hides only as far as the matmuls that use it last.
    scatters_tiles: whether a reduce-scatter whose parts are no whole tiles of 8 x 128 elements becomes an all-reduce.
    sector_bytes: what a read of memory brings at least, where transposes of short rows are loops that read each row's
    sector for every element of it (`costs/turned.py`); 0 where every transpose is made of tiles.
    pads_channels: whether a convolution takes as long as with its channels filled up to whole tiles of the matrix unit
    (`costs/channels.py`).
    turns_caches: whether operands of batched matmuls of few queries are turned around where their batch lies in pieces.
    source: a key of the profile's sources.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    matmul: Annotated[dict[str, Share], Field(min_length=1)]
    convolution: Share
    memory: Share
    matmul_memory: Share | None = None
    sliced_memory: Share | None = None
    cached_memory: Share | None = None
    matmul_start_s: Annotated[float, Field(ge=0, le=1e-3, allow_inf_nan=False)] = 0.0
    matmul_written: dict[str, Traffic] = Field(default_factory=dict)
    updated: dict[str, Share] = Field(default_factory=dict)
    spilled: dict[str, Share] = Field(default_factory=dict)
    elementwise: Traffic
    reduced: Traffic | None = None
    update: Traffic
    attention: Traffic
    attention_peak: Share | None = None
    scores: Traffic | None = None
    moved_as_used: bool = False
    sums_combined: bool = False
    hides_behind_uses: bool = False
    scatters_tiles: bool = False
    sector_bytes: Annotated[int, Field(ge=0, le=1024)] = 0
    turns_caches: bool = False
    pads_channels: bool = False
    source: str
    note: str | None = None

    def share_of_peak(self, kind: WorkKind, family: str) -> float:
        """The share of the matrix unit's peak rate that work of a kind reaches; 1 for what runs beside it."""
        if kind is WorkKind.CONVOLUTION:
            return self.convolution
        if kind is WorkKind.ATTENTION and self.attention_peak is not None:
            return self.attention_peak
        if kind in _READS_ONCE or kind in (WorkKind.ATTENTION, WorkKind.KERNEL):
            own = {WorkKind.UPDATED: self.updated, WorkKind.SPILLED: self.spilled}
            shares = {**self.matmul, **own.get(kind, {})}
            return shares.get(family, shares.get("bf16", max(shares.values())))
        return 1.0

    def takes_turns(self, kind: WorkKind) -> bool:
        """Whether FLOP and bytes of work of a kind add up, in place of the longer of both."""
        return kind is WorkKind.ATTENTION and self.attention_peak is not None

    def start_s(self, kind: WorkKind) -> float:
        """Seconds that work of a kind takes beside what its FLOP and bytes take."""
        return self.matmul_start_s if kind in _STARTED else 0.0

    def written(self, kind: WorkKind, family: str) -> float:
        """Bytes of its result that work of a kind writes when its FLOP are done, over those that the result has."""
        return self.matmul_written.get(family, 0.0) if kind in _READS_ONCE else 0.0

    def share_of_memory(self, kind: WorkKind) -> float:
        """The share of the memory's rate that work of a kind reaches where memory bounds it."""
        if kind is WorkKind.CACHED and self.cached_memory is not None:
            return self.cached_memory
        if kind is WorkKind.SLICED and self.sliced_memory is not None:
            return self.sliced_memory
        if kind in _READS_ONCE and self.matmul_memory is not None:
            return self.matmul_memory
        return self.memory

    def traffic(self, kind: WorkKind) -> float:
        """Bytes that cross memory over those of the fusion model."""
        by_kind: Mapping[WorkKind, float | None] = {
            WorkKind.ELEMENTWISE: self.elementwise, WorkKind.REDUCED: self.reduced, WorkKind.SCORES: self.scores,
            WorkKind.UPDATE: self.update, WorkKind.ATTENTION: self.attention,
        }  # fmt: skip
        told = by_kind.get(kind, 1.0)
        return self.elementwise if told is None else told
