"""Hardware profiles as tables: what there is, and one profile with the source of every number."""

from collections.abc import Mapping
from typing import Any

from autoshard.costmodels import load_profile
from autoshard.costmodels.load import list_calibrated, list_profiles
from autoshard.report.plan_tables import plain_table, stdout_console


def show_profiles() -> None:
    """Print one line for each profile."""
    table = plain_table(
        "hardware profiles",
        [
            ("name", ""),
            ("machine", ""),
            ("bf16 FLOP/s", "right"),
            ("memory", "right"),
            ("bytes/s", "right"),
            ("links", ""),
        ],
    )
    for name in (*list_profiles(), *list_calibrated()):
        profile = load_profile(name)
        table.add_row(
            name,
            profile.title,
            f"{profile.matmul_flops_per_s('bfloat16'):.3g}",
            f"{profile.memory.bytes.value / 1e9:.4g} GB",
            f"{profile.memory.bandwidth.value:.3g}",
            ", ".join(level.name for level in profile.levels),
        )
    stdout_console().print(table)


def show_profile(name: str) -> None:
    """Print every number of a profile with its unit, direction and source."""
    profile = load_profile(name)
    console = stdout_console()
    console.print(f"{profile.name}: {profile.title} ({profile.vendor})")
    table = plain_table("numbers of one device", [("what", ""), ("value", "right"), ("unit", ""), ("source", "")])
    for path, quantity in profile.quantities().items():
        unit = quantity.unit + (f", {quantity.direction}" if quantity.direction else "")
        table.add_row(path, f"{quantity.value:.6g}", unit, quantity.source)
    console.print(table)
    if (compiled := profile.compiled_work) is not None:
        console.print(f"compiled work: {_shares(compiled.model_dump(exclude={'source', 'note'}))} ({compiled.source})")
    console.print(f"overlap: {_shares(profile.overlap.model_dump(exclude={'source'}))} ({profile.overlap.source})")
    console.print("sources")
    for key, source in profile.sources.items():
        console.print(f"  {key}: {source.title} ({source.date}){' ' + source.url if source.url else ''}")
    for note in profile.notes:
        console.print(f"note: {note}")


def _shares(shares: Mapping[str, Any]) -> str:
    """Named shares in a line; those of several types one after the other."""
    flat = {
        f"{key} {name}".strip(): share
        for key, value in shares.items()
        for name, share in (value.items() if isinstance(value, dict) else [("", value)])
    }
    return ", ".join(f"{name} {share:g}" for name, share in flat.items() if share is not None)
