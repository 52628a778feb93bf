"""Compiled code on disk: what it is kept under, and what happens where nothing can be kept."""

import shutil
import time

import pytest

from autoshard.deadline import Deadline, clock
from autoshard.solver import compiled as compilation


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    compilation._folder.cache_clear()
    yield tmp_path
    compilation._folder.cache_clear()


@pytest.mark.parametrize("file", ["dual/pricing.py", "dual/arrays.py", "work.py"])
def test_a_change_of_one_compiled_file_or_what_it_takes_gives_all_of_them_a_new_folder(fresh, monkeypatch, file):
    copy = fresh / "autoshard"
    shutil.copytree(compilation._TOP / "solver", copy / "solver")
    monkeypatch.setattr(compilation, "_TOP", copy)
    before = compilation._contents()
    assert compilation._contents() == before
    changed = copy / "solver" / file  # functions, named tuples that they take, constants
    changed.write_text(changed.read_text() + "\n# changed\n")
    assert compilation._contents() != before


def test_a_change_of_what_is_not_compiled_keeps_the_folder(fresh, monkeypatch):
    copy = fresh / "autoshard"
    shutil.copytree(compilation._TOP / "solver", copy / "solver")
    monkeypatch.setattr(compilation, "_TOP", copy)
    before = compilation._contents()
    driver = copy / "solver/driver.py"
    driver.write_text(driver.read_text() + "\n# changed\n")
    assert compilation._contents() == before


def test_the_folders_used_last_stay(fresh):
    parent = compilation._folder().parent
    for k in range(2 * compilation._KEPT):
        (parent / f"old{k}").mkdir()
    compilation._folder.cache_clear()
    kept = compilation._folder()
    assert kept.exists()
    assert len(list(parent.iterdir())) == compilation._KEPT


def test_what_cannot_be_kept_is_compiled_all_the_same(fresh, monkeypatch):
    (fresh / "cache").write_text("a file where the folder would be")
    assert compilation._folder() is None
    assert compilation.compiled(lambda x: x + 1)(2) == 3


def test_compilation_counts_against_no_deadline(fresh):
    before, deadline = clock.not_counted_s, Deadline.after(60)
    began, left = time.monotonic(), deadline.left()
    compilation.compiled(lambda x: x + 1)(2)
    took, counted = time.monotonic() - began, left - deadline.left()
    assert clock.not_counted_s > before
    assert counted < took


def test_other_functions_of_numba_keep_their_own_folder(fresh):
    import numba

    before = numba.config.CACHE_DIR
    with compilation._cache_folder() as folder:
        assert str(folder) == numba.config.CACHE_DIR
    assert before == numba.config.CACHE_DIR
