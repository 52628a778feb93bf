"""Models of the library at sizes for tests, and meshes of eight devices."""

MODELS = {
    "mlp": ("mlp", {"batch": 64, "inputs": 128, "hidden": 256, "outputs": 64}),
    "transformer": ("transformer", {}),
    "transformer_unrolled": ("transformer", {"scan": False}),
    "moe": ("moe", {}),
    "resnet": ("resnet", {}),
}
MESHES = {"8": {"x": 8}, "2x4": {"x": 2, "y": 4}, "2x2x2": {"x": 2, "y": 2, "z": 2}}
