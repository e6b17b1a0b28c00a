"""Files as sources.  The bytes of RECORDS were written by TensorFlow 2.21's tf.io.TFRecordWriter."""

from __future__ import annotations

import base64
import builtins
import gzip
import re
from pathlib import Path
from typing import Any

import pytest

import refdist
from refdist.data import Dataset, TextLineDataset, TFRecordDataset, TFRecordWriter

ROWS = [b"", b"one", b"a\0b\0", bytes(range(256))]
RECORDS = base64.b85decode(
    "0000000000DFc`X*y@6!0{{R300000u$f5?Z*FA)Kvf6?000000000&MN$M|0Ac{ihj}6Z0RR910000lvk2b+0RjUA1qKHQ2?`4g4Gs?w5fT#="
    "6&4p585$cL9UdPbAtECrB_<~*DJm;0EiNxGF)}kWH8wXmIXXK$Jw87`K|(`BMMg(RNlHshO-@fxQBqS>RaRG6Sz23MU0z>cVPa!sWoBn+X=-b1"
    "ZEkOHadLBXb#`}nd3t+%eSUv{fr5jCg@%WSiHeJijgF6yk&=^?m6n&7nVOrNot~edp`xRtrKYE-sj922t*)=Iv9hzYwYImoxw^Z&y}rM|!NSAD"
    "#m2|T$;!*j&Cbuz(bCh@)z;V8+1lIO-QM5e;o{@u<>u$;>FVq3?e6dJ@$&QZ_4fDp`TG0({r>-8BO22")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows").write_bytes(RECORDS)
    return tmp_path / "rows"


def write(path: Path, rows: list[bytes], options: str | None = None) -> None:
    with TFRecordWriter(path, options) as writer:
        for row in rows:
            writer.write(row)
        writer.flush()


def test_what_tensorflow_wrote_is_read_and_what_we_write_is_the_same(path: Path) -> None:
    assert list(TFRecordDataset(str(path))) == ROWS
    write(path.with_name("ours"), ROWS)
    assert path.with_name("ours").read_bytes() == RECORDS


def test_compressed_records(path: Path) -> None:
    path.write_bytes(gzip.compress(RECORDS))
    assert list(TFRecordDataset(path, "GZIP")) == ROWS
    write(path, ROWS[:2], "GZIP")
    assert gzip.decompress(path.read_bytes()) == RECORDS[:len(gzip.decompress(path.read_bytes()))]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*record \d of"):
        list(TFRecordDataset(path, "GZIP"))
    for make in (lambda: TFRecordDataset(path, "ZIP"), lambda: TFRecordWriter(path, "ZIP")):
        with pytest.raises(ValueError, match=r"RD34.*'ZIP'"):
            make()


def what_is_read(path: Path) -> tuple[list[bytes], str]:
    """The records before the first damage, and the error."""
    read: list[bytes] = []
    try:
        read.extend(TFRecordDataset(path))
    except refdist.errors.DataLossError as error:
        return read, str(error)
    return read, ""


def test_a_file_that_is_cut_anywhere_gives_whole_records_and_then_an_error(path: Path) -> None:
    ends = [16, 16 + 19, 16 + 19 + 20]
    for cut in range(1, len(RECORDS)):
        path.write_bytes(RECORDS[:cut])
        whole = sum(end <= cut for end in ends)
        read, error = what_is_read(path)
        assert read == ROWS[:whole], f"cut at byte {cut}"
        assert bool(error) == (cut not in ends), f"cut at byte {cut}: {error}"
        if error:
            assert re.search(rf"RD30.*record {whole} of .*rows is damaged", error), f"cut at byte {cut}: {error}"


def test_a_wrong_byte_anywhere_is_found(path: Path) -> None:
    for place in range(len(RECORDS)):
        wrong = bytearray(RECORDS)
        wrong[place] ^= 0x10
        path.write_bytes(bytes(wrong))
        assert "RD30" in what_is_read(path)[1], f"byte {place}"


def test_lines_of_text(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"one\r\ntwo\n\nlast")
    second.write_bytes(b"three\n")
    assert list(TextLineDataset([str(first), str(second)])) == [b"one", b"two", b"", b"last", b"three"]
    assert list(TextLineDataset(Dataset.list_files(str(second)))) == [b"three"]
    assert [batch.tolist() for batch in TextLineDataset(first).batch(3)] == [[b"one", b"two", b""], [b"last"]]
    assert TextLineDataset(first).element_spec == refdist.TensorSpec((), object)


def test_lines_of_compressed_text(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b"one\r\ntwo"))
    assert list(TextLineDataset(packed, "GZIP", buffer_size=1, name="lines")) == [b"one", b"two"]
    whole = packed.read_bytes()
    for damaged in (b"plain\n", whole[:-9], whole[:20] + b"\xff" + whole[21:]):
        packed.write_bytes(damaged)
        with pytest.raises(refdist.errors.DataLossError, match=r"RD30.*packed is damaged"):
            list(TextLineDataset(packed, "GZIP"))
    with pytest.raises(ValueError, match=r"RD34.*'ZLIB'"):
        TextLineDataset(packed, "ZLIB")


def test_files_are_read_in_turn(tmp_path: Path) -> None:
    """Observed, TensorFlow 2.21."""
    for name, count in (("a", 3), ("b", 0), ("c", 1), ("d", 2)):
        write(tmp_path / name, [f"{name}{i}".encode() for i in range(count)])
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{i}\n" for i in range(count)))
    orders = {None: "a0 a1 a2 c0 d0 d1", refdist.data.AUTOTUNE: "a0 a1 a2 c0 d0 d1", 1: "a0 a1 a2 c0 d0 d1",
              2: "a0 a1 c0 a2 d0 d1", 9: "a0 c0 d0 a1 d1 a2"}
    for number, order in orders.items():
        for kind, ending in ((TFRecordDataset, ""), (TextLineDataset, ".txt")):
            lines = kind([tmp_path / f"{name}{ending}" for name in "abcd"], num_parallel_reads=number)
            assert b" ".join(lines).decode() == order
    for bad, error in ((0, ValueError), (-2, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=r"RD(25|34).*num_parallel_reads is"):
            TFRecordDataset(tmp_path / "a", num_parallel_reads=bad)


def test_files_are_listed_by_pattern(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).touch()
    listed = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert [Path(name).name for name in listed] == ["a.txt", "b.txt"]
    assert len(Dataset.list_files([str(tmp_path / "*.txt"), str(tmp_path / "c*")])) == 3
    assert sorted(Dataset.list_files(str(tmp_path / "*"), seed=1)) == sorted(map(str, tmp_path.iterdir()))
    with pytest.raises(ValueError, match=r"RD30.*no file matches"):
        Dataset.list_files(str(tmp_path / "*.png"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for kind in (TextLineDataset, TFRecordDataset):
        with pytest.raises(LookupError, match=r"RD30.*gone cannot be opened: No such file"):
            list(kind(str(tmp_path / "gone")))
        for bad in (5, [5], None, [None]):
            with pytest.raises(TypeError, match="RD25"):
                kind(bad)
    with TFRecordWriter(tmp_path / "x") as writer, pytest.raises(TypeError, match="RD25"):
        writer.write("text")  # type: ignore[arg-type]


def test_without_the_checksum_library_the_error_says_how_to_get_it(path: Path, monkeypatch: Any) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "google_crc32c":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(LookupError, match=r"RD27.*pip install google-crc32c"):
        list(TFRecordDataset(path))


NAMES = Dataset.range(4)


@pytest.mark.parametrize(("names", "why"), [
    (NAMES, "files are read and there are enough for 2 workers"),
    (NAMES.filter(lambda _: True), "files are read and there are enough for 2 workers"),
    (NAMES.repeat(), "files are read and there are enough for 2 workers"),
    (NAMES.take(1), r"there are fewer files \(1\) than workers \(2\)"), (NAMES.take(0), "no files are read")],
    ids=["four", "some", "endless", "one", "none"])
def test_elements_for_which_a_function_opens_a_file_count_as_files(tmp_path: Path, names: Dataset, why: str) -> None:
    for i in range(4):
        (tmp_path / str(i)).write_text(f"{i}a\n{i}b\n")

    def lines(i: Any) -> Dataset:
        return TextLineDataset(tmp_path / str(i))

    def plan() -> list[str]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        return [str(strategy.experimental_distribute_dataset(opened.batch(2)).explain()) for opened in (
            names.flat_map(lines), names.interleave(lines, 1).prefetch(1), names.flat_map(lines).flat_map(
                lambda line: Dataset.from_tensors(line)))]

    for worker in refdist.simulate_workers(plan, 2):
        assert all(re.search(why, text) for text in worker), worker
