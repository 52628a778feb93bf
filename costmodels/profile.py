"""Hardware profiles: numbers of one device, each with unit, direction, source and date.

A profile is read from YAML (`profiles/*.yaml`) and validated here, so that a `Profile` that exists is possible.
Figures are those of one *device*, the thing a mesh is made of (one TPU chip, one GPU). Rates are dense (no
sparsity), one way and in SI units: 450e9 bytes/s for a GPU that the vendor sells with "900 GB/s" both ways.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autoshard.costmodels.compiled import CompiledWork
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.families import FALLBACK, KNOWN_RATES, family_of
from autoshard.costmodels.faults import said

# Ranges of all present and near machines: a figure outside of them has the wrong unit (GB/s for bytes/s).
FLOPS_RANGE = (1e8, 1e17)
BYTES_PER_S_RANGE = (1e6, 1e15)
MEMORY_BYTES_RANGE = (2**24, 1e14)
LATENCY_S_RANGE = (0.0, 0.1)
MOST_FAULTS = 10  # of a profile that are told one by one

Unit = Literal["FLOP/s", "bytes/s", "bytes", "s", "fraction", "elements"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Strict):
    """Where numbers come from."""

    title: str
    url: str | None = None
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$")]  # of publication; of reading for living pages


class Quantity(_Strict):
    """One number with its unit, direction (for links) and source (a key of `Profile.sources`)."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Unit
    source: str
    direction: Literal["one-way", "both-ways"] | None = None
    note: str | None = None


def _check(where: str, quantity: Quantity, unit: str, lo: float, hi: float, hint: str = "") -> None:
    if quantity.unit != unit:
        raise ValueError(f"{where} is in {quantity.unit}; it must be in {unit}")
    if not lo <= quantity.value <= hi:
        raise ValueError(f"{where} is {quantity.value:g} {unit}; possible is {lo:g} to {hi:g}{hint}")


def _check_rate(where: str, quantity: Quantity, direction: str = "one-way") -> None:
    _check(where, quantity, "bytes/s", *BYTES_PER_S_RANGE, hint=" (give bytes/s, not GB/s)")
    if quantity.direction != direction:
        found = quantity.direction or "without a direction"
        hint = "; halve a both-ways figure" if direction == "one-way" else ""
        raise ValueError(f"{where} is {found}; it must be {direction}{hint}")


class Wraparound(_Strict):
    """When the dimensions of a torus slice close into rings."""

    rule: Literal["never", "always", "dimension_size", "all_multiples_of"]
    size: Annotated[int, Field(ge=2)] | None = None  # of `dimension_size` and `all_multiples_of`
    source: str

    @model_validator(mode="after")
    def _size_given(self) -> Self:
        if (self.size is not None) != (self.rule in ("dimension_size", "all_multiples_of")):
            raise ValueError(f"wraparound rule {self.rule!r} {'has no' if self.size else 'needs a'} size")
        return self

    def wraps(self, shape: tuple[int, ...]) -> tuple[bool, ...]:
        """Which dimensions of a slice of this shape are rings; two chips have one link and are never a ring.

        >>> Wraparound(rule="dimension_size", size=16, source="").wraps((8, 16))
        (False, True)
        >>> Wraparound(rule="all_multiples_of", size=4, source="").wraps((2, 4, 4))
        (False, False, False)
        """
        size = self.size or 1
        match self.rule:
            case "never":
                return (False,) * len(shape)
            case "always":
                return tuple(n > 2 for n in shape)
            case "dimension_size":
                return tuple(n == size and n > 2 for n in shape)
            case "all_multiples_of":
                return tuple(all(n % size == 0 for n in shape) and n > 2 for n in shape)


class Reached(_Strict):
    """A measured point: the share of the link's rate that collectives over `bytes` (V) reach."""

    bytes: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    share: Annotated[float, Field(gt=0, le=1)]
    source: str


Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "shift"]


class _Level(_Strict):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    latency: Quantity
    # Measured: how much longer than its formula a kind takes (the bandwidth part); 1 for kinds that are missing.
    kind_factors: dict[Collective, Annotated[float, Field(ge=0.05, le=100, allow_inf_nan=False)]] = {}
    reached: tuple[Reached, ...] = ()  # by size, ascending; for `Machine.likely_s`, never for the bounds
    note: str | None = None

    @model_validator(mode="after")
    def _latency_possible(self) -> Self:
        _check(f"level {self.name!r}: latency", self.latency, "s", *LATENCY_S_RANGE, hint=" (give seconds)")
        points = [(point.bytes, point.share) for point in self.reached]
        if points != sorted(points) or [share for _, share in points] != sorted(share for _, share in points):
            raise ValueError(f"level {self.name!r}: reached has to ascend in bytes and in share, found {points}")
        return self


class TorusLevel(_Level):
    """Chips in a grid, each with a link to its neighbours; a dimension may close into a ring.

    `link` is one link, one way (w); `latency` is of one hop. A chip sends 2w along a ring, w along a line.
    """

    kind: Literal["torus"]
    link: Quantity
    max_shape: tuple[Annotated[int, Field(ge=1)], ...]
    max_chips: Annotated[int, Field(ge=1)] | None = None
    wraparound: Wraparound
    shapes: tuple[tuple[Annotated[int, Field(ge=1)], ...], ...] = ()  # slices that can be had, ascending sizes
    shapes_multiple_of: Annotated[int, Field(ge=1)] | None = None  # also every shape made of multiples of this
    vendor_both_ways_per_chip: Quantity | None = None  # as the vendor prints it; never used in a formula
    whole_slice_reduce_scatter: Literal["reduce_scatter", "all_reduce"] = "reduce_scatter"  # what the compiler runs

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_rate(f"level {self.name!r}: link", self.link)
        if not 1 <= len(self.max_shape) <= 4:
            raise ValueError(f"level {self.name!r}: max_shape needs 1 to 4 dimensions, found {len(self.max_shape)}")
        for shape in self.shapes:
            if len(shape) != len(self.max_shape) or list(shape) != sorted(shape):
                raise ValueError(
                    f"level {self.name!r}: shape {list(shape)} must have {len(self.max_shape)} sizes, ascending"
                )
            if not self.fits(shape):
                raise ValueError(f"level {self.name!r}: shape {list(shape)} exceeds max_shape {list(self.max_shape)}")
        if self.vendor_both_ways_per_chip is not None:
            quantity = self.vendor_both_ways_per_chip
            _check_rate(f"level {self.name!r}: vendor_both_ways_per_chip", quantity, "both-ways")
            ours = 2 * 2 * len(self.max_shape) * self.link.value
            if not 0.8 <= ours / quantity.value <= 1.25:
                raise ValueError(
                    f"level {self.name!r}: {2 * len(self.max_shape)} links of {self.link.value:g} bytes/s one way make "
                    f"{ours:g} both ways, but vendor_both_ways_per_chip says {quantity.value:g}; one of them has "
                    "the wrong direction (a machine with other links than its base needs its own figure, or null)"
                )
        return self

    @property
    def dims(self) -> int:
        """Number of dimensions of the torus."""
        return len(self.max_shape)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a slice of this shape, in some order, lies within the largest torus."""
        return all(n <= m for n, m in zip(sorted(shape), sorted(self.max_shape), strict=True))

    def is_sold(self, shape: tuple[int, ...]) -> bool:
        """Whether a slice of this shape (in any order) exists on its own."""
        ascending = tuple(sorted(shape))
        if ascending in self.shapes:
            return True
        multiple = self.shapes_multiple_of
        return multiple is not None and all(n % multiple == 0 for n in shape) and self.fits(ascending)


class SwitchLevel(_Level):
    """Devices (or nodes) that all reach each other through switches at full rate.

    `egress` is the rate at which one device sends, one way (E). `latency` is of one pass of a collective (an all-reduce
    has two). `size` is the number of devices of the domain (innermost level) or of inner domains; None for no limit.
    """

    kind: Literal["switch"]
    egress: Quantity
    step_latency: Quantity | None = None  # of each step of a ring, where that is known: n - 1 of them in a gather
    small_step_latency: Quantity | None = None  # the same where small messages are sent faster at half of the rate
    size: Annotated[int, Field(ge=1)] | None = None
    in_network_reduction: bool = False  # whether the switches can reduce (SHARP)
    crosses_inner_link: bool = False  # traffic of this level also crosses the links of the level inside it
    vendor_both_ways: Quantity | None = None  # as the vendor prints it; never used in a formula

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_rate(f"level {self.name!r}: egress", self.egress)
        for name in ("step_latency", "small_step_latency"):
            if (step := getattr(self, name)) is not None:
                _check(f"level {self.name!r}: {name}", step, "s", *LATENCY_S_RANGE)
        if self.vendor_both_ways is not None:
            quantity = self.vendor_both_ways
            _check_rate(f"level {self.name!r}: vendor_both_ways", quantity, "both-ways")
            if not 0.8 <= 2 * self.egress.value / quantity.value <= 1.25:
                raise ValueError(
                    f"level {self.name!r}: egress {self.egress.value:g} one way is not half of "
                    f"vendor_both_ways {quantity.value:g}; one of them has the wrong direction (a machine with other "
                    "links than its base needs its own vendor_both_ways, or null)"
                )
        return self


class FullMeshLevel(_Level):
    """Devices without a switch, each with a link to every other one (MI300X): a pair of devices has one link only."""

    kind: Literal["full_mesh"]
    link: Quantity  # one link, one way
    size: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_rate(f"level {self.name!r}: link", self.link)
        return self


Level = Annotated[TorusLevel | SwitchLevel | FullMeshLevel, Field(discriminator="kind")]


class Memory(_Strict):
    """The device's main memory."""

    bytes: Quantity
    bandwidth: Quantity
    usable: Quantity | None = None  # bytes that the runtime leaves to programs, where that is known
    host_link: Quantity | None = None  # between the device and its host, one way, where that is known
    on_chip: dict[Literal["bf16", "f32"], Quantity] = {}  # bytes of a matmul's operand that stay on the chip

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check("memory.bytes", self.bytes, "bytes", *MEMORY_BYTES_RANGE, hint=" (give bytes, not GB)")
        if self.usable is not None:
            _check("memory.usable", self.usable, "bytes", 1, self.bytes.value, hint=" (no more than memory.bytes)")
        for family, size in self.on_chip.items():
            _check(f"memory.on_chip.{family}", size, "bytes", 1, MEMORY_BYTES_RANGE[1])
        if self.host_link is not None:
            _check("memory.host_link", self.host_link, "bytes/s", *BYTES_PER_S_RANGE, hint=" (give bytes/s, not GB/s)")
        _check("memory.bandwidth", self.bandwidth, "bytes/s", *BYTES_PER_S_RANGE, hint=" (give bytes/s, not GB/s)")
        return self

    @property
    def usable_bytes(self) -> float:
        """Bytes that the runtime leaves to programs; all of them where that is not known."""
        return (self.usable or self.bytes).value

    def on_chip_bytes(self, dtype: str) -> float:
        """Up to how many bytes an operand of a matmul stays on the chip; infinite where nothing says so."""
        size = self.on_chip.get("f32" if family_of(dtype) == "f32" else "bf16") or self.on_chip.get("bf16")
        return float("inf") if size is None else size.value


class Overlap(_Strict):
    """Share of each kind's time that hides behind compute in the *estimate*; the bounds use 1 and 0 instead."""

    all_gather: Annotated[float, Field(ge=0, le=1)] = 0.0
    reduce_scatter: Annotated[float, Field(ge=0, le=1)] = 0.0
    all_reduce: Annotated[float, Field(ge=0, le=1)] = 0.0
    all_to_all: Annotated[float, Field(ge=0, le=1)] = 0.0
    permute: Annotated[float, Field(ge=0, le=1)] = 0.0
    source: str


class Profile(_Strict):
    """One machine: a device's compute and memory, and the links between devices, innermost level first."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: str
    vendor: str
    sources: dict[str, Source]
    peak_flops: dict[str, Quantity]  # dense matmul rate by element type; a multiply-add counts as 2
    vector_flops: Quantity  # elementwise arithmetic in float32
    memory: Memory
    levels: Annotated[tuple[Level, ...], Field(min_length=1)]
    overlap: Overlap
    matmul_efficiency: Quantity | None = None  # share of the peak that matmuls of training steps reach (the estimate)
    attention_efficiency: Quantity | None = None  # the same of attention, all of S x S counted
    staging_rate: Quantity | None = None  # of software that gathers and scatters sharded weights in turn with work
    matmul_tile: Annotated[int, Field(ge=1)] = 1  # matmul dimensions are padded to multiples of this
    compiled_work: CompiledWork | None = None  # of plans' prices; where it is missing they are at the peak rates
    chip: str | None = None  # the packaged profile of the chip that this one describes, where that is another one
    memory_tile: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None  # rows and lanes
    memory_rules: Literal["gpu"] | None = None  # of XLA for GPUs; where it is missing those of the TPU compiler
    devices_per_chip: Annotated[int, Field(ge=1)] = 1  # JAX devices; figures here are those of a whole chip
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.peak_flops:
            raise ValueError("peak_flops is empty; give at least the rate of f32 or bf16")
        for dtype, rate in self.peak_flops.items():
            if dtype not in KNOWN_RATES:
                raise ValueError(f"peak_flops has unknown element type {dtype!r}; known are {sorted(KNOWN_RATES)}")
            _check(f"peak_flops.{dtype}", rate, "FLOP/s", *FLOPS_RANGE, hint=" (give FLOP/s, not TFLOP/s)")
        _check("vector_flops", self.vector_flops, "FLOP/s", *FLOPS_RANGE)
        for name in ("matmul_efficiency", "attention_efficiency"):
            share = getattr(self, name)
            if share is not None:
                _check(name, share, "fraction", 0.01, 1.0, hint=" (a share, not percent)")
        if self.staging_rate is not None:
            _check("staging_rate", self.staging_rate, "bytes/s", *BYTES_PER_S_RANGE, hint=" (give bytes/s, not GB/s)")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"two levels share a name: {names}")
        for index, level in enumerate(self.levels):
            if index > 0 and level.kind != "switch":
                raise ValueError(f"level {level.name!r} is a {level.kind}; only the innermost level may be one")
            last = index == len(self.levels) - 1
            if isinstance(level, SwitchLevel) and level.size is None and not last:
                raise ValueError(f"level {level.name!r} has no size limit, so no level can lie outside of it")
            rate = level.egress.value if isinstance(level, SwitchLevel) else level.link.value
            if rate > self.memory.bandwidth.value:
                raise ValueError(
                    f"level {level.name!r} sends {rate:g} bytes/s, more than the memory's "
                    f"{self.memory.bandwidth.value:g} bytes/s"
                )
        if isinstance(first := self.levels[0], SwitchLevel) and first.crosses_inner_link:
            raise ValueError(f"level {first.name!r} is the innermost and has no level inside it to cross")
        used = {q.source for q in self.quantities().values()} | {self.overlap.source}
        used |= {self.compiled_work.source} if self.compiled_work is not None else set()
        used |= {point.source for level in self.levels for point in level.reached}
        used |= {level.wraparound.source for level in self.levels if isinstance(level, TorusLevel)}
        if missing := used - set(self.sources):
            raise ValueError(f"sources does not list {sorted(missing)}")
        return self

    def quantities(self) -> dict[str, Quantity]:
        """Every sourced number by its path, in file order."""
        quantities = {f"peak_flops.{dtype}": rate for dtype, rate in self.peak_flops.items()}
        names = ("vector_flops", "matmul_efficiency", "attention_efficiency", "staging_rate")
        own = ((name, getattr(self, name)) for name in names)
        memory = ((f"memory.{n}", getattr(self.memory, n)) for n in ("bytes", "usable", "bandwidth", "host_link"))
        on_chip = ((f"memory.on_chip.{family}", size) for family, size in self.memory.on_chip.items())
        links = ((f"{level.name}.{n}", getattr(level, n)) for level in self.levels for n in type(level).model_fields)
        quantities.update(
            (path, value) for path, value in (*own, *memory, *on_chip, *links) if isinstance(value, Quantity)
        )
        return quantities

    def level(self, name: str) -> TorusLevel | SwitchLevel | FullMeshLevel:
        """The link level of this name; `ProfileError` with the known names where there is none."""
        if found := [level for level in self.levels if level.name == name]:
            return found[0]
        raise ProfileError(f"{self.name} has no link level {name!r}; its levels are {[lv.name for lv in self.levels]}")

    @property
    def chip_name(self) -> str:
        """The packaged profile of the chip: what compilers for it are found by."""
        return self.chip or self.name

    def matmul_flops_per_s(self, dtype: str) -> float:
        """Dense matmul rate for a dtype (numpy's or ml_dtypes' name), in FLOP/s.

        Narrower dtypes without a rate of their own run at the rate of the next wider one. Dtypes that no matrix unit
        takes run at the vector rate.
        """
        family: str | None = family_of(dtype)
        while family is not None and family != "vector":
            if family in self.peak_flops:
                return self.peak_flops[family].value
            family = FALLBACK.get(family)
        return self.vector_flops.value

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data, as plan files hold it."""
        return self.model_dump(mode="json", exclude_none=True)

    @staticmethod
    def from_dict(data: Any, origin: str = "profile") -> "Profile":
        """The inverse of `to_dict`; `ProfileError` names each place that is wrong and what is possible there."""
        try:
            return Profile.model_validate(data)
        except ValidationError as error:
            faults = error.errors()
            lines = [f"  {said(item, Profile)}" for item in faults[:MOST_FAULTS]]
            if len(faults) > MOST_FAULTS:
                lines.append(f"  and {len(faults) - MOST_FAULTS} more faults")
            raise ProfileError(f"{origin} is not a valid hardware profile:\n" + "\n".join(lines)) from None
