"""Random well-formed and malformed modules for the checker: shardings on meshes, and damaged modules with every sdy op.

Everything is text. About half of what comes out is malformed.
"""

# ruff: noqa: E501 (lines of MLIR are kept whole)

import re
from random import Random

SIZES = (1, 2, 2, 3, 4, 4, 6, 8, 12)
PLACES = (
    'func.func @main(%a: tensor<{t}> {{sdy.sharding = #sdy.sharding{s}}}) -> tensor<{t}> {{ return %a : tensor<{t}> }}',
    'func.func @main(%a: tensor<{t}>) -> (tensor<{t}> {{sdy.sharding = #sdy.sharding{s}}}) {{ return %a : tensor<{t}> }}',
    'func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = stablehlo.negate %a {{sdy.sharding = #sdy.sharding_per_value<[{s}]>}} : tensor<{t}> return %0 : tensor<{t}> }}',
    "func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = sdy.sharding_constraint %a {s} : tensor<{t}> return %0 : tensor<{t}> }}",
    "func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = sdy.reshard %a {s} : tensor<{t}> return %0 : tensor<{t}> }}",
    'func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = sdy.named_computation<"f">(%a) in_shardings=[{s}] (%b: tensor<{t}>) {{ sdy.return %b : tensor<{t}> }} : (tensor<{t}>) -> tensor<{t}> return %0 : tensor<{t}> }}',
    "func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = sdy.manual_computation(%a) in_shardings=[{s}] out_shardings=[{s}] manual_axes={{}} (%b: tensor<{t}>) {{ sdy.return %b : tensor<{t}> }} : (tensor<{t}>) -> tensor<{t}> return %0 : tensor<{t}> }}",
    "func.func @main(%a: tensor<{t}>) -> tensor<{t}> {{ %0 = stablehlo.optimization_barrier %a : tensor<{t}> %1 = sdy.data_flow_edge %0 sharding={s} : tensor<{t}> return %1 : tensor<{t}> }}",
)  # fmt: skip


def sharding_module(rng: Random) -> str:
    """One sharding in one place. Most have no fault or one."""
    mesh = {f"a{i}": rng.choice(SIZES) for i in range(rng.randint(0, 4))}
    rank = rng.choice((0, 1, 2, 2, 3))
    shape = [rng.choice((0, 1, 2, 4, 5, 8, 12)) for _ in range(rank)]
    text = sharding(rng, mesh, rank)
    if rng.random() < 0.1:
        text = damaged(rng, text)
    axes = ", ".join(f'"{a}"={n}' for a, n in mesh.items())
    ids = ""
    if rng.random() < 0.1:
        count = rng.choice((1, 2, 4))
        ids = f", device_ids={rng.sample(range(count + (rng.random() < 0.3)), count)}"
    head = f"sdy.mesh @mesh = <[{axes}]{ids}>\n"
    if rng.random() < 0.2:
        text = text.replace("@mesh", f"mesh<[{axes}]>", 1)
    place = rng.choice(PLACES)
    return head + place.format(s=text, t="".join(f"{n}x" for n in shape) + "f32")


def sharding(rng: Random, mesh: dict[str, int], rank: int) -> str:
    pool: list[str] = []
    for name, size in mesh.items():
        parts = [f'"{name}"']
        if rng.random() < 0.4:
            cuts = sorted(rng.sample([d for d in range(1, size + 1) if size % d == 0 or rng.random() < 0.05], 1))
            parts = [f'"{name}":(1){cuts[0]}', f'"{name}":({cuts[0]}){max(1, size // cuts[0])}']
        if rng.random() < 0.1:
            parts.append(f'"{name}":({rng.randint(0, 6)}){rng.randint(0, 6)}')
        pool += [p for p in parts if rng.random() < 0.8]
    if rng.random() < 0.04:
        pool.append('"nope"')
    if pool and rng.random() < 0.06:
        pool.append(rng.choice(pool))
    rng.shuffle(pool)
    rank += rng.choice((0,) * 15 + (1, -1))
    dims: list[list[str]] = [[] for _ in range(max(rank, 0))]
    lists: dict[str, list[str]] = {"replicated": [], "unreduced": []}
    for axis in pool:
        target = rng.random()
        if target < 0.6 and dims:
            rng.choice(dims).append(axis)
        elif target < 0.9:
            lists[rng.choice(tuple(lists))].append(axis)
    if rng.random() < 0.9:
        for axes in lists.values():
            axes.sort(key=lambda a: (a.split('"')[1], int((re.findall(r"\((\d+)\)", a) or ["0"])[0])))
    written = []
    for axes in dims:
        priority = f"p{rng.randint(0, 3)}" if rng.random() < 0.1 else ""
        written.append("{" + ", ".join(axes + (["?"] if rng.random() < 0.5 else [])) + "}" + priority)
    more = "".join(f", {name}={{{', '.join(axes)}}}" for name, axes in lists.items() if axes)
    return f"<@mesh, [{', '.join(written)}]{more}>"


COLLECTIVES = (
    ("all_gather", '[{"y"}, {}]', '[{"x", "y"}, {}]', '[{"x"}, {}]'),
    ("all_slice", '[{"y"}, {}]', '[{"x"}, {}]', '[{"x", "y"}, {}]'),
    ("all_to_all", '[{"y"}: 0->1]', '[{"x", "y"}, {}]', '[{"x"}, {"y"}]'),
    ("all_reduce", '{"y"}', '[{"x"}, {}]', '[{"x"}, {}]'),
    ("reduce_scatter", '[{"y"}, {}]', '[{"x"}, {}]', '[{"x", "y"}, {}]'),
    ("collective_permute", "", '[{"x"}, {}]', '[{"y"}, {}]'),
    ("sharded_to_unreduced", '[{"y"}, {}]', '[{"x", "y"}, {}]', '[{"x"}, {}], unreduced={"y"}'),
    ("replicated_to_unreduced", '{"y"}', '[{"x"}, {}]', '[{"x"}, {}], unreduced={"y"}'),
)


def _collective(name: str, axes: str, before: str, after: str) -> str:
    return (
        f"func.func @main(%a: tensor<16x8xf32> {{sdy.sharding = #sdy.sharding<@m, {before}>}}) -> tensor<16x8xf32> {{\n"
        f"  %0 = sdy.{name} {axes + ' ' if axes else ''}%a out_sharding=<@m, {after}> : tensor<16x8xf32>\n"
        "  return %0 : tensor<16x8xf32>\n}"
    )


HEAD = 'sdy.mesh @m = <["x"=2, "y"=4, "z"=2]>\nsdy.mesh @n = <["a"=16], device_ids=[15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,0]>\nsdy.mesh @one = <[], device_ids=[3]>\n'
WELL_FORMED = (
    *(_collective(*c) for c in COLLECTIVES),
    """func.func @main(%a: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %0 = sdy.manual_computation(%a) in_shardings=[<@m, [{"x", "y", ?}, {}], replicated={"z"}>] out_shardings=[<@m, [{"x"}, {"z"}]>] manual_axes={"x", "z"} (%b: tensor<8x8xf32>) {
    %1 = stablehlo.slice %b [0:8, 0:4] : (tensor<8x8xf32>) -> tensor<8x4xf32>
    %2 = sdy.sharding_constraint %1 <@m, [{"y"}, {?}]> : tensor<8x4xf32>
    %3 = sdy.manual_computation(%2) in_shardings=[<@m, [{"y"}, {}]>] out_shardings=[<@m, [{"y"}, {}]>] manual_axes={"y"} (%c: tensor<2x4xf32>) {
      %4 = stablehlo.negate %c : tensor<2x4xf32>
      sdy.return %4 : tensor<2x4xf32>
    } : (tensor<8x4xf32>) -> tensor<8x4xf32>
    sdy.return %3 : tensor<8x4xf32>
  } : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}""",
    """func.func @main(%a: tensor<16x8xf32>, %b: tensor<16x8xf32>) -> tensor<16x8xf32> {
  sdy.sharding_group %a group_id=1 : tensor<16x8xf32>
  sdy.sharding_group %b group_id=1 : tensor<16x8xf32>
  %0 = sdy.propagation_barrier %a allowed_direction=FORWARD : tensor<16x8xf32>
  %1 = sdy.constant dense<1.0> : tensor<16x8xf32>
  %2 = stablehlo.add %0, %1 {sdy.sharding = #sdy.sharding_per_value<[<@n, [{"a":(1)4}p1, {"a":(4)2, ?}p2]>]>} : tensor<16x8xf32>
  return %2 : tensor<16x8xf32>
}""",
    """func.func @main(%a: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %0 = sdy.named_computation<"f">(%a) in_shardings=[<@m, [{"x"}, {}]>] out_shardings=[<@m, [{}, {?}]>] (%b: tensor<16x8xf32>) {
    %1 = stablehlo.tanh %b : tensor<16x8xf32>
    sdy.return %1 : tensor<16x8xf32>
  } : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}""",
    """func.func @main(%a: tensor<8x6x16xf32>, %b: tensor<16x4xf32>) -> tensor<8x24xf32> {
  %0 = stablehlo.custom_call @f(%a, %b) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [k, l])->([i, jl]) {i=8, j=6, k=16, l=4} reduction={k} need_replication={i} permutation={l} blocked_propagation={j}, custom>} : (tensor<8x6x16xf32>, tensor<16x4xf32>) -> tensor<8x24xf32>
  %1 = sdy.reshard %0 <@m, [{"x"}, {"y":(1)2}], replicated={"y":(2)2}> : tensor<8x24xf32>
  return %1 : tensor<8x24xf32>
}""",
    """func.func @main(%a: tensor<16x8xf32>) -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@one, []>}) {
  %0 = stablehlo.custom_call @f(%a) {has_side_effect = true, sdy.sharding = #sdy.sharding_per_value<[<@one, []>]>} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}""",
    """func.func @main(%a: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<16x8xf32> attributes {sdy.sharding = #sdy.sharding_per_value<[<@m, []>, <@m, [{"x"}, {?}], unreduced={"z"}>]>}
  cond {
    %p = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    stablehlo.return %i, %x : tensor<i32>, tensor<16x8xf32>
  }
  %1 = sdy.data_flow_edge %0#1 sharding=<@m, [{"x"}, {}]> : tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}""",
)  # fmt: skip

_TOKEN = re.compile(r'"[^"]*"|@\w+|%\w+(?:#\d+)?|[A-Za-z_][\w.]*|\d+|\s+|.')
_AXES = ('"x"', '"y"', '"z"', '"w"', '"a"', '"y":(1)2', '"y":(2)2', '"y":(1)4', '"y":(2)4', '"a":(4)2', "?")


def damaged(rng: Random, text: str) -> str:
    """One token gone, doubled, exchanged with a neighbour, or another one of its kind."""
    tokens = _TOKEN.findall(text)
    solid = [i for i, t in enumerate(tokens) if not t.isspace()]
    if len(solid) < 2:
        return text
    at = rng.randrange(len(solid) - 1)
    i, j = solid[at], solid[at + 1]
    token, way = tokens[i], rng.random()
    if way < 0.15:
        tokens[i] = ""
    elif way < 0.25:
        tokens[i] = f"{token} {token}" if rng.random() < 0.5 else f"{token}, {token}"
    elif way < 0.35:
        tokens[i], tokens[j] = tokens[j], tokens[i]
    elif token.isdigit():
        tokens[i] = str(rng.choice((0, 1, 2, 3, 4, 8, 16)))
    elif token.startswith('"'):
        tokens[i] = rng.choice(_AXES)
    elif token.startswith("@"):
        tokens[i] = rng.choice(("@m", "@n", "@one", "@none"))
    elif token == "}":
        tokens[i] = rng.choice(("}p1", ', "z"}', "}p-1", "?}", ', "y":(2)2}'))
    elif token == "{":
        tokens[i] = rng.choice(("[", '{"z", ', '{"x", ', "{?"))
    else:
        alike = [t for t in dict.fromkeys(tokens) if t[0].isalpha() and t != token]
        tokens[i] = rng.choice(alike) if alike and token[0].isalpha() else ""
    return "".join(tokens)


def damaged_module(rng: Random) -> str:
    """A well-formed module with no, one or two of its tokens damaged; about the shardings more often than not."""
    body = rng.choice(WELL_FORMED)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        spots = [
            m.span()
            for m in re.finditer(
                r"<@\w+, \[.*?\](?:, \w+=\{.*?\})*>|manual_axes=\{.*?\}|sdy\.\w+ [^%]*%|#sdy\.\w+<.*?>", body
            )
        ]
        if spots and rng.random() < 0.8:
            start, end = rng.choice(spots)
            body = body[:start] + damaged(rng, body[start:end]) + body[end:]
        else:
            body = damaged(rng, body)
    head = damaged(rng, HEAD) if rng.random() < 0.1 else HEAD
    return head + body


def random_check_module(seed: int) -> str:
    rng = Random(seed)
    return sharding_module(rng) if rng.random() < 0.5 else damaged_module(rng)
