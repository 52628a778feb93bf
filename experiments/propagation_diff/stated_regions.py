"""Regions with shardings of their own: manual computations within others and in loops, loops, barriers, chains of calls."""

# ruff: noqa: E501 (lines of MLIR are kept whole)

from dataclasses import dataclass

from module_parts import Value, kind
from random_module import Generator


@dataclass
class StatedRegions(Generator):
    """`in_manual`: how many manual computations surround the place that is written."""

    in_manual: int = 0

    def stated(self, shapes: list[tuple[int, ...]]) -> str:
        """Shardings of all results of a region op, on one mesh."""
        if self.rng.random() < 0.5:
            return ""
        texts = ", ".join(self.sharding(s, free=self.mesh) for s in shapes)
        return f" {{sdy.sharding = #sdy.sharding_per_value<[{texts}]>}}"

    def stated_barrier(self, scope, out, depth) -> None:
        carried = [self.pick(scope) for _ in range(self.rng.randint(1, 3))]
        name = self.new(()).name
        stated = self.stated([c.shape for c in carried])
        types = ", ".join(kind(c.shape) for c in carried)
        out.append(
            f'  {name}:{len(carried)} = "stablehlo.optimization_barrier"({", ".join(c.name for c in carried)}){stated} : ({types}) -> ({types})'
        )
        for i, c in enumerate(carried):
            y = self.new(c.shape)
            out.append(f"  {y.name} = stablehlo.tanh {name}#{i} : {kind(c.shape)}")
            scope.append(y)

    def stated_loop(self, scope, out, depth) -> None:
        """A loop without a counter; shardings on its results, constraints inside."""
        x = self.pick(scope)
        if not x.shape:
            return
        y, name = self.new(x.shape), self.new(()).name
        n = name[1:]
        arg = Value(f"%k{n}", x.shape)
        lines, inner = self.inner([arg], self.rng.randint(1, 3), depth)
        back = self.give_back(inner, x.shape)
        stated = self.stated([x.shape])
        stated = f" attributes{stated}" if stated else ""
        s = self.new(())
        body = "\n".join(lines)
        out.append(f"  {name} = stablehlo.while({arg.name} = {x.name}) : {kind(x.shape)}{stated}\n  cond {{")
        self.sum_over(arg, list(range(len(x.shape))), s, out)
        out.append(
            f"    %p{n} = stablehlo.compare LT, {s.name}, {s.name} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            f"    stablehlo.return %p{n} : tensor<i1>\n  }} do {{\n{body}\n    stablehlo.return {back.name} : {kind(x.shape)}\n  }}"
        )
        out.append(f"  {y.name} = stablehlo.abs {name} : {kind(x.shape)}")
        scope.append(y)

    def chain(self, scope, out, depth) -> None:
        """A function that calls another one; both may be called from elsewhere too."""
        if self.in_manual:
            return
        x = self.pick(scope)
        names: list[str] = []
        shape = x.shape
        for _ in range(self.rng.randint(1, 3)):
            self.counter += 1
            name, arg = f"g{self.counter}", Value(f"%p{self.counter}", shape)
            lines, inner = self.inner([arg], self.rng.randint(0, 2), 5)
            if names:
                y = self.new(shape)
                v = self.same_shape(inner, arg)
                lines.append(f"  {y.name} = func.call @{names[-1]}({v.name}) : ({kind(shape)}) -> {kind(shape)}")
                inner.append(y)
            back = self.give_back(inner, shape)
            body = "\n".join(lines)
            self.functions.append(
                f"func.func private @{name}({arg.name}: {kind(shape)}{self.attribute(shape, 0.15)}) -> "
                f"({kind(shape)}{self.attribute(shape, 0.15)}) {{\n{body}\n  return {back.name} : {kind(shape)}\n}}"
            )
            names.append(name)
        for name in self.rng.sample(names, self.rng.randint(1, len(names))):
            y, v = self.new(shape), self.same_shape(scope, x)
            given = self.per_value(shape, 0.15)
            out.append(f"  {y.name} = func.call @{name}({v.name}){given} : ({kind(shape)}) -> {kind(shape)}")
            scope.append(y)

    def nested_manual(self, scope, out, depth) -> None:
        """Any ops inside, other manual computations too; the free axes may be written behind the manual ones."""
        if self.other_mesh or not self.mesh or self.in_manual > 2:
            return
        rng = self.rng
        names = [a for a in self.mesh if rng.random() < 0.5] or [rng.choice(list(self.mesh))]
        free = {a: n for a, n in self.mesh.items() if a not in names}
        operands = [self.pick(scope)]
        if rng.random() < 0.4:
            operands.append(self.pick(scope))
        sides = [self.cut(x.shape, names, free) for x in operands]
        saved, saved_p = self.mesh, self.priorities
        self.mesh, self.priorities, self.in_manual = free, False, self.in_manual + 1
        args = [self.new(local) for _, local in sides]
        lines, inner = self.inner(args, rng.randint(1, 3), max(depth, 1)) if free else ([], list(args))
        if not free:
            self.unary(inner, lines, 5)
        self.mesh, self.priorities, self.in_manual = saved, saved_p, self.in_manual - 1
        back = self.give_back(inner, args[0].shape)
        out_text, _ = sides[0] if rng.random() < 0.5 else self.same_cut(operands[0].shape, sides[0][0], free)
        y = self.new(operands[0].shape)
        body = "\n".join(lines)
        axes = ", ".join(f'"{a}"' for a in names)
        head = ", ".join(f"{a.name}: {kind(a.shape)}" for a in args)
        out.append(
            f"  {y.name} = sdy.manual_computation({', '.join(x.name for x in operands)}) in_shardings=[{', '.join(t for t, _ in sides)}] "
            f"out_shardings=[{out_text}] manual_axes={{{axes}}} ({head}) {{\n{body}\n    sdy.return {back.name} : {kind(back.shape)}\n"
            f"  }} : ({', '.join(kind(x.shape) for x in operands)}) -> {kind(y.shape)}"
        )
        scope.append(y)

    def cut(self, shape: tuple[int, ...], names: list[str], free: dict[str, int]) -> tuple[str, tuple[int, ...]]:
        """An in-sharding and the local shape of the argument."""
        dims: list[list[str]] = [[] for _ in shape]
        local, replicated = list(shape), []
        for a in names:
            fits = [d for d in range(len(local)) if local[d] % self.mesh[a] == 0]
            if fits and self.rng.random() < 0.7:
                d = self.rng.choice(fits)
                dims[d].append(f'"{a}"')
                local[d] //= self.mesh[a]
            else:
                replicated.append(f'"{a}"')
        more = [f'"{a}"' for a in free if self.rng.random() < 0.3]
        for axes, size in zip(dims, local):
            if more and size > 1 and self.rng.random() < 0.5:
                axes.append(more.pop())
        text = ", ".join("{" + ", ".join(axes + (["?"] if self.rng.random() < 0.6 else [])) + "}" for axes in dims)
        tail = (
            f", replicated={{{', '.join(replicated)}}}"
            if replicated and ("?" in text or self.rng.random() < 0.5)
            else ""
        )
        return f"<@mesh, [{text}]{tail}>", tuple(local)

    def same_cut(self, shape: tuple[int, ...], like: str, free: dict[str, int]) -> tuple[str, tuple[int, ...]]:
        """`like` without the free axes, every dimension open."""
        for a in free:
            like = like.replace(f', "{a}"', "").replace(f'{{"{a}", ?}}', "{?}").replace(f'{{"{a}"}}', "{}")
        return like.replace(", ?}", "}").replace("{?}", "{}").replace(
            '"}', '", ?}', len(shape)
        ) if "replicated" not in like else like, shape
