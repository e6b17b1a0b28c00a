"""What the processes of a job say to each other by UDP, and how they know that it is theirs.

Anybody may send to a port: a stranger, or another job that had talked to it before this one was given the same port.
So a datagram begins with the number of the job and ends with a seal, a keyed hash of everything before it.  The key is
16 random bytes that the workers share over MPI.  A process that does not have it cannot make a datagram, change one, or
take one from one job to another.

    job 8 | kind 1 | rank 4 | number 8 | turn 4 | text, UTF-8 | seal 16

One of this job's own that is sent once more is not recognized; it says nothing new.  A rendezvous that was given up,
and a worker that is dead, stay so, and an answer counts only in the turn in which it was asked for.  A question is
answered to where the worker that asks is known to be, not to where the datagram came from, so strangers get no answer.

Datagrams get lost, so a question is asked again until there is an answer, and a death is told again until the job ends.
Texts are cut so that a datagram is one packet.

Standard library only: supervisors import nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

ASK = 1  # "what are you doing?", from worker `rank`, which has given up rendezvous `number`
ANSWER = 2  # worker `rank` is in rendezvous `number`, and `text` is its call
LOST = 3  # worker `rank` is dead, and `number` is the exit status of the job; sent by its supervisor

_KINDS = (ASK, ANSWER, LOST)
_HEAD = struct.Struct(">8sBIQI")
_SEAL = 16
MOST = 1400  # bytes of a datagram
_TEXT = MOST - _HEAD.size - _SEAL


Address = tuple[str, int]


class Key(NamedTuple):
    """What the processes of a job have in common.

    Attributes:
        job: the number of the job, which anybody may see.
        secret: what its datagrams are sealed with.
    """

    job: bytes
    secret: bytes


class Message(NamedTuple):
    """What a datagram says.

    Attributes:
        kind: ASK, ANSWER or LOST.
        rank: of which worker.
        number: of a rendezvous.
        turn: of a question, and of the answer to it.
        text: for people.
    """

    kind: int
    rank: int
    number: int = 0
    turn: int = 0
    text: str = ""


def new_key() -> Key:
    """The key of a new job."""
    return Key(secrets.token_bytes(8), secrets.token_bytes(16))


def sealed(message: Message, key: Key) -> bytes:
    """The datagram that says it."""
    text = message.text.encode(errors="replace")[:_TEXT].decode(errors="ignore").encode()
    body = _HEAD.pack(key.job, message.kind, message.rank, message.number, message.turn) + text
    return body + _seal(body, key)


def opened(datagram: bytes, key: Key) -> Message | None:
    """What a datagram of this job says; None for any other."""
    if not _HEAD.size + _SEAL <= len(datagram) <= MOST or not datagram.startswith(key.job):
        return None
    body, seal = datagram[:-_SEAL], datagram[-_SEAL:]
    if not hmac.compare_digest(seal, _seal(body, key)):
        return None
    _, kind, rank, number, turn = _HEAD.unpack_from(body)
    try:
        text = body[_HEAD.size:].decode()
    except UnicodeDecodeError:
        return None
    return Message(kind, rank, number, turn, text) if kind in _KINDS else None


class Notice(NamedTuple):
    """What a supervisor needs to tell all other workers that its own is lost.

    Attributes:
        rank: of which worker.
        key: of the job, in hexadecimal digits.
        addresses: where to.
    """

    rank: int
    key: tuple[str, str]
    addresses: Iterable[Address]

    def send(self, status: int) -> None:
        """Sends it to all, as far as they can be reached, with the exit status of the job."""
        job, secret = map(bytes.fromhex, self.key)
        datagram = sealed(Message(LOST, self.rank, status), Key(job, secret))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for host, port in self.addresses:
                with contextlib.suppress(OSError):
                    out.sendto(datagram, (host, port))


def _seal(body: bytes, key: Key) -> bytes:
    return hashlib.blake2b(body, digest_size=_SEAL, key=key.secret).digest()
