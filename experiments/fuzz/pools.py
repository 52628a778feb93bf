"""Words that cases are made of: keys, meshes, machines, arguments, and texts of every small grammar."""

KEYS = (
    "model", "model.layers", "model.dims", "model.batch", "model.name", "function", "args", "specs", "argnames",
    "donate",
    "effects", "in_code", "carry", "logical_axes", "mesh", "mesh.data", "mesh.devices", "mesh.axes", "mesh.data.link",
    "hardware", "priorities", "time_limit", "baselines", "logical_axis_rules", "share_repeats", "strict", "strategy",
    "objective", "solver", "solver.effort", "solver.seed", "solver.memory", "solver.accepted_gap", "devices", "verify",
    "run", "run.steps", "run.seed", "output", "pins", "pins.0", "pins.0.sharding", "same_sharding", "memory_limit",
    "memory_limit.device", "kernels", "manual", "replicated", "no_collective", "max_reshards", "axis_only", "barrier",
    "memory_kinds", "shapes", "annotations", "configuration", "args.x", "args.x.shape", "a.b.c.d", "", ".", "model..x",
)  # fmt: skip

MESHES = (
    "data=2,model=4", "data=8", "data=3", "data=0", "data=-1", "data=1e10", "data=99999999999999999999", "=4",
    "data", "",
    "data=2,data=4", "data=2;model=4", " data = 2 , model = 4 ", "data=2,", "é=2", "data=٣", "data=2,model=4,x=1",
    "a=1",
    "data:2", "data=2=3", "data=²", "\0=2", "data=1048576,model=1048576", "devices=8", "data={size: 2}",
)  # fmt: skip

MACHINES = (
    "tpu_v5e",
    "h100",
    "cpu_sim",
    "tpu_v9",
    "",
    "mine.yaml",
    ".",
    "/dev/null",
    "\0",
    "../tpu_v5e",
    "1",
    "null",
    "{}",
)

LIMITS = ("2", "1s", "0", "-1", "10min", "nan", "inf", "1e400", "", "ten", "1e-9", "0.001", "99999999h")

WORDS = (
    "-h", "--json", "-o", "out", "-q", "-v", "--mesh", "--hardware", "--time-limit", "solve", "show", "-", "--", "",
    "quickstart.yaml", "plan.json", "tpu_v5e", "data=2", "x", "--trust", "1", "-1", "--strategy", "joint", "mlp.yaml",
    "memory", "steps", "--format", "csv", "--output", "/", ".", "\0", "--seed", "--effort", "nan", "%x", "**", "config",
)  # fmt: skip

COMMANDS = (
    "init", "solve", "show", "specs", "verify", "run", "lower", "simulate", "report", "hardware", "explain", "compare",
    "sweep", "diff", "propagate", "check", "schema", "cost", "network", "nonsense",
)  # fmt: skip

COST = (
    "collective --kind all-gather --bytes 2e9 --mesh x=8,y=4 --axes y --hardware tpu_v5e --json",
    "collective --kind any-permute --bytes 64MiB --mesh x=8,y=4 --axes y:(1)2,x --hardware h100 --link x=nvlink",
    "collective --kind all-reduce --bytes 5 --mesh x=16,y=16 --axes x --hardware tpu_v5p --slice-shape 4x8x8",
    "matmul|B_x E @ E M -> B_x M|--dim B=4096,E=8192,M=28672 --mesh x=16 --hardware tpu_v5e",
    "matmul|B E_x @ E_x M -> B M|--dim B=4096 --dim E=8192,M=28672 --mesh x=16 --hardware h100 --storage "
    "bfloat16,int8,bfloat16",
    "--model llama3_70b --strategy fsdp+tensor --mesh fsdp=64,tensor=8 --batch-tokens 4e6 --hardware tpu_v5p --json",
    "--model mixtral_8x7b --strategy fsdp+expert --mesh fsdp=64,expert=8 --batch-tokens 4e6 --hardware h100 "
    "--efficiency 0.5 --recompute 1",
    "critical-batch --model llama3_70b --strategy fsdp+tensor --mesh fsdp=64,tensor=8 --hardware tpu_v5p "
    "--batch-tokens 1e6",
    "model llama3_70b --kv-dtype int8 --seq 100 --json",
    "inference --model llama3_70b --devices 8 --hardware tpu_v5e --batch 32 --context 8192 --weight-dtype int8 --json",
)

SANE = (1, 2, 3, 4, 6, 7, 8, 16, 64, 100, 1.5, 0.9, True, False, None, "data", "model", "a", "x", "w", "out",
"float32[16,32]",
    "bfloat16[8]", '[{"data"}, {}]', '[{?}, {"model", ?}]', "fsdp", "tensor", "data+tensor", "h100", "10MiB",
    "90%", "greedy",
    "basic", "**", ["x", "w"], {"data": 8}, {"x": 2, "y": 2}, [], {})  # fmt: skip
"""Values that are right in some place of a config."""

CONFIGS = ("quickstart", "small", "mlp", "step", "searched", "onnx", "annotated", "quickstart", "mlp", "step")

LARGE = ("llama3_405b", "llama3_70b", "llama3_8b", "mixtral_8x7b", "resnet50")

TEXTS = (
    '<@mesh, [{"x"}, {"y":(1)2, ?}p1], replicated={"z"}, unreduced={"w"}>', '[{"x"}, {}]', '[{?}, {"x", "y"}]',
    '<@m, []>', '"y":(2)4', "x", '<["x"=2, "y"=4]>', '<["x"=2], device_ids=[1, 0]>', "([i, k], [k, j])->([i, j])",
    "([ij_2], [_])->([i, j])", "user-priority:first-factor", "basic", "14GiB", "90%", "10 min", "1e400 s",
    "{devices=[2,4]<=[8]}", "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dim_replicate}", "{maximal device=3}",
    "data=2,model=4", "state/params/**/w[0-9]", "a: {b: [1, 2, *x]}", "<<: *a", "? [a]\n: b",
)  # fmt: skip
