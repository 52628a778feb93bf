"""How the axes of a mesh are laid on the links of a machine.

The last axis is the innermost one. By default the innermost axes get the fastest links:

* **switch domains** (NVLink, then node to node): axes fill the inner domain from the last axis on; the others go
  outside. An axis that straddles the border is split, with its minor part inside.
* **torus** (TPU): the smallest number of slices that can hold the mesh; the outer axes run between slices (DCN).
  Within a slice see `slices`.

The argument `links` fixes axes (see the module `links`).
"""

from collections.abc import Mapping, Sequence
from math import prod

from autoshard.costmodels.device_order import segments_of_order
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.links import Share, read_links
from autoshard.costmodels.machine import Machine, Segment
from autoshard.costmodels.profile import Profile, SwitchLevel, TorusLevel
from autoshard.costmodels.slices import plan_slice, spill

MAX_DEVICES = 2**24
"""Most devices that a mesh may have."""
_FILLED = 7 / 8  # share of a domain's devices that groups of a straddling axis should at least use
_PARTS_PER_SHARE = 8  # ranks of the segments of an axis, minor to major: so many are kept for each share


def place_mesh(
    profile: Profile,
    axes: Mapping[str, int],
    links: Mapping[str, str] | None = None,
    *,
    slice_shape: Sequence[int] | None = None,
    in_network_reduction: bool = False,
    device_ids: Sequence[int] | None = None,
) -> Machine:
    """Lay the axes (name -> size, outermost first) on the profile's links.

    `links` fixes some axes (see the module `links`), `slice_shape` the shape of one torus slice. With
    `in_network_reduction`, all-reduces use the switches that can add (SHARP). `device_ids` gives the order of the
    devices, row-major over the axes; the axes then lie where that order puts them (see `device_order`). `ProfileError`
    where the mesh does not fit.

    >>> from autoshard.costmodels import load_profile
    >>> machine = place_mesh(load_profile("h100"), {"data": 2048, "tensor": 8})
    >>> [machine.describe()["axes"][axis]["on"] for axis in ("data", "tensor")]
    ['scale_out: 2048 through the switch', 'nvlink: 8 through the switch']
    """
    for name, size in axes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ProfileError(f"axis {name!r} has size {size!r}; sizes are integers >= 1")
    if prod(axes.values()) > MAX_DEVICES:
        raise ProfileError(f"the mesh has {prod(axes.values())} devices; at most {MAX_DEVICES} can be placed")
    switches = [level for level in profile.levels if isinstance(level, SwitchLevel)]
    if in_network_reduction and not any(level.in_network_reduction for level in switches):
        raise ProfileError(f"{profile.name} has no switches that reduce in the network")
    if device_ids is not None:
        if links:
            raise ProfileError("a device order already says where the axes lie; leave out either it or the links")
        placed, shape = segments_of_order(profile, tuple(axes.items()), device_ids, slice_shape)
        return Machine(profile, tuple(axes.items()), placed, shape, in_network_reduction)
    fixed = read_links(profile, axes, links or {})
    by_hand = {share.axis for shares in fixed.values() for share in shares}
    free = {axis: size for axis, size in axes.items() if axis not in by_hand and size > 1}
    notes: list[str] = []
    segments: dict[str, list[tuple[int, Segment]]] = {axis: [] for axis in axes}
    shape: tuple[int, ...] = ()
    torus = profile.levels[0]
    outer_levels: tuple[int, ...]
    if isinstance(torus, TorusLevel):
        shape, free = _fill_slice(profile, torus, list(axes), fixed[torus.name], free, slice_shape, segments, notes)
        outer_levels = tuple(range(1, len(profile.levels)))
    else:
        if slice_shape is not None:
            raise ProfileError(f"{profile.name} has no torus, so slice_shape means nothing there")
        outer_levels = tuple(range(len(profile.levels)))
    _fill_domains(profile, outer_levels, fixed, free, segments, notes)
    layout = tuple(tuple(s for _, s in sorted(segments[axis], key=lambda item: -item[0])) for axis in axes)
    return Machine(profile, tuple(axes.items()), layout, shape, in_network_reduction, tuple(notes))


def _fill_slice(
    profile: Profile,
    level: TorusLevel,
    order: list[str],
    fixed: list[Share],
    free: dict[str, int],
    slice_shape: Sequence[int] | None,
    segments: dict[str, list[tuple[int, Segment]]],
    notes: list[str],
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Put axes on a slice, into `segments`; returns the slice's shape and the parts of the free axes that stay
    outside.
    """
    chips_given = prod(slice_shape) if slice_shape is not None else None
    for moved in spill(free):
        if moved and len(profile.levels) == 1:
            break
        shares = [share for share in fixed if share.size > 1]
        for axis, size in free.items():
            if size // moved.get(axis, 1) > 1:
                shares.append(Share(axis, 0, size // moved.get(axis, 1)))
        shares.sort(key=lambda s: (order.index(s.axis), -s.rank))
        if chips_given is not None and prod(s.size for s in shares) != chips_given:
            continue
        plan = plan_slice(level, shares, slice_shape)
        if plan is None:
            continue
        for share, places in zip(shares, plan.places, strict=True):
            for minor, (dim, size, stride) in enumerate(places):
                rank = share.rank * _PARTS_PER_SHARE + minor
                segments[share.axis].append((rank, Segment(level.name, dim, size, stride)))
        if not plan.sold:
            notes.append(
                f"a slice of {'x'.join(map(str, plan.shape))} is not offered by itself; priced as part of a larger one"
            )
        return plan.shape, moved
    total = prod(share.size for share in fixed) * prod(free.values())
    wish = f" of shape {list(slice_shape)}" if slice_shape is not None else ""
    raise ProfileError(
        f"no slice{wish} of {profile.name} (at most {'x'.join(map(str, level.max_shape))}) "
        f"holds the mesh's {total} devices"
        + (f", with {[f'{s.axis}={s.size}' for s in fixed]} on {level.name} by hand" if fixed else "")
        + "; put outer axes on "
        f"{[lv.name for lv in profile.levels[1:]] or 'fewer devices'}"
    )


def _fill_domains(
    profile: Profile,
    levels: Sequence[int],
    fixed: dict[str, list[Share]],
    free: dict[str, int],
    segments: dict[str, list[tuple[int, Segment]]],
    notes: list[str],
) -> None:
    """Fill switch domains (and full meshes) with the free axes from the last one on, inner levels first."""
    left: dict[str, int | None] = {}
    for index in levels:
        level = profile.levels[index]
        assert not isinstance(level, TorusLevel)
        used = prod(share.size for share in fixed[level.name])
        if level.size is not None and used > level.size:
            raise ProfileError(
                f"links put {used} devices on {level.name} ({[f'{s.axis}={s.size}' for s in fixed[level.name]]}), "
                f"which has {level.size}"
            )
        left[level.name] = None if level.size is None else level.size // used
        for share in fixed[level.name]:
            if share.size > 1:
                segments[share.axis].append((share.rank * _PARTS_PER_SHARE, Segment(level.name, 0, share.size)))
    for axis in reversed(list(free)):
        rest = free[axis]
        for number, index in enumerate(levels):
            name = profile.levels[index].name
            take = _take(rest, left[name])
            if take > 1:
                segments[axis].append(((number + 1) * _PARTS_PER_SHARE, Segment(name, 0, take)))
                room = left[name]
                left[name] = None if room is None else room // take
                rest //= take
        if rest > 1:
            raise ProfileError(
                f"{profile.name} has no room for axis {axis!r}: {rest} times more devices than its outermost level "
                f"{profile.levels[-1].name!r} joins"
            )
    for index in levels:
        level = profile.levels[index]
        used = prod(s.size for parts in segments.values() for _, s in parts if s.level == level.name)
        outside = [lv.name for lv in profile.levels[index + 1 :]]
        crossed = any(s.level in outside for parts in segments.values() for _, s in parts)
        if not isinstance(level, TorusLevel) and level.size is not None and crossed and used < level.size:
            notes.append(f"only {used} of {level.size} devices of each {level.name} domain are used")


def _take(rest: int, room: int | None) -> int:
    """The part of an axis that goes into a domain with so much room: all of it, or the part that fills the room
    (almost).
    """
    if room is None or rest <= room:
        return rest
    divisors = [d for d in range(1, room + 1) if rest % d == 0]
    filling = [d for d in divisors if d * (room // d) >= _FILLED * room]  # 64 of an axis of 128 in a domain of 72
    return filling[-1] if filling[-1] > 1 else divisors[-1]
