"""Random modules for comparing propagation with Shardy: meshes, ops, regions and partial shardings from a seed.

Everything is text, so that a case can be printed, cut down and kept.
"""

# ruff: noqa: E501 (lines of MLIR are kept whole)

from math import prod
from random import Random

from module_parts import MESH_SIZES, Value, axes_text, kind, substitute
from plain_ops import PlainOps


class Generator(PlainOps):
    """Writes one module."""

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


def random_module(seed: int, *, regions: bool = True, overlapping_groups: bool = False) -> str:
    """The module of a seed. overlapping_groups: a value may be in several groups (the import passes unite them)."""
    return Generator(Random(seed), regions, overlapping_groups=overlapping_groups).module()
