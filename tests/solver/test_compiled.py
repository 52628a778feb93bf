"""Compiled code on disk: what it is kept under, and what happens where nothing can be kept."""

import ast
import shutil
import time

import numpy as np
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


@pytest.mark.parametrize("file", ["messages.py", "pricing.py", "settling.py", "fixing.py"])
def test_message_passing_assigns_no_array_to_a_slice(file):
    tree = ast.parse((compilation._TOP / "solver" / "dual" / file).read_text())
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    to_slices = [node for node in assigned if any(isinstance(part, ast.Slice) for part in ast.walk(node.targets[0]))]
    assert {ast.unparse(node.value) for node in to_slices} <= {"0", "0.0", "np.inf"}


def test_numbers_are_copied_to_the_begin_of_an_array():
    into = np.array([1.0, 2.0, 3.0])
    compilation.copy_to(into, np.array([4.0, 5.0]))
    assert into.tolist() == [4.0, 5.0, 3.0]
