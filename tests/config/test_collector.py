"""The garbage collector is paused where many objects stay alive, and goes on as before."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoshard.files import read_json, write_json
from autoshard.garbage import set_aside, uncollected

ROWS = [[{"at": row}] for row in range(20_000)]


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Generations that were searched, one for each search; nothing is set aside at first."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    if frozen:
        gc.freeze()


def test_json_is_written_without_a_search_for_garbage(tmp_path: Path, collections: list[int]) -> None:
    gc.collect()
    collections.clear()
    write_json(tmp_path / "rows.json", ROWS)
    assert len(collections) <= 1  # the first one afterwards


def test_json_is_read_without_a_search_for_garbage(tmp_path: Path, collections: list[int]) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    gc.collect()
    collections.clear()
    assert read_json(tmp_path / "rows.json") == ROWS
    assert len(collections) <= 1


def test_the_collector_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), uncollected():
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_set_aside_comes_back(collections: list[int]) -> None:
    with set_aside():
        assert gc.get_freeze_count() > 0
        with set_aside():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_others_froze_stays_frozen(collections: list[int]) -> None:
    gc.freeze()
    try:
        with set_aside():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
