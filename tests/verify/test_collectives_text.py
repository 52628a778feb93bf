"""Reading collectives out of StableHLO and HLO text: every notation, loops, calls and combined operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from autoshard.errors import InputError
from autoshard.interop.jax import auto_mesh
from autoshard.verify.runs.collectives import UNCOMBINED, FoundLoop
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.stablehlo import stablehlo_collectives

BOTH = ((0, 4, 1, 5, 2, 6, 3, 7),)  # over y, then x, on a mesh of x=2 and y=4
X = ((0, 4), (1, 5), (2, 6), (3, 7))
Y = ((0, 1, 2, 3), (4, 5, 6, 7))


def program() -> jax.stages.Lowered:
    def local(x):
        gathered = lax.all_gather(x, ("y", "x"), axis=0, tiled=True)
        scattered = lax.psum_scatter(gathered, ("y", "x"), scatter_dimension=0, tiled=True)
        moved = lax.all_to_all(gathered.reshape(8, 4), "y", 0, 1, tiled=True)
        passed = lax.ppermute(x, "y", [(0, 1), (1, 0), (2, 3), (3, 2)])
        flag = lax.pmax(x > 2, "x")

        def body(c, _):
            inner, _ = lax.scan(lambda d, _: (lax.pmin(d, "x") * 0.5, None), c, None, length=2)
            return lax.psum(inner, "y") * 0.1, None

        looped, _ = lax.scan(body, x, None, length=3)
        turned = lax.cond(x.sum() > 1, lambda v: lax.psum(v, "x"), lambda v: v * 2, x)
        return gathered, scattered, moved, passed, flag, looped, turned

    mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    out = P(("x", "y"))
    mapped = jax.shard_map(local, mesh=mesh, in_specs=out, out_specs=(out,) * 7, check_vma=False)
    return jax.jit(mapped).lower(jnp.arange(32.0))


@pytest.fixture(scope="module")
def lowered() -> jax.stages.Lowered:
    return program()


def check(found):
    rows = {(f.kind, f.combiner, f.groups, f.elements, f.dtype, tuple(x.trips for x in f.loops)) for f in found}
    permuted = ((0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4), (6, 7), (7, 6))
    assert rows == {
        ("all_gather", "", BOTH, 4, "float32", ()),
        ("reduce_scatter", "add", BOTH, 32, "float32", ()),
        ("all_to_all", "", Y, 32, "float32", ()),
        ("permute", "", permuted, 4, "float32", ()),
        ("all_reduce", "max", X, 4, "bool", ()),
        ("all_reduce", "add", Y, 4, "float32", (3,)),
        ("all_reduce", "min", X, 4, "float32", (3, 2)),
        ("all_reduce", "add", X, 4, "float32", (None,)),  # in a branch
    }
    assert len(found) == 8


def test_stablehlo_of_every_kind_with_loops_and_branches(lowered):
    found = stablehlo_collectives(lowered.as_text())
    check(found)
    (branch,) = [f for f in found if f.loops and f.loops[0].kind == "branch"]
    assert branch.loops == (FoundLoop("branch", None),)


def test_compiled_hlo_of_every_kind_with_loops_and_branches(lowered):
    check(hlo_collectives(lowered.compile(compiler_options=UNCOMBINED).as_text()))


def test_a_stablehlo_function_called_twice_counts_twice():
    text = """
    module {
      func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
        %1 = func.call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>
        return %1 : tensor<4xf32>
      }
      func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %s = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    """
    found = stablehlo_collectives(text)
    assert [(f.kind, f.combiner, f.groups, f.elements) for f in found] == [("all_reduce", "add", ((0, 1),), 4)] * 2


@pytest.mark.parametrize(
    ("start", "limit", "by", "trips"),
    [(0, 6, 1, 6), (0, 6, 2, 3), (0, 7, 2, 4), (2, 6, 1, 4), (5, 3, 1, 0), (0, -3, 1, 0)],
)
def test_the_trips_of_a_counting_loop_follow_from_start_limit_and_step(start, limit, by, trips):
    def local(x):
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + by, lax.psum(c[1], "x")), (start, x))[1]

    mesh = auto_mesh(np.array(jax.devices()[:2]), ("x",))
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    (found,) = stablehlo_collectives(jax.jit(mapped).lower(jnp.ones(4)).as_text())
    assert found.loops == (FoundLoop("loop", trips),)


def test_large_groups_printed_as_hexadecimal_are_read():
    groups = np.arange(256, dtype=np.int64).reshape(16, 16)
    text = f"""
    module {{
      func.func public @main(%a: tensor<4xbf16>) -> tensor<64xbf16> {{
        %0 = "stablehlo.all_gather"(%a) <{{all_gather_dim = 0 : i64,
          replica_groups = dense<"0x{groups.tobytes().hex()}"> : tensor<16x16xi64>
        }}> : (tensor<4xbf16>) -> tensor<64xbf16>
        return %0 : tensor<64xbf16>
      }}
    }}
    """
    (found,) = stablehlo_collectives(text)
    assert found.groups == tuple(map(tuple, groups.tolist()))
    assert (found.dtype, found.local_bytes) == ("bfloat16", 8)


@pytest.mark.parametrize("text", ["nonsense", "module {}"])
def test_text_that_is_no_program_is_refused(text):
    with pytest.raises(InputError, match=r"cannot parse|no function @main"):
        stablehlo_collectives(text)
    with pytest.raises(InputError, match="no ENTRY"):
        hlo_collectives(text)


HLO = """HloModule test, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY %main (p: f32[16,2], q: bf16[3]) -> f32[16,2] {{
  %p = f32[16,2]{{1,0:T(8,128)}} parameter(0)
  %q = bf16[3]{{0}} parameter(1)
  {line}
}}
"""


def one(line: str):
    (found,) = hlo_collectives(HLO.format(line=line))
    return found


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", Y),
        ("[2,4]<=[8]", Y),
        ("[4,2]<=[2,4]T(1,0)", X),
        ("mesh['x'=2,'y'=4] {'y'}", Y),
        ("mesh['x'=2,'y'=4] {'x'}", X),
        ("mesh['x'=2,'y'=4] {'y','x'}", BOTH),
        ("mesh['y'=8] {'y':(1)2}", X),
        ("mesh['y'=8] {'y':(2)4}", Y),
        ("mesh['x'=2,'y'=4], device_ids=(0,4,1,5,2,6,3,7) {'x'}", ((0, 2), (4, 6), (1, 3), (5, 7))),
        ("mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'y'}", X),
        ("{}", (tuple(range(8)),)),
    ],
)
def test_every_notation_of_groups(groups, expected):
    found = one(f"ROOT %r = f32[16,2]{{1,0}} all-reduce(%p), replica_groups={groups}, to_apply=%add")
    assert sorted(found.groups) == sorted(expected)
    assert (found.kind, found.combiner, found.elements, found.dtype) == ("all_reduce", "add", 32, "float32")


def test_a_combined_all_reduce_counts_once_for_each_operand():
    line = "ROOT %r = (f32[16,2]{1,0}, bf16[3]{0}) all-reduce(%p, %q), replica_groups=[1,8]<=[8], to_apply=%add"
    found = hlo_collectives(HLO.format(line=line))
    assert [(f.elements, f.dtype) for f in found] == [(32, "float32"), (3, "bfloat16")]


def test_a_start_counts_and_its_done_does_not():
    line = (
        "%s = (f32[16,2]{1,0}, f32[128,2]{1,0}) all-gather-start(%p), replica_groups=[1,8]<=[8], dimensions={0}\n"
        "  ROOT %d = f32[128,2]{1,0} all-gather-done(%s)"
    )
    assert one(line).elements == 32


def test_operands_printed_with_their_types_are_read():
    found = one("ROOT %r = f32[2,2]{1,0} reduce-scatter(f32[16,2]{1,0} %p), replica_groups=[1,8]<=[8], to_apply=%add")
    assert (found.kind, found.elements) == ("reduce_scatter", 32)


def test_groups_that_cannot_be_read_are_an_error():
    with pytest.raises(InputError, match="cannot read the groups"):
        one("ROOT %r = f32[16,2]{1,0} all-reduce(%p), replica_groups=something, to_apply=%add")
