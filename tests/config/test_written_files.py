"""Files are written all or nothing, and where the user pointed."""

import os
import stat
from pathlib import Path

import pytest

from autoshard.errors import InputError
from autoshard.files import read_json, write_bytes, write_json


def test_a_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "plan.json")
    write_bytes(tmp_path / "link.json", b"1")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real" / "plan.json").read_bytes() == b"1"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_bytes(tmp_path / "pipe", b"abc")
        assert os.read(reader, 10) == b"abc"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_long_names_can_be_written(tmp_path: Path) -> None:
    write_bytes(tmp_path / ("n" * 250), b"1")
    assert [p.name for p in tmp_path.iterdir()] == ["n" * 250]


def test_names_of_files_that_are_no_text_survive_in_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"file": "caf\udce9.yaml"})
    assert read_json(tmp_path / "a.json") == {"file": "caf\udce9.yaml"}


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*: Is a directory"):
        write_bytes(tmp_path, b"1")
    assert tmp_path.is_dir()
