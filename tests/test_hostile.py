"""Files and folders that were made to harm: each fault that was found, and many changed inputs (`hostile.py`)."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import TARGETS, attack, masked
from hypothesis import given
from hypothesis import strategies as st
from test_checkpoint import Count

import refdist
from refdist import disk
from refdist.checkpoints import files
from refdist.data import Dataset, TextLineDataset, TFRecordDataset
from refdist.train import Checkpoint, CheckpointManager, latest_checkpoint, load_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_are_refused_and_change_nothing(name: str, tmp_path: Path) -> None:
    counts = attack(TARGETS[name][0](tmp_path / "guarded"), 1, range(300 if name == "folders" else 1500))
    assert counts["taken"] > 0
    assert counts["refused"] > 0 or name in ("lines", "answers")


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@given(st.integers(0, 2**63))
def test_other_inputs_are_refused_and_change_nothing(tmp_path_factory: Any, name: str, seed: int) -> None:
    attack(TARGETS[name][0](tmp_path_factory.mktemp("inputs") / "guarded"), seed, range(10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two checkpoints of 1.0 and their index; beside it lies one of 99.0."""
    v = refdist.Variable(99.0)
    Checkpoint(v=v).write(tmp_path / "victim")
    v.assign(1.0)
    manager = CheckpointManager(Checkpoint(v=v), tmp_path / "run", 2)
    manager.save()
    manager.save()
    return tmp_path / "run"


def index(folder: Path, **entries: object) -> None:
    content = json.loads((folder / "checkpoint").read_text())
    (folder / "checkpoint").write_text(json.dumps({**content, **entries}))


def refused(folder: Path, says: str) -> None:
    """Every reader of the index refuses it, and nothing is restored, changed or deleted."""
    before = sorted(folder.parent.rglob("*"))
    v = refdist.Variable(7.0)
    for call in (lambda: CheckpointManager(Checkpoint(v=v), folder, 1).restore_or_initialize(),
                 lambda: latest_checkpoint(folder), lambda: load_checkpoint(folder)):
        with pytest.raises(refdist.errors.DataLossError, match=rf"(?s)RD31.*{says}"):
            call()
    assert float(v) == 7.0 and sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["../victim", "../run/ckpt-1", "/tmp/x", "/dev/zero", "..", ".", "", "a\0b", "\ud800",
                                  "ckpt-1/", "./ckpt-1", "link/victim", 5, None, ["ckpt-1"]])
@pytest.mark.parametrize("entry", ["latest", "all"])
def test_an_index_names_files_in_its_folder_only(folder: Path, name: object, entry: str) -> None:
    (folder / "link").symlink_to("..")
    index(folder, **{entry: name if entry == "latest" else [name, "ckpt-1"]})
    refused(folder, r"run/checkpoint is damaged: .*which is not in this folder\. Delete it")


@pytest.mark.parametrize("content", [
    b"", b"{", b"[]", b"\xff", b"[" * 9999, b'{"latest": "ckpt-1"}', b'{"all": [], "latest": "ckpt-1", "latest": "w"}',
    b'{"latest": "ckpt-1", "all": 7}', b'{"latest": "ckpt-1", "all": [], "times": 7}',
    b'model_checkpoint_path: "ckpt-1"'])
def test_an_index_that_is_malformed_is_an_error_and_not_a_new_beginning(folder: Path, content: bytes) -> None:
    (folder / "checkpoint").write_bytes(content)
    refused(folder, "run/checkpoint is damaged: .+ Delete it, and restore a checkpoint of the folder by its path")


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 10**400, "5", None, True])
def test_a_time_in_an_index_is_a_number(folder: Path, time: object) -> None:
    index(folder, preserved_at=time)
    refused(folder, "a time in it is not a number|int too large")
    index(folder, preserved_at=5.0, times={"ckpt-1": time})
    refused(folder, "a time in it is not a number|int too large")


@pytest.mark.parametrize(("target", "says"), [
    ("../victim.safetensors", "a link"), ("/dev/zero", "a link"), ("ckpt-1.safetensors", "a link"),
    (None, "not a file")])
def test_what_an_index_names_is_a_file(folder: Path, target: str | None, says: str) -> None:
    latest = folder / "ckpt-2.safetensors"
    latest.unlink()
    if target:
        latest.symlink_to(target)
    else:
        os.mkfifo(latest)
    refused(folder, f"ckpt-2.safetensors, which the index of the folder names, is {says}")
    if target == "../victim.safetensors":
        Checkpoint(v=(v := refdist.Variable(7.0))).read(folder / "ckpt-2")
        assert float(v) == 99.0, "a path of the caller's own may lead to a link"


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("../index"), os.mkfifo, os.mkdir,
                                  lambda path: path.symlink_to("/dev/zero")])
def test_an_index_is_a_file(folder: Path, make: Any) -> None:
    (folder / "checkpoint").rename(folder.parent / "index")
    make(folder / "checkpoint")
    refused(folder, "run/checkpoint is damaged: it is a ")


def test_a_folder_that_became_a_link_is_not_followed_to_delete(tmp_path: Path) -> None:
    (tmp_path / "run" / "sub").mkdir(parents=True)
    manager = CheckpointManager(Checkpoint(v=refdist.Variable(1.0)), tmp_path / "run", 1, checkpoint_name="sub/ckpt")
    path = Path(str(manager.save()))
    path.parent.rename(tmp_path / "other")
    path.parent.symlink_to(tmp_path / "other")
    files.delete(str(tmp_path / "run"), "sub/ckpt-1")
    assert os.listdir(tmp_path / "other") == ["ckpt-1.safetensors"]
    outside = r"RD31.*run/sub/ckpt is outside the folder, as a part of this path is a symbolic link"
    with pytest.raises(refdist.errors.DataLossError, match=outside):
        manager.save()
    assert os.listdir(tmp_path / "other") == ["ckpt-1.safetensors"]


def test_an_old_checkpoint_that_cannot_be_deleted_is_named_after_the_save(folder: Path) -> None:
    v = refdist.Variable(7.0)
    index(folder, all=["a" * 300, "ckpt-0", "ckpt-2"])
    (folder / "ckpt-0.safetensors").mkdir()
    manager = CheckpointManager(Checkpoint(v=v), folder, 1)
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*ckpt-0.safetensors cannot be deleted: .*was saved"):
        manager.save(checkpoint_number=3)
    v.assign(0.0)
    assert str(CheckpointManager(Checkpoint(v=v), folder, 1).restore_or_initialize()).endswith("ckpt-3")
    assert float(v) == 7.0


@pytest.mark.parametrize("name", ["../ckpt", "/tmp/ckpt", "", "a\0b", 5, None])
def test_a_manager_writes_to_its_folder_only(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError, match=r"RD34.*checkpoint_name is .*Pass the beginning of the name of a file in the"):
        CheckpointManager(Checkpoint(), tmp_path / "run", 1, checkpoint_name=name)
    assert os.listdir(tmp_path) == []


def test_what_a_killed_save_left_is_removed_by_the_next_manager(folder: Path) -> None:
    (folder / f".refdist-{'0' * 32}").write_bytes(b"half a checkpoint")
    CheckpointManager(Checkpoint(), folder, 1)
    assert sorted(os.listdir(folder)) == ["checkpoint", "ckpt-1.safetensors", "ckpt-2.safetensors"]


@pytest.mark.parametrize("way", ["manager", "checkpoint"])
def test_the_number_of_saves_does_not_overflow(tmp_path: Path, way: str) -> None:
    checkpoint = Checkpoint(v=refdist.Variable(1.0))
    checkpoint.save_counter.assign(np.int64(2**63 - 1))
    manager = CheckpointManager(checkpoint, tmp_path, 1)
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*save_counter is 9223372036854775807"):
        manager.save() if way == "manager" else checkpoint.save(tmp_path / "x")
    for number in (2**63, -2**63 - 1, "5", 1.5):
        with pytest.raises(ValueError, match=r"RD34.*checkpoint_number is"):
            manager.save(checkpoint_number=number)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == [] and int(checkpoint.save_counter) == 2**63 - 1


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_path_has_characters_that_a_file_name_can_have(tmp_path: Path, name: str) -> None:
    for call in (Checkpoint().write, Checkpoint().save, Checkpoint().read, latest_checkpoint, load_checkpoint):
        with pytest.raises(ValueError, match=r"RD34.*the path is"):
            call(str(tmp_path / name))


@pytest.mark.parametrize("name", ["__metadata__", "\ud800", "a\0b"])
def test_a_name_that_the_format_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"RD31.*safetensors cannot hold the name"):
        Checkpoint({name: refdist.Variable(1.0)}).write(tmp_path / "x")
    assert os.listdir(tmp_path) == []


# Files of checkpoints.  `made` writes one whose checksums are right, whatever is in it.

def entry(dtype: str, shape: Any, begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def made(path: Path, header: Any, body: bytes = b"", **note: Any) -> str:
    note_of_file = {"crc32": {}, "aliases": {}, "raw": {}, "states": {}, "format": 2, **note}
    arrays = files.library()
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        alone = json.dumps({key: {**entry, "data_offsets": [0, end - begin]}}).encode()
        try:
            data = struct.pack("<Q", len(alone)) + alone + body[begin:end]
            note_of_file["crc32"].setdefault(key, files._checksum(arrays.load(data)[key]))
        except Exception:
            note_of_file["crc32"].setdefault(key, 0)
    text = json.dumps(note_of_file)
    text = text.replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    whole = json.dumps({"__metadata__": {"refdist": text, "crc32": str(zlib.crc32(text.encode()))}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(whole)) + whole + body)
    return str(path)


W = entry("F32", [2], 0, 8)


@pytest.mark.parametrize(("header", "note", "says"), [
    ({"w": entry("BF16", [4], 0, 8)}, {}, ""),
    ({"w": entry("F32", [-2], 0, 8)}, {}, "-2"),
    ({"w": entry("F32", [2**62, 4], 0, 8)}, {}, "overflow"),
    ({"w": entry("F32", [0, 2**63], 0, 0), "x": entry("U8", [8], 0, 8)}, {}, ""),
    ({"w": entry("F32", [1] * 70 + [2], 0, 8)}, {}, "dimension"),
    ({"w": entry("F32", [2], 0, 8), "x": entry("F32", [2], 0, 8)}, {}, "offset"),
    ({"w": entry("F32", [2], 8, 0)}, {}, "offset"),
    ({"w": entry("F32", [3], 0, 12)}, {}, ""),
    ({"w": entry("BOOL", [8], 0, 8)}, {}, "w has a bool that is neither True nor False"),
    ({"w": W}, {"raw": {"w": ["O", [1]]}}, "w has the dtype O"),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": ["object", [1]]}}, "w has the dtype object"),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": ["f4,f4", [1]]}}, "w has the dtype f4,f4"),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": [["f4"], [1]]}}, "w has the dtype"),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": ["complex64", [-1]]}}, r"w has the shape \[-1\]"),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": ["complex64", [2**63]]}}, ""),
    ({"w": entry("U8", [8], 0, 8)}, {"raw": {"w": ["complex64"]}}, ""),
    ({"w": W}, {"raw": {"x": ["complex64", [1]]}}, "it lacks x"),
    ({"w": W}, {"aliases": {"a": "x"}}, "it lacks x"),
    ({"w": W}, {"aliases": {"a": ["w"]}}, ""),
    ({"w": W}, {"aliases": {"w": "w"}}, "two values of one name"),
    ({"w": W}, {"states": {"w": 5}}, "two values of one name"),
    ({"w": W}, {"states": [5]}, "it has a list where a table should be"),
    ({"w": W}, {"states": {"n": "DEEP"}}, "nested too deeply"),
    ({"w": W}, {"crc32": {"x": 0}}, "it lacks x"),
    ({"w": W}, {"crc32": {"w": "x"}}, "the checksum of w is wrong"),
    ({"w": entry("F32", [2], 0, 8), "\x1b[2J": entry("U8", [0], 8, 8)}, {"crc32": {"\x1b[2J": 1}}, r"'.*\\x1b\[2J"),
])
def test_a_checkpoint_with_right_checksums_is_checked_too(tmp_path: Path, header: Any, note: Any, says: str) -> None:
    path = made(tmp_path / "x.safetensors", header, np.array([1.0, 3e-45], np.float32).tobytes(), **note)
    w, n = refdist.Variable([7.0, 7.0]), Count(7)
    with pytest.raises(refdist.errors.DataLossError, match=rf"RD31.*x.safetensors is damaged: .*{says}") as caught:
        Checkpoint(w=w, n=n).read(path)
    assert w.numpy().tolist() == [7.0, 7.0] and n.n == 7 and str(caught.value).isprintable()


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    """That the files above are refused for what they have, and not for how they are made."""
    path = made(tmp_path / "x.safetensors", {"w": W}, np.array([1.0, 3.0], np.float32).tobytes(),
                aliases={"again": "w"}, states={"n": {"n": 9}})
    w, n = refdist.Variable([7.0, 7.0]), Count(7)
    Checkpoint(w=w, n=n, again=refdist.Variable([0.0, 0.0])).read(path).assert_consumed()
    assert w.numpy().tolist() == [1.0, 3.0] and n.n == 9


@pytest.mark.parametrize(("start", "says"), [
    (struct.pack("<Q", 2**63), "its header has 9,223,372,036,854,775,808 bytes, and the file 18"),
    (struct.pack("<Q", 2**40), "its header has 1,099,511,627,776 bytes"),
    (b"\x0b\0\0\0\0\0\0\0", "its header has 11 bytes"),
    (struct.pack("<Q", 2) + b"{}", "was not written by a checkpoint"), (struct.pack("<Q", 2) + b"\xff\xff", ""),
    (struct.pack("<Q", 2) + b"[]", "it has a list where a table should be")])
def test_a_header_is_as_long_as_the_file_has_room_for(tmp_path: Path, start: bytes, says: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(start.ljust(18))
    with pytest.raises(refdist.errors.DataLossError, match=f"RD31.*x.safetensors is damaged: .*{says}"):
        load_checkpoint(tmp_path / "x")


def test_a_name_occurs_once(tmp_path: Path) -> None:
    text = '{"crc32": {}, "aliases": {}, "raw": {}, "states": {}, "states": {"n": 5}}'
    for note, more in ((text, ""), (text.replace(', "states": {"n": 5}', ""), ', "__metadata__": {}')):
        metadata = {"refdist": note, "crc32": str(zlib.crc32(note.encode()))}
        header = json.dumps({"__metadata__": metadata})[:-1] + more + "}"
        (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
        with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*damaged: it has two values of one name"):
            load_checkpoint(tmp_path / "x")


def test_a_file_that_does_not_fit_into_memory_is_not_called_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    def full(data: bytes) -> Any:
        raise MemoryError

    path = Checkpoint(v=refdist.Variable(1.0)).write(tmp_path / "x")
    monkeypatch.setattr(files.library(), "load", full)
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*x.safetensors does not fit into memory"):
        load_checkpoint(path)


# Files of records.

def record(length: int, data: bytes) -> bytes:
    stated = struct.pack("<Q", length)
    return stated + masked(stated) + data + masked(data)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**63 - 1, 2**40, 2**32, 6])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_length_with_a_right_checksum_is_not_believed(tmp_path: Path, length: int, compression: str | None) -> None:
    data = record(3, b"one") + record(length, b"three")
    (tmp_path / "rows").write_bytes(gzip.compress(data) if compression else data)
    read: list[bytes] = []
    with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*record 1 of .*rows is damaged: at byte 19"):
        read.extend(TFRecordDataset(str(tmp_path / "rows"), compression))
    assert read == [b"one"]


def test_no_memory_is_taken_for_what_the_file_cannot_have(tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[int] = []
    real = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size: asked.append(size) or real(self, size))
    (tmp_path / "rows").write_bytes(gzip.compress(record(2**31, b"three")))
    with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*it should have 2,147,483,648 bytes, and the"):
        list(TFRecordDataset(str(tmp_path / "rows"), "GZIP"))
    assert max(asked) == 12


def test_as_much_as_deflate_can_hold_is_read(tmp_path: Path) -> None:
    data = gzip.compress(record(10**7, bytes(10**7)), 9)
    assert 10**7 / len(data) > 1000
    (tmp_path / "rows").write_bytes(data)
    assert [len(row) for row in TFRecordDataset(str(tmp_path / "rows"), "GZIP")] == [10**7]


def test_a_compressed_file_is_damaged_in_the_middle(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(record(900, bytes(range(250)) * 3 + bytes(150))))
    data[10] = 0xff  # the first block is of a kind that does not exist
    (tmp_path / "rows").write_bytes(bytes(data))
    with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*record 0 of .*rows is damaged: at byte 0"):
        list(TFRecordDataset(str(tmp_path / "rows"), "GZIP"))


def test_a_record_that_does_not_fit_into_memory_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    class Full(io.FileIO):
        def read(self, size: int = -1) -> bytes:
            if size > 1000:
                raise MemoryError
            return super().read(size) or b""

    (tmp_path / "rows").write_bytes(record(2000, bytes(2000)))
    monkeypatch.setattr(disk, "opened", Full)
    with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*record 0 .* its 2,000 bytes do not fit into memory"):
        list(TFRecordDataset(str(tmp_path / "rows")))


@pytest.mark.parametrize("make", [TextLineDataset, TFRecordDataset])
@pytest.mark.parametrize("prepare", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"),
                                     lambda path: path.symlink_to("rows")])
def test_records_and_lines_are_read_from_files(tmp_path: Path, make: Any, prepare: Any) -> None:
    prepare(tmp_path / "rows")
    with pytest.raises(LookupError, match=r"RD30.*rows cannot be opened: "):
        list(make(str(tmp_path / "rows")))


def test_a_name_that_no_file_can_have_is_refused_as_one_that_is_not_there(tmp_path: Path) -> None:
    for name in ("a\0b", "\ud800"):
        with pytest.raises(LookupError, match=r"RD30.* cannot be opened: ") as caught:
            list(TextLineDataset(name))
        assert str(caught.value).isprintable()
        with pytest.raises(ValueError, match=r"RD30"):
            Dataset.list_files(name)


def test_lines_may_be_in_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"\xff\xfe\0\nr\xe4\n\xed\xa0\x80")
    assert list(TextLineDataset(str(tmp_path / "lines"))) == [b"\xff\xfe\0", b"r\xe4", b"\xed\xa0\x80"]
