"""More kinds of modules for comparing propagation with Shardy: what `random_module` leaves out.

Manual computations within manual computations and in loops, chains of calls, shardings on region ops, sub-axes and
unreduced axes everywhere, a second mesh in a third of the modules, maximal shardings, tokens, custom rules with
compound factors, the ops with unusual rules (scatter, convolution, fft, triangular solve, known custom calls), reshards.
"""

# ruff: noqa: E501 (lines of MLIR are kept whole)

from dataclasses import dataclass
from math import prod
from random import Random

from jaxlib.mlir.dialects import sdy
from module_parts import DIM_SIZES, MESH_SIZES, Value, axes_text, kind
from stated_regions import StatedRegions

COMBINERS = ("", "max", "min") if hasattr(sdy, "ReductionOp") else ("",)  # JAX 0.12, JAX 0.10


@dataclass
class WideGenerator(StatedRegions):
    """Writes one module with the ops and regions that `random_module` leaves out."""

    token: str = ""
    maximal: bool = False

    def module(self) -> str:
        rng = self.rng
        self.mesh = {f"a{i}": rng.choice(MESH_SIZES) for i in range(rng.randint(1, 5))}
        while prod(self.mesh.values()) > 512:
            self.mesh = {f"a{i}": rng.choice(MESH_SIZES) for i in range(rng.randint(1, 4))}
        total = prod(self.mesh.values())
        ids = ""
        if rng.random() < 0.3:
            self.other_mesh = rng.choice(({"b0": total}, dict(self.mesh), {"b0": total, "b1": 1}))
            if rng.random() < 0.3:
                ids = f", device_ids={rng.sample(range(total), total)}"
                ids = "" if ids[13:] == str(list(range(total))) else ids
        self.maximal = rng.random() < 0.1
        self.priorities = rng.random() < 0.4
        args = [Value(f"%arg{i}", self.shape()) for i in range(rng.randint(1, 4))]
        if len(args) > 1 and rng.random() < 0.7:
            args[1].shape = args[0].shape
        scope, body = list(args), []
        for _ in range(rng.randint(1, 8)):
            self.op(scope, body, 0)
        returned = rng.sample(scope, min(len(scope), rng.randint(1, 3)))
        head = ", ".join(f"{a.name}: {kind(a.shape)}{self.attribute(a.shape, 0.5)}" for a in args)
        results = ", ".join(f"{kind(v.shape)}{self.attribute(v.shape, 0.3)}" for v in returned)
        meshes = f"sdy.mesh @mesh = <[{axes_text(self.mesh)}]>\n"
        if self.other_mesh:
            meshes += f"sdy.mesh @other = <[{axes_text(self.other_mesh)}]{ids}>\n"
        if self.maximal:
            meshes += "sdy.mesh @one = <[], device_ids=[0]>\n"
        lines = "\n".join(body)
        back = f"{', '.join(v.name for v in returned)} : {', '.join(kind(v.shape) for v in returned)}"
        functions = "\n".join(self.functions)
        return f"{meshes}func.func public @main({head}) -> ({results}) {{\n{lines}\n  return {back}\n}}\n{functions}"

    def op(self, scope: list[Value], out: list[str], depth: int) -> None:
        if self.rng.random() < 0.5:
            super().op(scope, out, depth)
            return
        kinds = [
            self.reshard, self.wide_custom, self.wide_custom, self.known_custom, self.convolution, self.fft, self.solve,
            self.scatter, self.clamp, self.rng_bits, self.effect, self.expansion, self.select_rows,
        ]  # fmt: skip
        if depth < 3:
            kinds += [self.nested_manual, self.nested_manual, self.chain, self.stated_loop, self.stated_barrier]
        self.rng.choice(kinds)(scope, out, depth)

    def parts(self, name: str, size: int) -> list[tuple[str, int]]:
        divisors = [d for d in range(2, size) if size % d == 0]
        if not divisors or self.rng.random() < 0.45:
            return [(f'"{name}"', size)]
        first = self.rng.choice(divisors)
        halves = [(f'"{name}":(1){first}', first), (f'"{name}":({first}){size // first}', size // first)]
        return halves if self.rng.random() < 0.6 else [self.rng.choice(halves)]

    def sharding(self, shape: tuple[int, ...], *, free: dict[str, int] | None = None, closed: float = 0.35) -> str:
        text = super().sharding(shape, free=self.mesh if self.in_manual and free is None else free, closed=closed)
        if self.rng.random() < 0.12 and not self.in_manual:
            mesh = self.other_mesh if text.startswith("<@other") else self.mesh
            assert mesh is not None
            unused = [a for a in mesh if f'"{a}"' not in text]
            if unused:
                combiner = COMBINERS[len(text) % len(COMBINERS)]
                text = f'{text[:-1]}, unreduced={combiner}{{"{self.rng.choice(unused)}"}}>'
        return text

    def group(self, scope, out, depth) -> None:
        if not self.in_manual:
            super().group(scope, out, depth)

    def per_value(self, shape: tuple[int, ...], chance: float = 0.08) -> str:
        if self.maximal and self.rng.random() < 0.03:
            return " {sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>}"
        return super().per_value(shape, chance)

    # ops

    def reshard(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        out.append(f"  {y.name} = sdy.reshard {x.name} {self.sharding(x.shape)} : {kind(x.shape)}")
        scope.append(y)

    # complexity: one branch for each op that a module may have
    def wide_custom(self, scope, out, depth) -> None:
        """A rule with compound factors, a contracted one and any number of special ones."""
        x = self.pick(scope)
        if not x.shape or len(x.shape) > 3:
            return
        rng, names, sizes, dims = self.rng, iter("ijklmnopqrstu"), {}, []
        for n in x.shape:
            cut = rng.choice([d for d in range(1, n + 1) if n % d == 0])
            pieces = [cut, n // cut] if 1 < cut < n else [n]
            dims.append([next(names) for _ in pieces])
            sizes |= dict(zip(dims[-1], pieces))
        gone = rng.choice(dims) if len(dims) > 1 and rng.random() < 0.4 else []
        kept = [d for d in dims if d is not gone]
        flat = [f for d in kept for f in d]
        if rng.random() < 0.5:
            rng.shuffle(flat)
            kept = [[f] for f in flat]
        elif rng.random() < 0.5:
            rng.shuffle(kept)
        if len(kept) > 1 and all(sizes[f] > 1 for d in kept[:2] for f in d) and rng.random() < 0.5:
            kept[0:2] = [kept[0] + kept[1]]
        if rng.random() < 0.3:
            extra = next(names)
            sizes[extra] = rng.choice(DIM_SIZES)
            kept.append([extra])
        y = self.new(tuple(prod(sizes[f] for f in d) for d in kept))
        if len(y.shape) > 5:
            return
        lists: dict[str, list[str]] = {
            "reduction": list(gone),
            "need_replication": [],
            "permutation": [],
            "blocked_propagation": [],
        }
        for factor in sizes:
            if factor not in gone and rng.random() < 0.25:
                lists[rng.choice(("need_replication", "permutation", "blocked_propagation"))].append(factor)
        if gone and rng.random() < 0.3:
            lists["reduction"] = []
        order = list(sizes)
        special = "".join(f" {k}={{{', '.join(sorted(v, key=order.index))}}}" for k, v in lists.items() if v)
        second = rng.random() < 0.4
        ins = ", ".join(["[" + ", ".join("".join(d) for d in dims) + "]"] * (1 + second))
        outs = "[" + ", ".join("".join(d) for d in kept) + "]"
        lengths = ", ".join(f"{f}={n}" for f, n in sizes.items())
        operands = [x, self.same_shape(scope, x)][: 1 + second]
        out.append(
            f"  {y.name} = stablehlo.custom_call @bar({', '.join(v.name for v in operands)}) {{sdy.sharding_rule = "
            f"#sdy.op_sharding_rule<({ins})->({outs}) {{{lengths}}}{special}, custom>}} : "
            f"({', '.join(kind(v.shape) for v in operands)}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def known_custom(self, scope, out, depth) -> None:
        x = self.pick(scope)
        y = self.new(x.shape)
        name = self.rng.choice(
            (
                "annotate_device_placement",
                "MoveToHost",
                "MoveToDevice",
                "X64SplitLow",
                "Unknown",
                "LayoutConstraint",
                "mhlo.erf",
            )
        )
        out.append(
            f"  {y.name} = stablehlo.custom_call @{name}({x.name}){self.per_value(x.shape)} : ({kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)

    def convolution(self, scope, out, depth) -> None:
        found = [v for v in scope if len(v.shape) == 4]
        if not found:
            return
        x = self.rng.choice(found)
        b, h, w, f = x.shape
        groups = self.rng.choice([g for g in (1, 1, 2, f) if f % g == 0])
        o = groups * self.rng.choice((1, 2, 4))
        r, s = self.rng.choice((1, min(3, h))), self.rng.choice((1, min(2, w)))
        k = self.fresh([r, s, f // groups, o], scope, out)
        y = self.new((b, h - r + 1, w - s + 1, o))
        out.append(
            f"  {y.name} = stablehlo.convolution({x.name}, {k.name}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
            f"window = {{stride = [1, 1]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : "
            f"({kind(x.shape)}, {kind(k.shape)}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def fft(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if not x.shape:
            return
        n = x.shape[-1]
        half = kind((*x.shape[:-1], n // 2 + 1)).replace("f32", "complex<f32>")
        c, y = self.new(()), self.new(x.shape)
        out.append(f"  {c.name} = stablehlo.fft {x.name}, type = RFFT, length = [{n}] : ({kind(x.shape)}) -> {half}")
        out.append(f"  {y.name} = stablehlo.fft {c.name}, type = IRFFT, length = [{n}] : ({half}) -> {kind(x.shape)}")
        scope.append(y)

    def solve(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if len(x.shape) < 2:
            return
        a = self.fresh([*x.shape[:-2], x.shape[-2], x.shape[-2]], scope, out)
        c, y = self.new(a.shape), self.new(x.shape)
        out.append(f"  {c.name} = stablehlo.cholesky {a.name}, lower = true : {kind(a.shape)}")
        out.append(
            f'  {y.name} = "stablehlo.triangular_solve"({c.name}, {x.name}) {{left_side = true, lower = true, unit_diagonal = false, '
            f"transpose_a = #stablehlo<transpose NO_TRANSPOSE>}} : ({kind(a.shape)}, {kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)

    def scatter(self, scope, out, depth) -> None:
        x = self.pick(scope)
        if len(x.shape) < 2:
            return
        count, n = self.rng.choice(DIM_SIZES), self.counter
        ids, y = self.new((count, 1)), self.new(x.shape)
        updates = self.fresh([count, *x.shape[1:]], scope, out)
        index = f"tensor<{count}x1xi32>"
        out.append(f"  {ids.name} = stablehlo.iota dim = 0 : {index}")
        out.append(
            f'  {y.name} = "stablehlo.scatter"({x.name}, {ids.name}, {updates.name}) ({{\n  ^bb0(%l{n}: tensor<f32>, %r{n}: tensor<f32>):\n'
            f"    %s{n} = stablehlo.add %l{n}, %r{n} : tensor<f32>\n    stablehlo.return %s{n} : tensor<f32>\n  }}) "
            f"{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {list(range(1, len(x.shape)))}, inserted_window_dims = [0], "
            f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : ({kind(x.shape)}, {index}, {kind(updates.shape)}) -> {kind(x.shape)}"
        )
        scope.append(y)

    def clamp(self, scope, out, depth) -> None:
        x = self.pick(scope)
        low, y = self.new(()), self.new(x.shape)
        out.append(f"  {low.name} = stablehlo.constant dense<0.5> : tensor<f32>")
        out.append(
            f"  {y.name} = stablehlo.clamp {low.name}, {x.name}, {low.name} : (tensor<f32>, {kind(x.shape)}, tensor<f32>) -> {kind(x.shape)}"
        )
        scope.append(y)

    def rng_bits(self, scope, out, depth) -> None:
        x = self.pick(scope)
        state, r, y = self.new(()), self.new(()), self.new(x.shape)
        bits = kind(x.shape).replace("f32", "ui32")
        out.append(f"  {state.name} = stablehlo.constant dense<1> : tensor<2xui64>")
        out.append(
            f"  {r.name}_s, {r.name} = stablehlo.rng_bit_generator {state.name}, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, {bits})"
        )
        out.append(f"  {y.name} = stablehlo.convert {r.name} : ({bits}) -> {kind(x.shape)}")
        scope.append(y)

    def effect(self, scope, out, depth) -> None:
        """A token and a call with an effect and no use."""
        x = self.pick(scope)
        t, u = self.new(()), self.new(())
        out.append(f"  {t.name} = stablehlo.create_token : !stablehlo.token")
        out.append(
            f"  {u.name} = stablehlo.custom_call @io({x.name}, {t.name}) {{has_side_effect = true}} : ({kind(x.shape)}, !stablehlo.token) -> !stablehlo.token"
        )

    def expansion(self, scope, out, depth) -> None:
        """A constant sub-computation with several uses."""
        x = self.pick(scope)
        if not x.shape:
            return
        i, b, c = self.new(x.shape), self.new(x.shape), self.new(x.shape)
        out.append(f"  {i.name} = stablehlo.iota dim = {self.rng.randrange(len(x.shape))} : {kind(x.shape)}")
        out.append(f"  {b.name} = stablehlo.exponential {i.name} : {kind(x.shape)}")
        out.append(
            f"  {c.name} = stablehlo.slice {b.name} [{', '.join(f'0:{n}' for n in x.shape)}] : ({kind(x.shape)}) -> {kind(x.shape)}"
        )
        scope += [b, c]

    def select_rows(self, scope, out, depth) -> None:
        """A reduction with two operands: the largest entry and where it is."""
        x = self.pick(scope)
        if not x.shape:
            return
        d = self.rng.randrange(len(x.shape))
        y = self.new(tuple(n for i, n in enumerate(x.shape) if i != d))
        at, zero, name = self.new(x.shape), self.new(()), self.new(()).name
        n = name[1:]
        out.append(f"  {at.name} = stablehlo.iota dim = {d} : {kind(x.shape)}")
        out.append(f"  {zero.name} = stablehlo.constant dense<0.0> : tensor<f32>")
        out.append(
            f"  {name}:2 = stablehlo.reduce({x.name} init: {zero.name}), ({at.name} init: {zero.name}) across dimensions = [{d}] : "
            f"({kind(x.shape)}, {kind(x.shape)}, tensor<f32>, tensor<f32>) -> ({kind(y.shape)}, {kind(y.shape)})\n"
            f"   reducer(%a{n}: tensor<f32>, %c{n}: tensor<f32>) (%b{n}: tensor<f32>, %d{n}: tensor<f32>) {{\n"
            f"    %e{n} = stablehlo.maximum %a{n}, %c{n} : tensor<f32>\n    %f{n} = stablehlo.minimum %b{n}, %d{n} : tensor<f32>\n"
            f"    stablehlo.return %e{n}, %f{n} : tensor<f32>, tensor<f32>\n  }}"
        )
        out.append(f"  {y.name} = stablehlo.add {name}#0, {name}#1 : {kind(y.shape)}")
        if y.shape:
            scope.append(y)


def wide_module(seed: int, *, overlapping_groups: bool = False) -> str:
    return WideGenerator(Random(seed), True, overlapping_groups=overlapping_groups).module()
