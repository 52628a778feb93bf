"""Ops of StableHLO without regions, with random operands and attributes, as text."""

# ruff: noqa: E501 (lines of MLIR are kept whole)

from math import prod

from module_parts import DIM_SIZES, ModuleParts, Value, kind, match_dims


class PlainOps(ModuleParts):
    """Each method writes one op (and what it needs) to `out`, on operands of `scope`, and adds its result to `scope`."""

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
