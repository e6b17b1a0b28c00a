"""Datagrams that are not of this job, or not whole, and a worker that must not change for any of them.

    python tests/hostile_datagrams.py [COUNT [SEED]]
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from refdist.backends.mpi import datagrams
from refdist.backends.mpi.datagrams import Key, Message
from refdist.backends.mpi.processes import Place
from refdist.backends.mpi.watch import Endpoint, Watch

KEY = Key(b"this job", b"sixteen  secrets")
SIZE, TURN = 4, 5
# What a worker 0 would believe that has given up nothing and asks for the fifth time.
TRUE = [Message(kind, rank, number, turn, text)
        for kind, turn in ((datagrams.ASK, 9), (datagrams.ANSWER, TURN)) for rank in (1, 2, 3)
        for number, text in ((0, ""), (7, "all_reduce (train.py:40)"), (2**63, "Grüße, 東京 " * 200))]
TRUE += [Message(datagrams.LOST, rank) for rank in (1, 2, 3)]


class Listener(Watch):
    """Worker 0 of a job, without a network.

    Attributes:
        sent: what it wanted to send, and to whom.
    """

    def __init__(self, key: Key = KEY) -> None:
        super().__init__(0)
        self._socket.close()
        self._key = key
        self._peers = [Endpoint("elsewhere", 1, 1, Place("elsewhere", "elsewhere"), ())] * SIZE
        self._turn = TURN
        self.sent: list[tuple[int, Message]] = []

    def _send(self, rank: int, message: Message) -> None:
        self.sent.append((rank, message))

    def state(self) -> tuple[object, ...]:
        """All that a datagram could change."""
        return self.given_up, self.count, self._turn, self._key, dict(self._answers), self.dead(), len(self.sent)


def _flipped(draw: random.Random, datagram: bytes) -> bytes:
    changed = bytearray(datagram)
    for bit in draw.sample(range(8 * len(datagram)), draw.choice((1, 1, 1, 2, 8))):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _sealed(content: bytes) -> bytes:
    return content + datagrams._seal(content, KEY)


def _other(draw: random.Random, job: bytes, secret: bytes) -> bytes:
    return datagrams.sealed(draw.choice(TRUE), Key(job, secret))


def _head(draw: random.Random, kind: int, rank: int) -> bytes:
    return datagrams._HEAD.pack(KEY.job, kind, rank, draw.getrandbits(64), draw.choice((TURN, draw.getrandbits(32))))


def _spliced(draw: random.Random, first: bytes, second: bytes) -> bytes:
    at = draw.randrange(len(KEY.job) + 1, len(first))
    return first[:at] + second[at:] if first[:at] + second[at:] not in (first, second) else b""


def _true(draw: random.Random) -> bytes:
    return datagrams.sealed(draw.choice(TRUE), KEY)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "any bytes": lambda draw: draw.randbytes(draw.choice((0, 1, draw.randrange(80), draw.randrange(2000)))),
    "any bytes behind the job's number": lambda draw: KEY.job + draw.randbytes(draw.randrange(1500)),
    "the beginning of a true one": lambda draw: (datagram := _true(draw))[:draw.randrange(len(datagram))],
    "the end of a true one": lambda draw: (datagram := _true(draw))[draw.randrange(1, len(datagram)):],
    "a true one and more": lambda draw: _true(draw) + draw.randbytes(draw.randrange(1, 40)),
    "bits of a true one flipped": lambda draw: _flipped(draw, _true(draw)),
    "two true ones spliced": lambda draw: _spliced(draw, _true(draw), _true(draw)),
    "of another job": lambda draw: _other(draw, draw.randbytes(8), draw.randbytes(16)),
    "of another job of the same number": lambda draw: _other(draw, KEY.job, draw.randbytes(16)),
    "of another job, with this one's secret": lambda draw: _other(draw, draw.randbytes(8), KEY.secret),
    "of another job, renumbered": lambda draw: KEY.job + _other(draw, draw.randbytes(8), KEY.secret)[8:],
    # These have the seal of the job, as no stranger's would.
    "of a worker that does not exist": lambda draw: _sealed(
        _head(draw, draw.choice((1, 2, 3)), draw.randrange(SIZE, 2**32))),
    "of this worker itself": lambda draw: _sealed(_head(draw, draw.choice((1, 2, 3)), 0)),
    "of no known kind": lambda draw: _sealed(_head(draw, draw.choice((0, draw.randrange(10, 256))), 1)),
    "a text that is not UTF-8": lambda draw: _sealed(_head(draw, 2, 1) + b"\xff" + draw.randbytes(9)),
    "longer than a packet": lambda draw: _sealed(_head(draw, 2, 1) + b"a" * 1400),
    "an answer to another question": lambda draw: datagrams.sealed(
        Message(datagrams.ANSWER, 1, 9, draw.choice((0, TURN - 1, TURN + 1, 2**32 - 1)), "late"), KEY),
}


def hostile(count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """So many datagrams, each with what it is; the same ones for the same seed."""
    draw = random.Random(seed)
    names = list(KINDS)
    for i in range(count):
        name = names[i % len(names)]
        yield name, KINDS[name](draw)


def attack(count: int, seed: int = 0) -> Counter[str]:
    """Gives so many to a worker, which must not change; how many there were of each kind."""
    listener = Listener()
    before = listener.state()
    counted: Counter[str] = Counter()
    for name, datagram in hostile(count, seed):
        listener.take(datagram)
        assert listener.state() == before, f"{name}: {datagram!r}"
        counted[name] += 1
    return counted


if __name__ == "__main__":
    start = time.monotonic()
    for kind, times in attack(*map(int, sys.argv[1:] or ["1000000"])).items():
        print(f"{times:>9,}  {kind}")
    print(f"nothing changed; {time.monotonic() - start:.0f} s")
