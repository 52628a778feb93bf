"""Random modules for comparing propagation with Shardy: meshes, ops, regions and partial shardings from a seed.

Everything is text, so that a case can be printed, cut down and kept.
"""

# ruff: noqa: E501 (lines of MLIR are kept whole)

from dataclasses import dataclass, field
from math import prod
from random import Random

MESH_SIZES = (1, 2, 2, 2, 3, 4, 4, 6, 8, 12)
DIM_SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24)


@dataclass
class Value:
    name: str
    shape: tuple[int, ...]


@dataclass
class Generator:
    """Writes one module. `regions`: also loops, branches, calls, manual and named computations."""

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

    def module(self) -> str:
        rng = self.rng
        self.mesh = {f"a{i}": rng.choice(MESH_SIZES) for i in range(rng.randint(1, 4))}
        while prod(self.mesh.values()) > 256:
            self.mesh = {f"a{i}": rng.choice(MESH_SIZES) for i in range(rng.randint(1, 3))}
        if rng.random() < 0.05:
            self.other_mesh = {"b0": prod(self.mesh.values())}
        self.priorities = rng.random() < 0.4
        args = [Value(f"%arg{i}", self.shape()) for i in range(rng.randint(1, 4))]
        if len(args) > 1 and rng.random() < 0.7:
            args[1].shape = args[0].shape
        scope = list(args)
        body: list[str] = []
        for _ in range(rng.randint(1, 10)):
            self.op(scope, body, 0)
        returned = rng.sample(scope, min(len(scope), rng.randint(1, 3)))
        head = ", ".join(f"{a.name}: {kind(a.shape)}{self.attribute(a.shape, 0.5)}" for a in args)
        results = ", ".join(f"{kind(v.shape)}{self.attribute(v.shape, 0.3)}" for v in returned)
        meshes = f"sdy.mesh @mesh = <[{axes_text(self.mesh)}]>\n"
        if self.other_mesh:
            meshes += f"sdy.mesh @other = <[{axes_text(self.other_mesh)}]>\n"
        return (
            meshes
            + f"func.func public @main({head}) -> ({results}) {{\n"
            + "\n".join(body)
            + f"\n  return {', '.join(v.name for v in returned)} : {', '.join(kind(v.shape) for v in returned)}\n}}\n"
            + "\n".join(self.functions)
        )

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

    # ops

    def new(self, shape: tuple[int, ...]) -> Value:
        self.counter += 1
        return Value(f"%v{self.counter}", shape)

    def op(self, scope: list[Value], out: list[str], depth: int) -> None:
        plain = [
            self.unary, self.binary, self.binary, self.binary, self.dot, self.dot, self.dot, self.reshape, self.reshape,
            self.transpose, self.broadcast, self.reduce, self.concatenate, self.slice, self.dynamic_slice,
            self.update_slice, self.pad, self.reverse, self.constant, self.constant, self.iota, self.select, self.sort,
            self.gather, self.cumulative, self.custom, self.scalar_broadcast, self.convert,
        ]  # fmt: skip
        sdy = [self.constraint, self.constraint, self.dangling, self.group, self.group, self.barrier]
        regions = [self.loop, self.case, self.optimization_barrier, self.call, self.manual, self.named]
        kinds = plain + sdy
        if self.regions and depth < 2:
            kinds = kinds + regions
        self.rng.choice(kinds)(scope, out, depth)

    def pick(self, scope: list[Value]) -> Value:
        return scope[-1] if self.rng.random() < 0.4 else self.rng.choice(scope)

    def unary(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        name = self.rng.choice(("exponential", "negate", "tanh", "rsqrt", "abs"))
        out.append(f"  {y.name} = stablehlo.{name} {x.name}{self.per_value(x.shape)} : {kind(x.shape)}")
        scope.append(y)

    def convert(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y, z = self.new(x.shape), self.new(x.shape)
        half = kind(x.shape).replace("f32", "bf16")
        out.append(f"  {y.name} = stablehlo.convert {x.name} : ({kind(x.shape)}) -> {half}")
        out.append(f"  {z.name} = stablehlo.convert {y.name} : ({half}) -> {kind(x.shape)}")
        scope.append(z)

    def same_shape(self, scope: list[Value], x: Value) -> Value:
        return self.rng.choice([v for v in scope if v.shape == x.shape])

    def binary(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.same_shape(scope, x)
        z = self.new(x.shape)
        name = self.rng.choice(("add", "multiply", "subtract", "maximum"))
        out.append(f"  {z.name} = stablehlo.{name} {x.name}, {y.name}{self.per_value(x.shape)} : {kind(x.shape)}")
        scope.append(z)

    def select(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y, p, z = self.same_shape(scope, x), self.new(x.shape), self.new(x.shape)
        i1 = kind(x.shape).replace("f32", "i1")
        types = f"({kind(x.shape)}, {kind(x.shape)})"
        out.append(f"  {p.name} = stablehlo.compare GT, {x.name}, {y.name} : {types} -> {i1}")
        out.append(f"  {z.name} = stablehlo.select {p.name}, {x.name}, {y.name} : {i1}, {kind(x.shape)}")
        scope.append(z)

    def dot(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        rng = self.rng
        dims = list(range(len(x.shape)))
        rng.shuffle(dims)
        n_contract = rng.randint(0 if len(dims) > 1 else 1, min(2, len(dims)))
        contract = dims[:n_contract]
        n_batch = rng.randint(0, min(1, len(dims) - n_contract))
        batch = dims[n_contract : n_contract + n_batch]
        candidates = [
            (v, m) for v in scope for m in [match_dims(rng, x, v, contract, batch)] if m is not None and v.shape
        ]
        if candidates and rng.random() < 0.7:
            y, (rc, rb) = rng.choice(candidates)
        else:
            shape = [x.shape[d] for d in batch + contract] + [rng.choice(DIM_SIZES) for _ in range(rng.randint(0, 2))]
            order = list(range(len(shape)))
            rng.shuffle(order)
            y = self.fresh([shape[o] for o in order], scope, out)
            at = {o: i for i, o in enumerate(order)}
            rb = [at[i] for i in range(len(batch))]
            rc = [at[len(batch) + i] for i in range(len(contract))]
        free_x = [d for d in range(len(x.shape)) if d not in contract and d not in batch]
        free_y = [d for d in range(len(y.shape)) if d not in rc and d not in rb]
        shape = (
            *(x.shape[d] for d in batch),
            *(x.shape[d] for d in free_x),
            *(y.shape[d] for d in free_y),
        )
        if len(shape) > 5 or prod(shape) > 1 << 22:
            return
        z = self.new(shape)
        batching = f"batching_dims = {batch} x {rb}, " if batch else ""
        out.append(
            f"  {z.name} = stablehlo.dot_general {x.name}, {y.name}, {batching}contracting_dims = {contract} x {rc}"
            f"{self.per_value(shape)} : ({kind(x.shape)}, {kind(y.shape)}) -> {kind(shape)}"
        )
        scope.append(z)

    def fresh(self, shape, scope, out) -> Value:
        """A new tensor from what there is, by broadcasting."""
        v = self.new(tuple(shape))
        x = self.rng.choice(scope)
        candidates = [i for i, n in enumerate(shape) if x.shape and n == x.shape[0]]
        s = self.new((x.shape[0],) if x.shape else ())
        if candidates and len(x.shape) == 1:
            dims = f"[{candidates[0]}]"
            out.append(
                f"  {v.name} = stablehlo.broadcast_in_dim {x.name}, dims = {dims} : ({kind(x.shape)}) -> {kind(v.shape)}"
            )
        else:
            out.append(f"  {s.name} = stablehlo.constant dense<1.0> : tensor<f32>")
            out.append(
                f"  {v.name} = stablehlo.broadcast_in_dim {s.name}, dims = [] : (tensor<f32>) -> {kind(v.shape)}"
            )
        return v

    def reshape(self, scope, out, depth) -> None:
        x = self.pick(scope)
        sizes = list(x.shape)
        for _ in range(self.rng.randint(1, 3)):
            if sizes and self.rng.random() < 0.5:
                i = self.rng.randrange(len(sizes))
                divisors = [d for d in range(1, sizes[i] + 1) if sizes[i] % d == 0]
                d = self.rng.choice(divisors)
                sizes[i : i + 1] = [d, sizes[i] // d]
            elif len(sizes) > 1:
                i = self.rng.randrange(len(sizes) - 1)
                sizes[i : i + 2] = [sizes[i] * sizes[i + 1]]
        if len(sizes) > 5:
            return
        y = self.new(tuple(sizes))
        out.append(
            f"  {y.name} = stablehlo.reshape {x.name}{self.per_value(y.shape)} : ({kind(x.shape)}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def transpose(self, scope, out, depth) -> None:
        x = self.pick(scope)
        order = list(range(len(x.shape)))
        self.rng.shuffle(order)
        y = self.new(tuple(x.shape[o] for o in order))
        out.append(f"  {y.name} = stablehlo.transpose {x.name}, dims = {order} : ({kind(x.shape)}) -> {kind(y.shape)}")
        scope.append(y)

    def broadcast(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if len(x.shape) > 3:
            return
        at = sorted(self.rng.sample(range(len(x.shape) + 1), len(x.shape)))
        shape = [self.rng.choice(DIM_SIZES)] * (len(x.shape) + 1)
        for i, d in enumerate(at):
            shape[d] = x.shape[i] if x.shape[i] != 1 else self.rng.choice(DIM_SIZES)
        y = self.new(tuple(shape))
        out.append(
            f"  {y.name} = stablehlo.broadcast_in_dim {x.name}, dims = {at} : ({kind(x.shape)}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def scalar_broadcast(self, scope, out, depth) -> None:
        x = self.pick(scope)
        shape = self.shape() if self.rng.random() < 0.5 else self.rng.choice(scope).shape
        s, y = self.new(()), self.new(shape)
        self.sum_over(x, list(range(len(x.shape))), s, out)
        out.append(f"  {y.name} = stablehlo.broadcast_in_dim {s.name}, dims = [] : (tensor<f32>) -> {kind(shape)}")
        scope.append(y)

    def sum_over(self, x: Value, dims: list[int], y: Value, out: list[str]) -> None:
        zero = self.new(())
        out.append(f"  {zero.name} = stablehlo.constant dense<0.0> : tensor<f32>")
        out.append(
            f"  {y.name} = stablehlo.reduce({x.name} init: {zero.name}) applies stablehlo.add across dimensions = {dims} : "
            f"({kind(x.shape)}, tensor<f32>) -> {kind(y.shape)}"
        )

    def reduce(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        dims = sorted(self.rng.sample(range(len(x.shape)), self.rng.randint(1, len(x.shape))))
        y = self.new(tuple(n for i, n in enumerate(x.shape) if i not in dims))
        self.sum_over(x, dims, y, out)
        if y.shape:
            scope.append(y)

    def concatenate(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.same_shape(scope, x)
        if not x.shape:
            return
        d = self.rng.randrange(len(x.shape))
        z = self.new(tuple(2 * n if i == d else n for i, n in enumerate(x.shape)))
        out.append(
            f"  {z.name} = stablehlo.concatenate {x.name}, {y.name}, dim = {d} : "
            f"({kind(x.shape)}, {kind(y.shape)}) -> {kind(z.shape)}"
        )
        scope.append(z)

    def slice(self, scope, out, depth) -> None:
        x = self.pick(scope)
        ends = [self.rng.choice((n, max(1, n // 2))) for n in x.shape]
        y = self.new(tuple(ends))
        ranges = ", ".join(f"0:{e}" for e in ends)
        out.append(f"  {y.name} = stablehlo.slice {x.name} [{ranges}] : ({kind(x.shape)}) -> {kind(y.shape)}")
        scope.append(y)

    def zeros(self, count: int, out: list[str]) -> list[str]:
        z = self.new(())
        out.append(f"  {z.name} = stablehlo.constant dense<0> : tensor<i32>")
        return [z.name] * count

    def dynamic_slice(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        sizes = [self.rng.choice((n, n, max(1, n // 2), 1)) for n in x.shape]
        y = self.new(tuple(sizes))
        starts = self.zeros(len(sizes), out)
        types = ", ".join(["tensor<i32>"] * len(sizes))
        out.append(
            f"  {y.name} = stablehlo.dynamic_slice {x.name}, {', '.join(starts)}, sizes = {sizes} : "
            f"({kind(x.shape)}, {types}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def update_slice(self, scope, out, depth) -> None:
        x = self.pick(scope)
        fits = [v for v in scope if len(v.shape) == len(x.shape) and all(a <= b for a, b in zip(v.shape, x.shape))]
        if not x.shape:
            return
        u = self.rng.choice(fits)
        y = self.new(x.shape)
        starts = self.zeros(len(x.shape), out)
        types = ", ".join(["tensor<i32>"] * len(x.shape))
        out.append(
            f"  {y.name} = stablehlo.dynamic_update_slice {x.name}, {u.name}, {', '.join(starts)} : "
            f"({kind(x.shape)}, {kind(u.shape)}, {types}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def pad(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        high = [self.rng.choice((0, 0, n, 1)) for n in x.shape]
        zero, y = self.new(()), self.new(tuple(a + b for a, b in zip(x.shape, high)))
        nil = [0] * len(high)
        out.append(f"  {zero.name} = stablehlo.constant dense<0.0> : tensor<f32>")
        out.append(
            f"  {y.name} = stablehlo.pad {x.name}, {zero.name}, low = {nil}, high = {high}, interior = {nil} : "
            f"({kind(x.shape)}, tensor<f32>) -> {kind(y.shape)}"
        )
        scope.append(y)

    def reverse(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        y = self.new(x.shape)
        out.append(
            f"  {y.name} = stablehlo.reverse {x.name}, dims = [{self.rng.randrange(len(x.shape))}] : {kind(x.shape)}"
        )
        scope.append(y)

    def constant(self, scope, out, depth) -> None:
        shape = self.rng.choice(scope).shape if self.rng.random() < 0.7 else self.shape()
        y = self.new(shape)
        out.append(f"  {y.name} = stablehlo.constant dense<1.0> : {kind(shape)}")
        scope.append(y)

    def iota(self, scope, out, depth) -> None:
        shape = self.rng.choice(scope).shape if self.rng.random() < 0.7 else self.shape()
        if not shape:
            return
        y = self.new(shape)
        out.append(f"  {y.name} = stablehlo.iota dim = {self.rng.randrange(len(shape))} : {kind(shape)}")
        scope.append(y)

    def sort(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        y = self.new(x.shape)
        n = self.counter
        out.append(
            f'  {y.name} = "stablehlo.sort"({x.name}) ({{\n  ^bb0(%l{n}: tensor<f32>, %r{n}: tensor<f32>):\n'
            f"    %c{n} = stablehlo.compare LT, %l{n}, %r{n} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            f"    stablehlo.return %c{n} : tensor<i1>\n  }}) "
            f"{{dimension = {self.rng.randrange(len(x.shape))} : i64, is_stable = true}} : ({kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)

    def gather(self, scope, out, depth) -> None:
        """Rows of a table: the embedding look-up."""
        x = self.pick(scope)
        if len(x.shape) < 2:
            return
        count = self.rng.choice(DIM_SIZES)
        ids, y = self.new((count, 1)), self.new((count, *x.shape[1:]))
        index_type = f"tensor<{count}x1xi32>"
        offsets = list(range(1, len(x.shape)))
        sizes = ", ".join(str(n) for n in (1, *x.shape[1:]))
        out.append(f"  {ids.name} = stablehlo.iota dim = 0 : {index_type}")
        out.append(
            f'  {y.name} = "stablehlo.gather"({x.name}, {ids.name}) {{dimension_numbers = #stablehlo.gather<offset_dims = '
            f"{offsets}, collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            f"indices_are_sorted = false, slice_sizes = array<i64: {sizes}>}} : ({kind(x.shape)}, {index_type}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def cumulative(self, scope, out, depth) -> None:
        """A running sum along one dimension (reduce_window)."""
        x = self.pick(scope)
        if not x.shape:
            return
        d = self.rng.randrange(len(x.shape))
        zero, y = self.new(()), self.new(x.shape)
        n = self.counter
        window = ", ".join(str(s if i == d else 1) for i, s in enumerate(x.shape))
        padding = ", ".join(f"[{s - 1 if i == d else 0}, 0]" for i, s in enumerate(x.shape))
        out.append(f"  {zero.name} = stablehlo.constant dense<0.0> : tensor<f32>")
        out.append(
            f'  {y.name} = "stablehlo.reduce_window"({x.name}, {zero.name}) ({{\n'
            f"  ^bb0(%l{n}: tensor<f32>, %r{n}: tensor<f32>):\n    %s{n} = stablehlo.add %l{n}, %r{n} : tensor<f32>\n"
            f"    stablehlo.return %s{n} : tensor<f32>\n  }}) {{padding = dense<[{padding}]> : tensor<{len(x.shape)}x2xi64>, "
            f"window_dimensions = array<i64: {window}>}} : ({kind(x.shape)}, tensor<f32>) -> {kind(x.shape)}"
        )
        scope.append(y)

    def custom(self, scope, out, depth) -> None:
        """A custom call with a rule of the user's, sometimes with factors that block, permute or must be whole."""
        x = self.pick(scope)
        if not x.shape or len(x.shape) > 4:
            return
        y = self.new(x.shape)
        names = "ijklmnop"[: len(x.shape)]
        dims = ", ".join(names)
        sizes = ", ".join(f"{n}={s}" for n, s in zip(names, x.shape))
        special = ""
        for label in ("need_replication", "permutation", "blocked_propagation"):
            if self.rng.random() < 0.15:
                special += f" {label}={{{self.rng.choice(names)}}}"
                break
        rule = f"#sdy.op_sharding_rule<([{dims}])->([{dims}]) {{{sizes}}}{special}, custom>"
        out.append(
            f"  {y.name} = stablehlo.custom_call @foo({x.name}) {{sdy.sharding_rule = {rule}}} : "
            f"({kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)

    # sdy ops

    def constraint(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        out.append(
            f"  {y.name} = sdy.sharding_constraint {x.name} {self.sharding(x.shape, closed=0.5)} : {kind(x.shape)}"
        )
        scope.append(y)

    def dangling(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        out.append(
            f"  {y.name} = sdy.sharding_constraint {x.name} {self.sharding(x.shape, closed=0.8)} : {kind(x.shape)}"
        )

    def group(self, scope, out, depth) -> None:
        if depth:
            return
        x = self.pick(scope)
        y = self.same_shape(scope, x)
        same = [i for i, (shape, _) in enumerate(self.groups) if shape == x.shape]
        if not same or self.rng.random() < 0.3:
            same = [len(self.groups)]
            self.groups.append((x.shape, set()))
        number = self.rng.choice(same)
        taken = set().union(*(m for i, (_, m) in enumerate(self.groups) if i != number))
        for v in dict.fromkeys((x.name, y.name)):
            if self.overlapping_groups or v not in taken:
                self.groups[number][1].add(v)
                out.append(f"  sdy.sharding_group {v} group_id={number} : {kind(x.shape)}")

    def barrier(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        way = self.rng.choice(("NONE", "FORWARD", "BACKWARD"))
        out.append(f"  {y.name} = sdy.propagation_barrier {x.name} allowed_direction={way} : {kind(x.shape)}")
        scope.append(y)

    # regions

    def inner(self, args: list[Value], count: int, depth: int) -> tuple[list[str], list[Value]]:
        lines: list[str] = []
        scope = list(args)
        for _ in range(count):
            self.op(scope, lines, depth + 1)
        return lines, scope

    def give_back(self, scope: list[Value], shape: tuple[int, ...]) -> Value:
        return self.rng.choice([v for v in scope if v.shape == shape][-3:])

    def loop(self, scope, out, depth) -> None:
        carried = [self.pick(scope) for _ in range(self.rng.randint(1, 3))]
        results = [self.new(c.shape) for c in carried]
        args = [self.new(c.shape) for c in carried]
        counter, limit, one = self.new(()), self.new(()), self.new(())
        out.append(f"  {counter.name} = stablehlo.constant dense<0> : tensor<i32>")
        name = self.new(()).name
        types = ", ".join(["tensor<i32>", *(kind(c.shape) for c in carried)])
        inits = ", ".join(f"%i{name[1:]}_{i} = {v}" for i, v in enumerate([counter.name, *(c.name for c in carried)]))
        lines, inner = self.inner(args, self.rng.randint(1, 4), depth)
        rename = {a.name: f"%i{name[1:]}_{i + 1}" for i, a in enumerate(args)}
        back = [self.give_back(inner, a.shape) for a in args]
        out.append(f"  {name}:{len(carried) + 1} = stablehlo.while({inits}) : {types}")
        out.append("  cond {")
        out.append(f"    {limit.name} = stablehlo.constant dense<4> : tensor<i32>")
        p = self.new(())
        out.append(
            f"    {p.name} = stablehlo.compare LT, %i{name[1:]}_0, {limit.name} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
        )
        out.append(f"    stablehlo.return {p.name} : tensor<i1>\n  }} do {{")
        nxt = self.new(())
        out.append(f"    {one.name} = stablehlo.constant dense<1> : tensor<i32>")
        out.append(f"    {nxt.name} = stablehlo.add %i{name[1:]}_0, {one.name} : tensor<i32>")
        body = "\n".join(lines)
        returned = ", ".join([nxt.name, *(b.name for b in back)])
        tail = f"{body}\n    stablehlo.return {returned} : {types}\n  }}"
        out.append(substitute(tail, rename))
        for i, r in enumerate(results):
            out.append(f"  {r.name} = stablehlo.negate {name}#{i + 1} : {kind(r.shape)}")
        scope += results

    def case(self, scope, out, depth) -> None:
        carried = [self.pick(scope) for _ in range(self.rng.randint(1, 2))]
        index, name = self.new(()), self.new(()).name
        out.append(f"  {index.name} = stablehlo.constant dense<0> : tensor<i32>")
        branches = []
        types = ", ".join(kind(c.shape) for c in carried)
        for _ in range(2):
            lines, inner = self.inner(list(scope), self.rng.randint(0, 2), depth)
            back = [self.give_back(inner, c.shape) for c in carried]
            body = "\n".join(lines)
            branches.append(f"{{\n{body}\n    stablehlo.return {', '.join(b.name for b in back)} : {types}\n  }}")
        out.append(
            f'  {name}:{len(carried)} = "stablehlo.case"({index.name}) ({", ".join(branches)}) : (tensor<i32>) -> ({types})'
        )
        for i, c in enumerate(carried):
            y = self.new(c.shape)
            out.append(f"  {y.name} = stablehlo.abs {name}#{i} : {kind(c.shape)}")
            scope.append(y)

    def optimization_barrier(self, scope, out, depth) -> None:
        carried = [self.pick(scope) for _ in range(self.rng.randint(1, 2))]
        name = self.new(()).name
        types = ", ".join(kind(c.shape) for c in carried)
        out.append(
            f"  {name}:{len(carried)} = stablehlo.optimization_barrier {', '.join(c.name for c in carried)} : {types}"
        )
        for i, c in enumerate(carried):
            y = self.new(c.shape)
            out.append(f"  {y.name} = stablehlo.tanh {name}#{i} : {kind(c.shape)}")
            scope.append(y)

    def call(self, scope, out, depth) -> None:
        x = self.pick(scope)
        self.counter += 1
        name = f"f{self.counter}"
        arg = self.new(x.shape)
        lines, inner = self.inner([arg], self.rng.randint(1, 3), 5)
        back = self.rng.choice(inner)
        self.functions.append(
            f"func.func private @{name}({arg.name}: {kind(x.shape)}{self.attribute(x.shape, 0.15)}) -> "
            f"({kind(back.shape)}{self.attribute(back.shape, 0.15)}) {{\n"
            + "\n".join(lines)
            + f"\n  return {back.name} : {kind(back.shape)}\n}}"
        )
        for _ in range(self.rng.choice((1, 1, 2))):
            y = self.new(back.shape)
            v = self.same_shape(scope, x)
            out.append(f"  {y.name} = func.call @{name}({v.name}) : ({kind(x.shape)}) -> {kind(back.shape)}")
            scope.append(y)

    def named(self, scope, out, depth) -> None:
        x = self.pick(scope)
        arg = self.new(x.shape)
        lines, inner = self.inner([arg], self.rng.randint(1, 3), 5)
        back = self.rng.choice(inner)
        y = self.new(back.shape)
        ins = f" in_shardings=[{self.sharding(x.shape)}]" if self.rng.random() < 0.3 else ""
        outs = f" out_shardings=[{self.sharding(back.shape)}]" if self.rng.random() < 0.3 else ""
        body = "\n".join(lines)
        out.append(
            f'  {y.name} = sdy.named_computation<"n{self.counter}">({x.name}){ins}{outs} ({arg.name}: {kind(x.shape)}) {{\n{body}\n'
            f"    sdy.return {back.name} : {kind(back.shape)}\n  }} : ({kind(x.shape)}) -> {kind(back.shape)}"
        )
        scope.append(y)

    def manual(self, scope, out, depth) -> None:
        if depth or self.other_mesh:
            return
        x = self.pick(scope)
        names = [a for a in self.mesh if self.rng.random() < 0.6] or list(self.mesh)[:1]
        free = {a: n for a, n in self.mesh.items() if a not in names}
        dims: list[list[str]] = [[] for _ in x.shape]
        local = list(x.shape)
        replicated = []
        for a in names:
            fits = [d for d in range(len(local)) if local[d] % self.mesh[a] == 0]
            if fits and self.rng.random() < 0.8:
                d = self.rng.choice(fits)
                dims[d].append(a)
                local[d] //= self.mesh[a]
            else:
                replicated.append(a)

        def text(extra: bool) -> str:
            left = [a for a in free if extra and self.rng.random() < 0.3]
            parts = []
            for i, d in enumerate(dims):
                more = []
                while left and self.rng.random() < 0.5 and local[i] > 1:
                    more.append(left.pop())
                entries = [f'"{a}"' for a in (*d, *more)] + (["?"] if self.rng.random() < 0.5 else [])
                parts.append("{" + ", ".join(entries) + "}")
            tail = ", replicated={" + ", ".join(f'"{a}"' for a in replicated) + "}" if replicated else ""
            return f"<@mesh, [{', '.join(parts)}]{tail}>"

        arg = self.new(tuple(local))
        saved, self.mesh, saved_p, self.priorities = self.mesh, free, self.priorities, False
        lines: list[str] = []
        inner = [arg]
        kinds = [self.unary, self.binary] + ([self.constraint] if free else [])
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice(kinds)(inner, lines, 5)
        self.mesh, self.priorities = saved, saved_p
        back = self.give_back(inner, arg.shape)
        y = self.new(x.shape)
        body = "\n".join(lines)
        axes = ", ".join(f'"{a}"' for a in names)
        out.append(
            f"  {y.name} = sdy.manual_computation({x.name}) in_shardings=[{text(True)}] out_shardings=[{text(True)}] "
            f"manual_axes={{{axes}}} ({arg.name}: {kind(arg.shape)}) {{\n{body}\n    sdy.return {back.name} : {kind(back.shape)}\n"
            f"  }} : ({kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)


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
    import re

    return re.sub(r"%v\d+\b", lambda m: names.get(m[0], m[0]), text)


def random_module(seed: int, *, regions: bool = True, overlapping_groups: bool = False) -> str:
    """The module of a seed. overlapping_groups: a value may be in several groups (the import passes unite them)."""
    return Generator(Random(seed), regions, overlapping_groups=overlapping_groups).module()
