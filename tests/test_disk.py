"""Files in folders to which others can write: what is opened, replaced and removed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refdist import disk

LEFT = ".refdist-" + "0123456789abcdef" * 2


@pytest.mark.parametrize(("make", "says"), [
    (os.mkfifo, "a pipe"), (os.mkdir, "a folder"), (lambda path: os.symlink("/dev/zero", path), "a device"),
    (lambda path: os.symlink(path, path), "symbolic links|a link"), (lambda path: None, "No such file")])
def test_only_files_are_opened(tmp_path: Path, make: Any, says: str) -> None:
    make(tmp_path / "it")
    with pytest.raises(OSError) as caught:
        disk.opened(str(tmp_path / "it"))
    assert any(text in str(caught.value.strerror) for text in says.split("|"))
    for name in ("a\0b", "\ud800"):
        with pytest.raises(OSError):
            disk.opened(name)


def test_a_link_to_a_file_is_followed_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with disk.opened(str(tmp_path / "link")) as file:
        assert file.read() == b"text"
    with pytest.raises(OSError, match="it is a link"):
        disk.opened(str(tmp_path / "link"), links=False)


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "file").symlink_to("victim")
    disk.replace(str(tmp_path / "file"), b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new" and not (tmp_path / "file").is_symlink()
    os.umask(umask := os.umask(0))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def test_a_temporary_file_is_made_and_not_opened(tmp_path: Path, monkeypatch: Any) -> None:
    """Not even if its name could be guessed."""
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / LEFT).symlink_to("victim")
    monkeypatch.setattr(disk.os, "urandom", lambda count: bytes.fromhex(LEFT.removeprefix(".refdist-")))
    with pytest.raises(FileExistsError):
        disk.replace(str(tmp_path / "file"), b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine" and sorted(os.listdir(tmp_path)) == [LEFT, "victim"]


def test_names_of_temporary_files_differ(tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[str] = []
    monkeypatch.setattr(disk.os, "fsync", lambda descriptor: seen.extend(
        name for name in os.listdir(tmp_path) if name != "file"))
    for _ in range(3):
        disk.replace(str(tmp_path / "file"), b"")
    assert len(set(seen)) == 3 and all(len(name) == len(LEFT) for name in seen)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: Any, error: BaseException) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def fails(descriptor: int) -> None:
        raise error

    monkeypatch.setattr(disk.os, "fsync", fails)
    with pytest.raises(type(error)):
        disk.replace(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_bytes() == b"old"


WRITER = """
import os, sys
from refdist import disk
disk.os.fsync = lambda descriptor: (print(flush=True), sys.stdin.read())
disk.replace(sys.argv[1], b"new")
"""


def test_files_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / f"file{i}"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE) for i in range(2)]
    try:
        for writer in writers:
            assert writer.stdout and writer.stdout.readline() == b"\n"
        disk.tidy(str(tmp_path))
        assert len(os.listdir(tmp_path)) == 2, "both are being written"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        disk.replace(str(tmp_path / "other"), b"")
        assert sum(name.startswith(".refdist-") for name in os.listdir(tmp_path)) == 1
        writers[1].communicate()
        assert writers[1].returncode == 0 and sorted(os.listdir(tmp_path)) == ["file1", "other"]
        assert (tmp_path / "file1").read_bytes() == b"new"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_what_is_not_a_temporary_file_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / LEFT).symlink_to("victim")
    os.mkfifo(tmp_path / LEFT.replace("0", "1"))
    (tmp_path / LEFT.replace("0", "2")).mkdir()
    for name in (LEFT[1:], LEFT + "0", LEFT.upper(), ".ckpt.12"):
        (tmp_path / name).touch()
    before = sorted(os.listdir(tmp_path))
    disk.tidy(str(tmp_path))
    disk.tidy(str(tmp_path / "none"))
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "victim").read_bytes() == b"mine"


def test_a_file_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path: Path,
                                                                              monkeypatch: Any) -> None:
    real, seen = fcntl.flock, []

    def removed(file: Any, how: int) -> None:
        if len(seen) < 2:
            names = os.listdir(tmp_path)
            seen.append(names)
            (tmp_path / names[0]).unlink()
            if len(seen) == 1:
                raise BlockingIOError
        real(file, how)

    monkeypatch.setattr(disk.fcntl, "flock", removed)
    disk.replace(str(tmp_path / "file"), b"new")
    assert len(seen) == 2 and os.listdir(tmp_path) == ["file"]


def test_without_locks_files_are_written_and_none_is_removed(tmp_path: Path, monkeypatch: Any) -> None:
    def unknown(file: Any, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(disk.fcntl, "flock", unknown)
    (tmp_path / LEFT).touch()
    disk.replace(str(tmp_path / "file"), b"new")
    assert sorted(os.listdir(tmp_path)) == [LEFT, "file"]
