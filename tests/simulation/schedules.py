"""Small scheduled programs, as the TPU compiler prints them, for the tests."""

HEAD = "HloModule step, is_scheduled=true, num_partitions=4\n\n"

MATMUL = "convolution(%x, %w), window={size=1}, dim_labels=0bf_0io->0bf"


def cycles(seconds: float, clock_hz: float = 1.50299072265625e9) -> str:
    """The attribute of work that takes so long on a v5e."""
    return f'backend_config={{"estimated_cycles":"{round(seconds * clock_hz)}"}}'


def line(name: str, shape: str, text: str, seconds: float | None = None, *, root: bool = False) -> str:
    """One instruction; seconds: what the compiler expects."""
    told = "" if seconds is None else f", {cycles(seconds)}"
    return f"  {'ROOT ' if root else ''}%{name} = {shape} {text}{told}"


def program(*lines: str, before: str = "") -> str:
    """A module whose entry has these lines."""
    return f"{HEAD}{before}ENTRY %main (x: f32[8]) -> f32[8] {{\n" + "\n".join(lines) + "\n}\n"


def computation(name: str, *lines: str) -> str:
    """A computation before the entry."""
    return f"%{name} (p: f32[8]) -> f32[8] {{\n" + "\n".join(lines) + "\n}\n\n"
