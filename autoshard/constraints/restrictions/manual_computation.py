"""Manual computations as statements: a region of the program that is local over some mesh axes (S4.14 to S4.24).

This states from outside what a `shard_map` says in code. The region is a set of ops. Values that enter or leave it lie
on the manual axes exactly as stated; inside, nothing moves over these axes: no collective, no slice. The other axes are
the planner's, as far as the shardings leave them open.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field

from autoshard.constraints.axes_named import whole_axis_named
from autoshard.constraints.in_config import Axes, ConfigKey, Patterns, Section
from autoshard.constraints.kind import Kind
from autoshard.constraints.manual.borders import REPLICATED, Sharding, Stated, assigned, complete
from autoshard.constraints.manual.local import check_local
from autoshard.constraints.manual.region import Region, parts_of, region_of
from autoshard.constraints.patterns import Addresses, Match
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import (
    Restricting,
    Restriction,
    known_axes,
    no_combining,
    part_of,
)
from autoshard.constraints.statement import KeyPath, LayoutCheck, Matched, Member, Place, PlacementCheck
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Op, Program
from autoshard.program.schedule import Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding, satisfies

Border = Sequence[Sharding] | Mapping[str, Sharding]


@dataclass(frozen=True, slots=True)
class ManualComputation(Restricting):
    """The ops that `region` addresses compute on blocks that are local over `axes`.

    region: patterns of ops: ``scope:attn`` (a `jax.named_scope` or jitted function), ``model.py:120-140``, a primitive.
    in_shardings, out_shardings: of the values that enter and that leave. Either a list, in the order of first use (of
    definition) in the region, or a mapping from patterns or names to shardings, earlier entries first. A sharding is
    written as in a `Pin`, or ``replicated``. Manual axes that it leaves out do not cut the value.

    >>> str(ManualComputation("scope:attn", ["y"], {"x": '[{"y"}, {?}]'}, ['[{"y"}, {?}]']))
    'manual computation over y at scope:attn'
    """

    region: str | Sequence[str]
    axes: str | Sequence[str]
    in_shardings: Border
    out_shardings: Border
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        written_at(self)
        regions = (self.region,) if isinstance(self.region, str) else self.region
        if not _texts(regions):
            raise InputError(
                f"a manual computation needs the ops of its region, such as scope:attn or model.py:12-20, found "
                f"{self.region!r}"
            )
        object.__setattr__(self, "region", tuple(regions))
        axes = (self.axes,) if isinstance(self.axes, str) else self.axes
        if not _texts(axes):
            raise InputError(f"{self}: its manual axes are a list of mesh axes such as ['model'], found {self.axes!r}")
        object.__setattr__(self, "axes", tuple(dict.fromkeys(axes)))
        for key in ("in_shardings", "out_shardings"):
            object.__setattr__(self, key, self._read(key, getattr(self, key)))

    def _read(self, key: str, border: Any) -> tuple[tuple[str | None, Sharding], ...]:
        """(pattern, or None in a list; sharding) in the order written."""
        if isinstance(border, Mapping):
            pairs = [(pattern, sharding) for pattern, sharding in border.items()]
        elif isinstance(border, Sequence) and not isinstance(border, str):
            pairs = [item if _is_pair(item) else (None, item) for item in border]
        else:
            raise InputError(
                f"{self}: {key} is a list of shardings, or a mapping from patterns to them, found {border!r}"
            )
        out: list[tuple[str | None, Sharding]] = []
        for pattern, sharding in pairs:
            if pattern is not None and not _texts([pattern]):
                raise InputError(f"{self}: {key} names values by patterns such as params/w, found {pattern!r}")
            if isinstance(sharding, str) and sharding.strip() != REPLICATED:
                try:
                    sharding = TensorSharding.from_text(sharding)
                except ShardingError as error:
                    raise ShardingError(f"{self}: {key}: {error}") from None
            elif isinstance(sharding, str):
                sharding = REPLICATED
            elif not isinstance(sharding, TensorSharding):
                raise InputError(
                    f"{self}: {key}: a sharding is text such as '[{{\"data\"}}, {{?}}]', or {REPLICATED!r}, "
                    f"found {sharding!r}"
                )
            out.append((pattern, sharding))
        return tuple(out)

    def __str__(self) -> str:
        axes = self.axes if isinstance(self.axes, str) else ", ".join(map(str, self.axes))
        region = self.region if isinstance(self.region, str) else ", ".join(map(str, self.region))
        return f"manual computation over {axes} at {region}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``manual_computations`` makes."""
        return cls(entry.region, entry.axes, entry.in_shardings, entry.out_shardings, source)

    @classmethod
    def config_faults(cls, entry: Any, path: KeyPath, mesh: Mesh) -> Iterator[tuple[KeyPath, str]]:
        """Axes that the mesh lacks, and shardings that cannot be read."""
        for axis in entry.axes:
            try:
                whole_axis_named(axis, mesh)
            except ShardingError as error:
                yield (*path, "axes"), str(error)
        for key in ("in_shardings", "out_shardings"):
            border = getattr(entry, key)
            for name, text in border.items() if isinstance(border, dict) else enumerate(border):
                try:
                    sharding = None if text.strip() == REPLICATED else TensorSharding.from_text(text)
                except InputError as error:
                    yield (*path, key, name), str(error)
                    continue
                for message in () if sharding is None else sharding.violations(mesh, what=f"{text}"):
                    yield (*path, key, name), message
        if any(not p.strip() for p in entry.region):
            yield (*path, "region"), "expected ops such as scope:attn or model.py:12-20, found an empty text"

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedManual":
        """The statement with its region in one program, and shardings at the borders that have every manual axis.

        Raises `InputError` where the shardings do not fit the borders, `ShardingError` where one of them does not fit
        its value, and where the ops of the region cannot be local.
        """
        program, what = addresses.program, self.where
        axes = in_order(known_axes(self, self.axes, mesh), mesh)

        def check(pattern: str, match: Match) -> None:
            if not match.any_rank:
                raise InputError(
                    f"{what}: {pattern!r} names values; the region of a manual computation is made of ops: "
                    "scope:NAME, FILE.py:LINE-LINE or a primitive"
                )

        part = part_of(self, tuple(self.region), addresses, of_ops=True, check=check)
        region = region_of(program, part.ops)
        _check_shard_maps(what, region, axes, program)
        parts = parts_of(program, region)
        entering = assigned(what, "in_shardings", self.in_shardings, region.entering, parts, addresses)
        leaving = assigned(what, "out_shardings", self.out_shardings, region.leaving, parts, addresses)
        stated_in = tuple((v, complete(what, v, s, axes, program, mesh)) for v, s in entering)
        stated_out = tuple((v, complete(what, v, s, axes, program, mesh)) for v, s in leaving)
        check_local(what, program, region, axes, stated_in, stated_out)
        return MatchedManual(
            text=str(self), part=part, axes=axes, source=self.source, written=self.written, entering=stated_in,
            leaving=stated_out, inside=region.inside,
        )  # fmt: skip


def _texts(entry: Any) -> bool:
    return (
        isinstance(entry, Sequence)
        and not isinstance(entry, str)
        and bool(entry)
        and all(isinstance(item, str) and item.strip() for item in entry)
    )


def _is_pair(item: Any) -> bool:
    """Whether an item is a pair that `_read` has made: a statement may be made again from itself
    (`dataclasses.replace`).
    """
    return isinstance(item, tuple) and len(item) == 2 and (item[0] is None or isinstance(item[0], str))


def in_order(axes: Sequence[str], mesh: Mesh) -> tuple[str, ...]:
    """The axes in the order of the mesh (S4.16); axes that the mesh lacks come last, and are refused elsewhere."""
    return (*(a for a in mesh.axis_names if a in axes), *(a for a in axes if a not in mesh.axis_names))


def _check_shard_maps(what: str, region: Region, axes: Sequence[str], program: Program) -> None:
    """Raise where a region lies inside of a `shard_map` of the code, or holds one over its axes."""
    for op, outer in program.walk():
        if op.id not in region.ops:
            continue
        around = next((o for o in outer if o.kind == "shard_map" and o.id not in region.ops), None)
        if around is not None:
            raise InputError(
                f"{what}: {op.kind} at {op.source} lies inside of the shard_map at {around.source}, which is a manual "
                "computation already; state the sharding of what comes into it or leaves it"
            )
        shared = op.kind == "shard_map" and set(axes) & {
            a if isinstance(a, str) else a[0] for a in op.attrs.get("mesh_axes", ())
        }
        if shared:
            raise ShardingError(
                f"{what}: axis {sorted(shared)[0]!r} is manual in the shard_map at {op.source} inside of it already; "
                "nested manual computations have axes of their own"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedManual(Restriction):
    """A manual computation with its region.

    axes: the manual axes, in the order of the mesh. entering, leaving: values at the borders and their shardings, with
    all manual axes. inside: values that the region defines.
    """

    kind: ClassVar[str] = "manual_computation"
    entering: Stated
    leaving: Stated
    inside: frozenset[int]

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """The shardings at the borders."""
        return tuple(sharding for _, sharding in (*self.entering, *self.leaving))

    def told_of(self, member: Member) -> Iterator[str]:
        """The statement in words, as far as it is about one value: at the borders, or in the region."""
        place = f"{self.source}: " if self.source else ""
        for border, way in ((self.entering, "comes into"), (self.leaving, "leaves")):
            for value, sharding in border:
                if member == ("value", value):
                    yield f"{place}{sharding}, as it {way} the {self.text}"
        yield from Matched.told_of(self, member)

    def check_with(self, others: Sequence[Matched], program: Program) -> None:
        """Raise `ShardingError` where another region shares ops and an axis with it (S4.24)."""
        for other in others:
            if not isinstance(other, MatchedManual):
                continue
            both = [a for a in self.axes if a in other.axes]
            common = sorted(set(self.ops) & set(other.ops))
            if both and common:
                op = program.ops[common[0]]
                raise ShardingError(
                    f"{self.cited}: axis {both[0]!r} is manual in {other.cited} already, which has {op.kind}:{op.id} "
                    f"at {op.source} too; nested manual computations have axes of their own"
                )

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """The shardings of the values that leave the region."""
        return [(("value", v), sharding) for v, sharding in self.leaving]

    def layouts(
        self, program: Program, mesh: AtomMesh, ties: Mapping[int, int]
    ) -> Callable[[Place], LayoutCheck | None]:
        """Values that enter the region have their stated shardings there."""
        wanted, inside = dict(self.entering), set(self.ops)
        checks = {sharding: _in(sharding, mesh) for _, sharding in self.entering}

        def check(place: Place) -> LayoutCheck | None:
            if place.use is None or place.use.op not in inside or place.value not in wanted:
                return None
            return checks[wanted[place.value]]

        return check

    def placements(self, mesh: AtomMesh) -> Callable[[Op], PlacementCheck | None]:
        """Ops of the region have no collectives of their own over the manual axes."""
        return no_combining(self.part, self.axes, mesh)

    def without_moves(self, program: Program, ties: Mapping[int, int]) -> Callable[[int, Use | None], Iterable[str]]:
        """The manual axes, between the values and the ops of the region."""
        ops = frozenset(self.ops)

        def still(value: int, use: Use | None) -> Iterable[str]:
            return self.axes if value in self.inside and (use is None or use.op in ops) else ()

        return still

    def to_dict(self) -> dict[str, Any]:
        """The statement as an entry of ``statements`` in plan.json."""
        borders = {"in_shardings": self.entering, "out_shardings": self.leaving}
        return {
            **Restriction.to_dict(self),
            **{key: [{"value": v, "sharding": str(s)} for v, s in border] for key, border in borders.items()},
            **({"inside": sorted(self.inside)} if self.inside else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(
            **Restriction.shared(data), entering=_border(data.get("in_shardings", ())),
            leaving=_border(data.get("out_shardings", ())), inside=frozenset(data.get("inside", ())),
        )  # fmt: skip


def _in(sharding: TensorSharding, mesh: AtomMesh) -> LayoutCheck:
    def holds(layout: Layout) -> bool:
        return satisfies(layout, sharding, mesh)

    return holds


def _border(data: Sequence[Mapping[str, Any]]) -> Stated:
    return tuple((int(item["value"]), TensorSharding.from_text(item["sharding"])) for item in data)


def _border_given(border: Any) -> Any:
    texts = border.values() if isinstance(border, Mapping) else border if isinstance(border, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"expected a list of shardings, or a mapping from patterns to shardings, found {border!r}")
    return border


BorderText = Annotated[dict[str, str] | list[str], BeforeValidator(_border_given)]
"""Shardings by pattern of their values, or in order."""


class ManualSection(Section):
    """A region of the program that is local over mesh axes, and the shardings at its borders."""

    region: Patterns
    """Scope, source lines or primitives of the ops."""
    axes: Annotated[Axes, Field(min_length=1)]
    """Mesh axes that are local inside."""
    in_shardings: BorderText
    """Of the values that enter, by pattern or in order."""
    out_shardings: BorderText
    """Of the values that leave, likewise."""


KIND = Kind(MatchedManual, ManualComputation, ConfigKey("manual_computations", list[ManualSection]))
