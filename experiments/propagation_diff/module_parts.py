"""What random modules are written with: values, meshes and partial shardings from a seed."""

import re
from dataclasses import dataclass, field
from random import Random

MESH_SIZES = (1, 2, 2, 2, 3, 4, 4, 6, 8, 12)
DIM_SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24)


@dataclass
class Value:
    name: str
    shape: tuple[int, ...]


@dataclass
class ModuleParts:
    """A module while it is written. `regions`: also loops, branches, calls, manual and named computations."""

    rng: Random
    regions: bool = True
    lines: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    mesh: dict[str, int] = field(default_factory=dict)
    other_mesh: dict[str, int] | None = None
    counter: int = 0
    priorities: bool = True
    overlapping_groups: bool = False
    groups: list[tuple[tuple[int, ...], set[str]]] = field(default_factory=list)

    # shardings

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.rng.choice((1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        return tuple(self.rng.choice(DIM_SIZES) for _ in range(rank))

    def sharding(self, shape: tuple[int, ...], *, free: dict[str, int] | None = None, closed: float = 0.35) -> str:
        rng = self.rng
        use_other = self.other_mesh is not None and free is None and rng.random() < 0.2
        mesh = self.other_mesh if use_other else (self.mesh if free is None else free)
        assert mesh is not None
        refs: list[tuple[str, int]] = []
        for name, size in mesh.items():
            refs += self.parts(name, size)
        rng.shuffle(refs)
        dims: list[list[str]] = [[] for _ in shape]
        counts = [1] * len(shape)
        replicated: list[tuple[str, str]] = []
        for ref, size in refs:
            choice = rng.random()
            if choice < 0.5 and shape:
                d = rng.randrange(len(shape))
                if counts[d] < shape[d] or size == 1:
                    dims[d].append(ref)
                    counts[d] *= size
            elif choice < 0.6:
                replicated.append((ref, ref))
        text = []
        for axes in dims:
            is_open = rng.random() > closed
            priority = f"p{rng.randint(0, 3)}" if self.priorities and (axes or is_open) and rng.random() < 0.4 else ""
            text.append("{" + ", ".join(merge(axes) + (["?"] if is_open else [])) + "}" + priority)
        order = {name: i for i, name in enumerate(mesh)}
        reps = merge(sorted((r for r, _ in replicated), key=lambda r: (order[r.split('"')[1]], r)))
        tail = f", replicated={{{', '.join(reps)}}}" if reps else ""
        return f"<@{'other' if use_other else 'mesh'}, [{', '.join(text)}]{tail}>"

    def parts(self, name: str, size: int) -> list[tuple[str, int]]:
        """A whole axis, or sometimes its split into two sub-axes."""
        divisors = [d for d in range(2, size) if size % d == 0]
        if not divisors or self.rng.random() < 0.8:
            return [(f'"{name}"', size)]
        first = self.rng.choice(divisors)
        return [(f'"{name}":(1){first}', first), (f'"{name}":({first}){size // first}', size // first)]

    def attribute(self, shape: tuple[int, ...], chance: float) -> str:
        if self.rng.random() >= chance:
            return ""
        return f" {{sdy.sharding = #sdy.sharding{self.sharding(shape)}}}"

    def per_value(self, shape: tuple[int, ...], chance: float = 0.08) -> str:
        if self.rng.random() >= chance:
            return ""
        return f" {{sdy.sharding = #sdy.sharding_per_value<[{self.sharding(shape)}]>}}"

    # values

    def new(self, shape: tuple[int, ...]) -> Value:
        self.counter += 1
        return Value(f"%v{self.counter}", shape)

    def pick(self, scope: list[Value]) -> Value:
        return scope[-1] if self.rng.random() < 0.4 else self.rng.choice(scope)

    def same_shape(self, scope: list[Value], x: Value) -> Value:
        return self.rng.choice([v for v in scope if v.shape == x.shape])


def kind(shape: tuple[int, ...]) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + "f32>"


def axes_text(mesh: dict[str, int]) -> str:
    return ", ".join(f'"{a}"={n}' for a, n in mesh.items())


def merge(refs: list[str]) -> list[str]:
    """Neighbouring halves of one axis written as the axis."""
    out: list[str] = []
    for ref in refs:
        last = out[-1] if out else ""
        name = ref.split(":")[0]
        if ":" in ref and last.startswith(f"{name}:(1)") and not ref.startswith(f"{name}:(1)"):
            out[-1] = name
        else:
            out.append(ref)
    return out


def match_dims(rng: Random, x: Value, y: Value, contract: list[int], batch: list[int]):
    """Dimensions of y with the sizes of x's contracting and batch dimensions."""
    left = list(range(len(y.shape)))
    found: list[list[int]] = []
    for dims in (contract, batch):
        got = []
        for d in dims:
            fits = [e for e in left if y.shape[e] == x.shape[d]]
            if not fits:
                return None
            e = rng.choice(fits)
            left.remove(e)
            got.append(e)
        found.append(got)
    return found[0], found[1]


def substitute(text: str, names: dict[str, str]) -> str:
    return re.sub(r"%v\d+\b", lambda m: names.get(m[0], m[0]), text)
