"""What workers say to each other by UDP: only those of the same job are believed and answered."""

from __future__ import annotations

import json
import queue
import re
import socket
import threading
import time
from typing import Any

import pytest
from hostile_datagrams import KEY, SIZE, TRUE, TURN, Listener, attack, hostile
from limits import HANG
from test_workers import mpiexec

from refdist.backends.mpi import datagrams, processes
from refdist.backends.mpi.datagrams import ANSWER, ASK, LOST, Message, Notice
from refdist.backends.mpi.processes import Place
from refdist.backends.mpi.watch import Watch


@pytest.mark.parametrize("message", TRUE, ids=lambda message: f"{message.kind}-{message.rank}-{message.number}")
def test_what_is_sealed_is_opened_again(message: Message) -> None:
    datagram = datagrams.sealed(message, KEY)
    back = datagrams.opened(datagram, KEY)
    assert len(datagram) <= datagrams.MOST
    assert back is not None and back[:4] == message[:4]
    # A text that is too long is cut between two characters.
    assert back.text == message.text or (len(datagram) > datagrams.MOST - 4 and message.text.startswith(back.text))


def test_a_worker_believes_and_answers_those_of_its_job() -> None:
    for message in TRUE:
        listener = Listener()
        listener.entered(3, "all_gather (train.py:41)")
        listener.take(datagrams.sealed(message, KEY))
        if message.kind == ASK:
            answer = Message(ANSWER, 0, 3, message.turn, "all_gather (train.py:41)")
            assert (listener.given_up, listener.sent) == (message.number, [(message.rank, answer)])
        elif message.kind == LOST:
            assert listener.dead() == [message.rank]
        else:
            assert listener._answers.keys() == {message.rank}


def test_a_worker_does_not_change_for_any_other_datagram() -> None:
    assert len(attack(6000)) == 17


def test_what_was_given_up_stays_so_when_an_older_question_comes_again() -> None:
    listener = Listener()
    for number in (7, 3):
        listener.take(datagrams.sealed(Message(ASK, 1, number), KEY))
    assert listener.given_up == 7


def connected(keys: int = 1) -> list[Watch]:
    """Three workers of each of so many jobs."""
    notices: list[Notice] = []
    jobs = [[Watch(rank) for rank in range(3)] for _ in range(keys)]
    for job in jobs:
        peers = [watch.listen(True) for watch in job]
        for watch in job:
            watch.join(peers, notices.append)
    return [watch for job in jobs for watch in job]


def test_workers_ask_each_other_what_they_do() -> None:
    first, second, third = connected()
    first.entered(3, "all_reduce (train.py:40)")
    second.entered(3, "all_gather (train.py:41)")
    report = first.report()
    assert re.search(r"worker 0 on .* is in call 3: all_reduce \(train\.py:40\)", report)
    assert re.search(r"worker 1 on .* is in call 3: all_gather \(train\.py:41\)", report)
    assert re.search(r"worker 2 on .* is elsewhere in the program; its last call was 0: starting", report)
    assert [watch.given_up for watch in (first, second, third)] == [-1, 3, 3] and first.absent == [2]


def test_hosts_of_one_name_are_told_apart() -> None:
    here, other = Watch(0), Watch(1)
    own, key = here.listen(False)
    there = other.listen(False)[0]._replace(process=2**22 + 1)  # which is no process of this host
    apart = there._replace(place=Place(*(f"{name} 2" for name in there.place)))
    assert own.host == apart.host and own.addresses == apart.addresses == tuple(processes.addresses())
    here.join([(own, key), (apart, key)], lambda _: None)
    assert here.dead() == []
    assert here._addresses[1] == [(address, there.port) for address in apart.addresses]
    same = Watch(0)
    same.join([(same.listen(False)[0], key), (there, key)], lambda _: None)
    assert same.dead() == [1] and same._addresses[1] == [("127.0.0.1", there.port)]


def test_another_job_at_the_port_of_an_old_one_is_not_disturbed() -> None:
    old, *_, new, _, _ = connected(2)
    old.entered(99, "all_reduce (old.py:1)")
    # The old worker takes the new job's ports for those of its own.
    old._addresses = new._addresses
    report = old.report()
    assert report.count("does not answer") == 2 and old.absent == [1, 2]
    assert new.given_up == -1


def test_a_port_under_attack_still_answers_its_job_and_no_stranger() -> None:
    watch, friend, stranger = Watch(0), *[socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    friend.bind(("127.0.0.1", 0))
    friend.settimeout(HANG)
    peer, _ = watch.listen(True)
    watch._turn = TURN
    watch.entered(3, "all_reduce (train.py:40)")
    others = peer._replace(port=friend.getsockname()[1])
    watch.join([(peer, KEY), *[(others, KEY)] * (SIZE - 1)], lambda _: None)
    for i, (_, datagram) in enumerate(hostile(4000)):
        stranger.sendto(datagram, ("127.0.0.1", peer.port))
        if i % 20 == 0:
            # Sent by the stranger: the answer goes to worker 1 all the same.
            stranger.sendto(datagrams.sealed(Message(ASK, 1, i, i), KEY), ("127.0.0.1", peer.port))
            answer = datagrams.opened(friend.recv(2000), KEY)
            assert answer == Message(ANSWER, 0, 3, i, "all_reduce (train.py:40)")
            assert watch.given_up == i
    with pytest.raises(BlockingIOError):
        stranger.recv(2000, socket.MSG_DONTWAIT)
    assert watch._answers == {}


def test_all_workers_learn_at_once_from_a_supervisor_that_one_is_dead() -> None:
    notices: queue.Queue[Notice] = queue.Queue()
    watches = [Watch(rank) for rank in range(3)]
    peers = [watch.listen(True) for watch in watches]
    statuses: list[list[int]] = [[], [], []]
    for watch in watches:
        watch.join(peers, notices.put if watch.rank == 1 else lambda _: None, lost=statuses[watch.rank].append)
    assert [watch.dead() for watch in watches] == [[], [], []]
    notice = notices.get(timeout=HANG)
    # What the supervisor receives.
    notice = Notice(**json.loads(json.dumps(notice._asdict())))
    notice.send(139)
    notice.send(139)  # which is said once
    watches[0].entered(1, "all_reduce (train.py:40)")
    until = time.monotonic() + HANG
    while not all(watch.dead() for watch in (watches[0], watches[2])):
        assert time.monotonic() < until, "nobody was told"
        time.sleep(0)
    assert [watch.dead() for watch in watches] == [[1], [], [1]]
    assert statuses == [[139], [], [139]]
    assert re.search(r"worker 1 on .* is dead$", watches[0].report(), re.MULTILINE)


@pytest.mark.parametrize(("waits", "looks", "given_up", "dead", "stuck"), [
    (True, 5, -1, [2], True), (True, 5, 7, [], True),
    (False, 5, 7, [2], False), (True, 6, 7, [2], False), (True, 5, 6, [], False)])
def test_a_worker_is_stuck_that_has_to_give_up_and_does_not_look(waits: bool, looks: int, given_up: int,
                                                                 dead: list[int], stuck: bool) -> None:
    watch, *_ = connected()
    watch.entered(7, "all_reduce (train.py:40)")
    watch.waits, watch.looks, watch.given_up = waits, looks, given_up
    watch.told(dead)
    assert watch.is_stuck(5) == stuck


@pytest.mark.parametrize("kind", [LOST, ASK])
def test_another_thread_speaks_for_a_worker_that_is_stuck(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    monkeypatch.setattr("refdist.backends.mpi.watch._STUCK_SECONDS", 0.01)
    watch, begun, go_on = Watch(0), threading.Event(), threading.Event()
    peers = [Watch(rank).listen(False) for rank in range(2)]
    watch.join([watch.listen(False), peers[1]], lambda _: None, lambda: (begun.set(), go_on.wait()))
    watch.entered(1, "all_reduce (train.py:40)")
    watch.waits = True
    watch.take(datagrams.sealed(Message(kind, 1, 1), watch._key))
    assert begun.wait(60)
    speaks = threading.Thread(target=watch.speaks)
    speaks.start()
    speaks.join(0.1)
    assert speaks.is_alive()  # the two do not say the same
    go_on.set()
    speaks.join(60)
    assert not speaks.is_alive()


@pytest.mark.parametrize(("one_host", "address"), [(True, "127.0.0.1"), (False, "0.0.0.0")])
def test_a_job_on_one_host_listens_to_that_host_only(one_host: bool, address: str) -> None:
    watch = Watch(0)
    watch.listen(one_host)
    assert watch._socket.getsockname()[0] == address


PORTS = """
import os, refdist
watch = refdist.MultiWorkerMirroredStrategy().extended.transport._watch
assert watch._socket.getsockname()[0] == "127.0.0.1"
os.write(1, f"{watch._key}{os.linesep}".encode())
"""


@pytest.mark.slow
def test_the_workers_of_a_job_have_one_key_and_those_of_the_next_have_another() -> None:
    keys: list[Any] = []
    for _ in range(2):
        done = mpiexec(2, "-c", PORTS)
        assert done.returncode == 0, done.stderr
        [key] = set(done.stdout.splitlines())
        keys.append(key)
    assert keys[0] != keys[1]
