"""Inputs made to harm: true files and answers, changed in many ways, for whatever reads them.

    python tests/hostile.py --inputs 1000000 --seed 1

A target makes a true input, changes it, and gives it to its reader.  Half of the changes are of single bytes, of the
kind that a broken disk makes; the others know the format: they put extremes into fields of lengths, names that lead
elsewhere, links, and values of other types, and make the checksums right again, so that what lies behind the checksums
is reached too.  What a reader may do is the same for all: take the input, or raise an error of the catalogue with the
code of the target.  An error may change nothing, and no file outside the target's own folder may be read in its place,
changed or removed: beside the folder lie files with the names that the inputs try.  A reader that hangs is ended with a
traceback by `faulthandler`.

Everything is drawn from one seed and the number of the input, so that every fault can be made again.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import google_crc32c
import numpy as np
from changes import bytes_changed, value_changed, written_twice

import refdist
from refdist.checkpoints import files
from refdist.conformance import chapters, notation, process, protocol, session
from refdist.conformance.examples import program
from refdist.conformance.judging import judge
from refdist.conformance.protocol import Unusable
from refdist.data import TextLineDataset, TFRecordDataset
from refdist.train import Checkpoint, CheckpointManager, latest_checkpoint, load_checkpoint

HANG = 60  # seconds
MEMORY = 8 << 30


class Fault(Exception):
    """A reader did what it must not do."""


class Target(ABC):
    """What is given inputs.

    Args:
        guarded: a folder; the target has the folder `own` in it, and beside that lies what must stay as it is.
    """

    code = ""

    def __init__(self, guarded: Path) -> None:
        self.guarded, self.own = guarded, guarded / "own"
        self.own.mkdir(parents=True)
        for name in ("victim", "victim.safetensors", "passwd", "folder/victim.safetensors", "checkpoint"):
            (guarded / "beside" / name).parent.mkdir(exist_ok=True, parents=True)
            (guarded / "beside" / name).write_text("canary")
            if "/" not in name:
                (guarded / name).write_text("canary")
        (guarded / "a link").symlink_to("victim")

    @abstractmethod
    def give(self, rng: random.Random) -> bool:
        """Makes an input and gives it to the reader; whether it was taken.

        Raises:
            RefdistError: of the catalogue.  Fault: something was changed that must not be.
        """

class CheckpointFiles(Target):
    """The file of a checkpoint, with arrays, a complex one, a state and an alias."""

    code = "RD31"

    def __init__(self, guarded: Path) -> None:
        super().__init__(guarded)
        self.w, self.z = refdist.Variable(np.arange(3.0, dtype=np.float32)), refdist.Variable(np.array([1 + 2j]))
        self.flags, self.n = refdist.Variable(np.array([True, False])), Count(5)
        self.checkpoint = Checkpoint(w=self.w, z=self.z, flags=self.flags, n=self.n, again=[self.w])
        self.path = self.checkpoint.write(self.own / "file")
        self.data = Path(files.file_of(self.path)).read_bytes()
        length = int.from_bytes(self.data[:8], "little")
        self.header, self.body = json.loads(self.data[8:8 + length]), self.data[8 + length:]
        self.note = json.loads(self.header["__metadata__"]["refdist"])

    def state(self) -> str:
        """What a failed restore must not change."""
        return repr([variable.numpy().tolist() for variable in (self.w, self.z, self.flags)] + [self.n.n])

    def changed(self, rng: random.Random) -> bytes:
        """The file, changed."""
        if rng.random() < 0.4:
            return bytes_changed(self.data, rng)
        header, note, body = json.loads(json.dumps(self.header)), self.note, self.body
        place = rng.randrange(4)
        if place == 0:
            note = value_changed(note, rng)
        elif place == 1:
            header = value_changed(header, rng)
        elif place == 2:
            body = bytes_changed(body, rng)
        else:
            note, header = value_changed(note, rng), value_changed(header, rng)
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        if isinstance(metadata, dict) and isinstance(note, dict):
            checksums(header, note, body)
            text = written_twice(note, rng)
            metadata.update({"refdist": text, "crc32": str(zlib.crc32(text.encode()))})
        written = written_twice(header, rng).encode()
        return struct.pack("<Q", len(written) if rng.random() < 0.9 else rng.choice([0, 2**40, 2**63, len(written) + 1])
                           ) + written + body

    def give(self, rng: random.Random) -> bool:
        """Restores, and reads without variables."""
        Path(files.file_of(self.path)).write_bytes(self.changed(rng))
        self.w.assign(np.full(3, 7, np.float32))
        self.n.n = 5
        before = self.state()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.checkpoint.read(self.path).expect_partial()
        except Exception:
            if self.state() != before:
                raise Fault(f"a restore that failed changed {before} to {self.state()}") from None
            raise
        reader = load_checkpoint(self.path)
        for name, shape in reader.get_variable_to_shape_map().items():
            array = reader.get_tensor(name)
            if list(array.shape) != shape or array.dtype.hasobject or array.nbytes > len(self.data) + 1000:
                raise Fault(f"{name!r} is {array!r}")
        return True


def checksums(header: dict[str, Any], note: dict[str, Any], body: bytes) -> None:
    """Makes the checksums of the arrays right where that is possible."""
    if not isinstance(note.get("crc32"), dict):
        return
    data = struct.pack("<Q", len(json.dumps(header).encode())) + json.dumps(header).encode() + body
    try:
        arrays = files.library().load(data)
    except Exception:
        return
    note["crc32"] = {**note["crc32"], **{key: files._checksum(array) for key, array in arrays.items()}}


class Count:
    """An object with a state."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def state_dict(self) -> Any:
        return self.n

    def load_state_dict(self, state: Any) -> None:
        self.n = state


class Folders(Target):
    """The index of a folder, and links and other things in the places of its files."""

    code = "RD31"

    def __init__(self, guarded: Path) -> None:
        super().__init__(guarded)
        self.v = refdist.Variable(np.float32(99.0))
        for name in ("victim", "beside/victim", "beside/folder/victim"):
            Checkpoint(v=self.v).write(guarded / name)
        self.v.assign(np.float32(1.0))
        Checkpoint(v=self.v).write(self.own / "true")
        self.true = (self.own / "true.safetensors").read_bytes()
        self.index = {"latest": "ckpt-1", "all": ["ckpt-0", "ckpt-1"], "times": {"ckpt-0": 5.0, "ckpt-1": 6.5},
                      "preserved_at": 5.0}

    def make(self, rng: random.Random) -> None:
        """Files, and what may lie in their places."""
        shutil.rmtree(self.own)
        self.own.mkdir()
        for name in ("ckpt-0", "ckpt-1", "w"):
            (self.own / f"{name}.safetensors").write_bytes(self.true)
        links = {"outside": "../beside", "loop": "loop", "link.safetensors": "../victim.safetensors",
                 f".refdist-{'0' * 32}": "../victim"}
        for name, target in links.items():
            (self.own / name).symlink_to(target)
        (self.own / "folder").mkdir()
        os.mkfifo(self.own / "pipe.safetensors")
        for _ in range(rng.choice([0, 0, 1, 2])):
            name = rng.choice(["ckpt-0.safetensors", "ckpt-1.safetensors", "ckpt-2.safetensors", "checkpoint"])
            path = self.own / name
            path.unlink(missing_ok=True)
            way = rng.randrange(4)
            if way == 0:
                path.symlink_to(rng.choice(["../victim.safetensors", "/dev/zero", "loop", "nowhere", "w.safetensors"]))
            elif way == 1:
                os.mkfifo(path)
            elif way == 2:
                path.write_bytes(bytes_changed(self.true, rng))
        if rng.random() < 0.3:
            text = bytes_changed(json.dumps(self.index).encode(), rng)
        else:
            text = written_twice(value_changed(self.index, rng), rng).encode()
        if not os.path.lexists(self.own / "checkpoint"):
            (self.own / "checkpoint").write_bytes(text)

    def give(self, rng: random.Random) -> bool:
        """Looks for the latest checkpoint, restores it, and saves two more."""
        self.make(rng)
        if rng.random() < 0.3:
            latest = latest_checkpoint(self.own)
            if latest is not None and not os.path.realpath(latest).startswith(str(self.own)):
                raise Fault(f"the latest checkpoint is {latest}")
        manager = CheckpointManager(Checkpoint(v=self.v), self.own, rng.choice([1, 1, 2, None]),
                                    keep_checkpoint_every_n_hours=rng.choice([None, None, 1]))
        try:
            manager.restore_or_initialize()
        finally:
            if float(self.v) == 99.0:
                raise Fault("a file outside the folder was read")
            list(manager.checkpoints)
            manager.save()
        manager.save()
        return True


class Records(Target):
    """A file of records, plain or compressed."""

    code = "RD30"
    rows = (b"", b"one", bytes(range(64)), b"x" * 300)

    def record(self, row: bytes, rng: random.Random) -> bytes:
        """A record; sometimes with a length that is not its own, and whose checksum is right."""
        stated = len(row) if rng.random() < 0.7 else rng.choice(
            [2**63, 2**64 - 1, 2**40, 2**31, 2**32 + 1, len(row) + 1, max(len(row) - 1, 0)])
        length = struct.pack("<Q", stated)
        return length + masked(length) + row + masked(row)

    def give(self, rng: random.Random) -> bool:
        """Reads the file."""
        data = b"".join(self.record(row, rng) for row in self.rows)
        if rng.random() < 0.5:
            data = bytes_changed(data, rng)
        compression = rng.choice([None, "GZIP"])
        if compression:
            data = gzip.compress(data, 1) * rng.choice([1, 1, 1, 2])
            if rng.random() < 0.5:
                data = bytes_changed(data, rng)
        path = self.own / "rows"
        path.write_bytes(data)
        records = list(TFRecordDataset(str(path), compression))
        if sum(map(len, records)) > 1032 * len(data):
            raise Fault("more was read than the file can hold")
        return True


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class Lines(Target):
    """A file of lines, in whatever encoding."""

    code = "RD30"

    def give(self, rng: random.Random) -> bool:
        """Reads the file."""
        path = self.own / "lines"
        data = bytes_changed("one\r\ntwo\n\nträi\n".encode() * rng.randrange(4), rng)
        path.write_bytes(data)
        lines = list(TextLineDataset(str(path)))
        if sum(map(len, lines)) > len(data) or any(b"\n" in line for line in lines):
            raise Fault(f"{data!r} has the lines {lines}")
        return True


class Answers(Target):
    """What an implementation under test says first, and its answers."""

    def __init__(self, guarded: Path) -> None:
        super().__init__(guarded)
        self.case = next(case for case in chapters.cases() if case.name.endswith("@ Mirrored 2"))
        observed = program(self.case).observe
        result: Any = {"per_replica": [{"dtype": "float32", "shape": [2], "data": [1.0, "nan"]}, {"list": [
            {"int": 3}, None, True, "text", {"dict": {"a": {"slices": {
                "values": {"float": 2.5}, "indices": {"int": 1}, "dense_shape": {"tuple": []}}}}},
            {"spec": {"shape": [None, 2], "dtype": "int64"}}, {"object": "x"}, {"error": "value", "message": "m"}]}]}
        self.answer = {"id": 1, "answers": [[[name, result] for name in observed]]}
        self.hello = protocol.implementation("mine", "1", frozenset({"nests"}))

    def give(self, rng: random.Random) -> bool:
        """Reads a first line, or an answer, as a session does; whatever is printed must be printable."""
        whole = self.hello if rng.random() < 0.4 else self.answer
        line = written_twice(value_changed(whole, rng), rng).encode()
        if rng.random() < 0.3:
            line = bytes_changed(line, rng)
        try:
            message = spoken(line)
            if whole is self.hello:
                shown = [str(text) for text in protocol.read_implementation(message)[:2]]
            else:
                reply = session.read_reply(message, program(self.case), "")
                shown = [reply.message]
                if not reply.outcome:
                    verdict = judge(self.case, reply.answers)
                    shown = [verdict.message, verdict.expected, verdict.found]
        except (process.Broken, Unusable) as error:
            shown = [str(error)]
        for text in shown:
            text.encode()
            if text != notation.printable(text):
                raise Fault(f"a message is {text!r}")
        return True


def spoken(line: bytes) -> Any:
    """The message that a line is."""
    reader = object.__new__(process.Process)
    reader._unread, reader._kept, reader._count = bytearray(line + b"\n" + b'{"protocol": 1}\n'), b"", 0
    reader._limit = process.KEPT
    return reader.receive(time.monotonic() + HANG, "late")


# With the share of the inputs that each is given.
TARGETS: dict[str, tuple[type[Target], float]] = {
    "checkpoints": (CheckpointFiles, 0.35), "folders": (Folders, 0.05), "records": (Records, 0.3),
    "lines": (Lines, 0.05), "answers": (Answers, 0.25)}


def listing(guarded: Path) -> dict[str, Any]:
    """Everything beside the target's own folder, with its content."""
    entries: dict[str, Any] = {}
    for path, folders, names in os.walk(guarded):
        if Path(path) == guarded:
            folders.remove("own")
        for name in [*folders, *names]:
            file = Path(path, name)
            status = file.lstat()
            content = os.readlink(file) if file.is_symlink() else file.read_bytes() if file.is_file() else b""
            entries[str(file)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return entries


def attack(target: Target, seed: int, numbers: Sequence[int], every: int = 200) -> Counter[str]:
    """Gives a target the inputs of these numbers; how many were taken, and how many were refused.

    Raises:
        AssertionError: the target did with one of them what it must not do.
    """
    counts: Counter[str] = Counter()
    before = listing(target.guarded)
    # Nothing here is about power failures.
    with mock.patch("os.fsync"):
        for position, number in enumerate(numbers):
            if position % every == 0:
                faulthandler.dump_traceback_later(HANG, exit=True)
            try:
                taken = target.give(random.Random(f"{seed}/{number}"))
                counts["taken" if taken else "refused"] += 1
            except refdist.errors.RefdistError as error:
                assert error.code == target.code, f"seed {seed}, input {number}: {error}"
                assert str(error).isprintable(), f"seed {seed}, input {number}: {error!r}"
                counts["refused"] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, input {number}: {type(error).__name__}: {error}") from error
            if (position + 1) % every == 0 or position + 1 == len(numbers):
                assert listing(target.guarded) == before, f"seed {seed}, up to input {number}: a file outside changed"
    faulthandler.cancel_dump_traceback_later()
    return counts


def main() -> None:
    """Attacks every target with its share of the inputs."""
    parser = argparse.ArgumentParser(description="Gives inputs that were made to harm to whatever reads files.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=TARGETS, action="append")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = given.target or list(TARGETS)
    whole = sum(TARGETS[name][1] for name in names)
    for name in names:
        make, share = TARGETS[name]
        count, began = round(given.inputs * share / whole), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            counts = attack(make(Path(folder) / "guarded"), given.seed, range(count))
        print(f"{name}: {count:,} inputs in {time.monotonic() - began:.0f} s: {counts['taken']:,} taken, "
              f"{counts['refused']:,} refused", flush=True)


if __name__ == "__main__":
    sys.exit(main())
