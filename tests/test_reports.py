"""The desk of a host: who is named, when a report is printed, and which exit status the job has."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from limits import HANG

from refdist.backends.mpi import alone, processes, reports
from refdist.backends.mpi.reports import Desk, Left, Line


def new_desk(size: int, state: str = "joined", of: int | None = None) -> Desk:
    made = Desk()
    for rank in range(size):
        made.take(change(rank, state, size=size, of=of or size), rank, 0.0)
    return made


def change(rank: int, state: str, status: int = 0, size: int = 3, of: int = 3, joined: bool = True, **more: Any) -> Any:
    return {"rank": rank, "size": size, "of": of, "state": state, "status": status, "process": 100 + rank,
            "supervisor": 200 + rank, "proxy": 0, "memory": "", "topology": "", "joined": joined,
            "stopped": False, **more}


def report(rank: int, text: str, wait: float = 0.3, status: int = 70, **more: Any) -> Any:
    return {"rank": rank, "size": 3, "of": 3, "text": text, "wait": wait, "status": status, **more}


def test_the_same_text_of_several_workers_is_printed_once() -> None:
    desk = new_desk(4)
    for rank, text in ((3, "a\nb"), (0, "c"), (1, "a\nb")):
        desk.take(report(rank, text), rank, 1.0)
    assert desk.due(1.2) == ("", [])
    assert desk.next() == 1.3
    text, answers = desk.due(1.3)
    assert text == "[workers 1, 3] a\n[workers 1, 3] b\n[worker 0] c\n"
    assert answers == [(rank, {"answer": "printed", "status": 70}) for rank in (3, 0, 1)]
    assert desk.due(9.0) == ("", [])


@pytest.mark.parametrize(("ranks", "printed"), [
    ([1], "[worker 1] was killed\n"), ([1, 0], "[workers 0-1] were killed\n")])
def test_several_workers_are_spoken_of_as_several(ranks: list[int], printed: str) -> None:
    desk = new_desk(3)
    for rank in ranks:
        desk.take(report(rank, "was killed", several="were killed"), rank, 1.0)
    assert desk.due(1.3)[0] == printed


def test_a_warning_that_several_workers_give_is_printed_once() -> None:
    desk = new_desk(3)
    for rank, text in ((0, "of all"), (2, "of two"), (1, "of all"), (0, "of two"), (2, "of all")):
        desk.take(report(rank, text, 2.0, status=0, warning=True), rank, 1.0)
    assert desk.due(1.0) == ("[workers 0-2] of all\n", [])
    assert desk.due(2.9) == ("", [])
    assert desk.next() == 3.0 and desk.due(3.0) == ("[workers 0, 2] of two\n", [])
    desk.take(report(1, "before an error", 2.0, status=0, warning=True), 1, 4.0)
    desk.take(report(1, "the error", 0.3), 1, 4.1)
    assert desk.due(4.5)[0] == "[worker 1] before an error\n[worker 1] the error\n" and desk.status == 70


def test_a_report_does_not_wait_for_workers_that_have_nothing_to_say() -> None:
    desk = new_desk(3)
    desk.take(change(1, "ended", 137), 1, 1.0)
    desk.take(report(0, "lost", 2.0), 0, 1.0)
    assert desk.due(1.0) == ("", [])
    desk.take(report(2, "lost", 2.0), 2, 1.1)
    assert desk.due(1.1)[0] == "[workers 0, 2] lost\n"
    desk.take(report(1, "later", 2.0), 1, 1.2)
    assert desk.due(1.2)[0] == "[worker 1] later\n"


def test_a_report_does_not_wait_for_workers_that_are_stopped() -> None:
    desk = new_desk(3)
    desk.take(change(1, "joined", stopped=True), 1, 1.0)
    desk.take(report(0, "lost", 5.0), 0, 2.0)
    assert desk.due(2.0) == ("", [])
    desk.take(report(2, "lost", 5.0), 2, 2.5)
    assert desk.due(2.5) == ("", [])  # others that are stopped may soon say the same
    assert desk.next() == 2.8
    assert desk.due(2.8)[0] == "[workers 0, 2] lost\n"
    desk.take(change(1, "joined"), 1, 3.0)  # it goes on
    desk.take(report(1, "lost", 5.0), 1, 4.0)
    assert desk.due(4.0)[0] == "[worker 1] lost\n"


def test_a_report_does_not_wait_for_workers_that_are_elsewhere() -> None:
    desk = new_desk(3)
    desk.take(report(0, "worker 1 is elsewhere", 5.0, absent=[1]), 0, 2.0)
    assert desk.due(2.5) == ("", [])  # worker 2 says the same, if not so soon
    desk.take(report(2, "worker 1 is elsewhere", 5.0, absent=[1]), 2, 3.0)
    assert desk.due(3.2) == ("", [])
    assert desk.due(3.3)[0] == "[workers 0, 2] worker 1 is elsewhere\n"


def test_a_report_does_not_wait_for_a_worker_whose_supervisor_has_died() -> None:
    desk = new_desk(3)
    desk.is_gone(1)
    for rank in (0, 2):
        desk.take(report(rank, "worker 1 died", 5.0), rank, 2.0)
    assert desk.due(2.0)[0] == "[workers 0, 2] worker 1 died\n"


def test_workers_of_other_hosts_that_are_elsewhere_do_not_count() -> None:
    desk = new_desk(2, of=4)
    desk.take(report(0, "workers 2-3 are elsewhere", 5.0, absent=[2, 3]), 0, 2.0)
    assert desk.due(6.9) == ("", [])
    assert desk.due(7.0)[0] == "[worker 0] workers 2-3 are elsewhere\n"


def test_a_late_start_names_the_workers_that_are_stopped() -> None:
    desk = new_desk(3, "starting")
    desk.take(change(1, "starting", stopped=True), 1, 1.0)
    desk.take(report(0, "late", 0.0, missing=True), 0, 2.0)
    assert desk.due(2.0)[0] == "[worker 0] late\n[worker 0] worker 1 (process 101) is stopped\n"


@pytest.mark.parametrize(("messages", "status"), [
    ([change(0, "ended")], 0),
    ([change(1, "ended", 137), report(0, "lost", weak=True), change(0, "ended", 70, weak=True)], 137),
    ([report(0, "left", weak=True), report(1, "left", weak=True), change(1, "ended", 3)], 3),
    ([report(0, "shape", weak=True), report(1, "shape", weak=True), change(1, "ended", 70, weak=True)], 70),
    ([report(2, "KeyError"), change(1, "ended", 4)], 70),
    ([report(0, "lost", weak=True), report(1, "ended by SIGTERM", status=143, if_first=True)], 70),
    ([report(0, "lost", weak=True), change(0, "ended", 143, if_first=True)], 70),
    ([report(0, "lost", weak=True, dead=[1]), report(1, "ended by SIGTERM", status=143, if_first=True)], 143),
    ([report(0, "lost", weak=True, dead=[1]), report(2, "ended by SIGTERM", status=143, if_first=True)], 70),
    ([report(0, "lost", weak=True, dead=[1]), report(1, "was killed", status=137),
      report(1, "ended by SIGTERM", status=143, if_first=True)], 137),
])
def test_the_status_is_that_of_the_worker_that_failed_first(messages: list[Any], status: int) -> None:
    desk = new_desk(3)
    for message in messages:
        desk.take(message, message["rank"], 1.0)
    assert desk.status == status


@pytest.mark.parametrize(("messages", "first"), [
    ([change(0, "ended")], None),
    ([report(0, "lost", weak=True), report(1, "was killed by SIGKILL", status=137), change(1, "ended", 137)],
     "was killed by SIGKILL"),
    ([report(2, "KeyError"), report(1, "was killed by SIGKILL", status=137)], "KeyError"),
    ([report(0, "lost", weak=True), report(2, "gone", weak=True)], "lost"),
    ([report(0, "lost", weak=True), report(1, "ended by SIGTERM", status=143, if_first=True)], "lost"),
    ([report(0, "lost", weak=True, dead=[1]), report(1, "ended by SIGTERM", status=143, if_first=True)],
     "ended by SIGTERM"),
    ([report(1, "a warning", status=0, warning=True), change(1, "ended", 3)], 3),
])
def test_what_failed_first_is_kept(messages: list[Any], first: object) -> None:
    desk = new_desk(3)
    for message in messages:
        desk.take(message, message["rank"], 1.0)
    assert (desk.first and desk.first.get("text", desk.first["status"])) == first


def test_those_who_wait_are_told_when_nobody_is_left() -> None:
    desk = new_desk(2)
    desk.take(change(0, "ended", 9, size=2, of=2), 0, 1.0)
    assert desk.due(5.0) == ("", [])
    desk.take(change(1, "ended", 70, size=2, of=2), 1, 1.0)
    assert desk.due(5.0)[1] == [(rank, {"answer": "over", "status": 9}) for rank in (0, 1)]
    assert desk.due(5.0)[1] == []


def test_a_start_is_in_vain_when_one_has_ended_without_joining() -> None:
    desk = new_desk(3, "starting")
    desk.take(change(1, "ended", joined=False), 1, 1.0)
    why = {"answer": "in vain", "why": "worker 1 ended without joining the others", "status": 0}
    assert desk.due(1.0)[1] == [(0, why), (2, why)]
    assert desk.due(1.0)[1] == []
    # Nobody has to be told of one that has failed: that ends the job.
    other = new_desk(3, "starting")
    other.take(change(1, "ended", 1, joined=False), 1, 1.0)
    assert other.due(1.0)[1] == []


def test_a_late_start_names_the_workers_that_have_not_arrived() -> None:
    desk = Desk()
    desk.take(change(0, "starting", size=4, of=4), 0, 1.0)
    desk.take(change(2, "running", size=4, of=4), 2, 1.0)
    desk.take(change(3, "joined", size=4, of=4), 3, 1.0)
    desk.take(report(0, "late", 0.0, missing=True), 0, 2.0)
    assert desk.due(2.0)[0] == ("[worker 0] late\n"
                               "[worker 0] worker 1 has not made its strategy, or has ended\n"
                               "[worker 0] worker 2 (process 102) has not made its strategy\n")


def test_the_job_ends_after_the_worker_whose_exit_status_counts() -> None:
    desk = new_desk(3)
    desk.take(report(1, "left", weak=True, ends=True), 1, 1.0)
    for rank in (0, 2):
        desk.take(report(rank, "left", weak=True), rank, 1.0)
    assert desk.due(1.0) == ("[workers 0-2] left\n", [(1, {"answer": "printed", "status": 70})])
    assert desk.due(1.1) == ("", [])
    desk.take(change(1, "ended", 3), 1, 1.2)
    assert desk.due(1.2) == ("", [(rank, {"answer": "printed", "status": 3}) for rank in (0, 2)])


def test_those_who_began_to_wait_later_are_late_with_the_first_one() -> None:
    desk = new_desk(3, "starting")
    desk.take(change(1, "running"), 1, 1.0)
    desk.take(report(0, "late", 1.0, missing=True), 0, 2.0)
    assert desk.due(2.0) == ("", [(2, {"answer": "late", "status": 70})])
    assert desk.due(2.1) == ("", [])
    desk.take(report(2, "late", 1.0, missing=True), 2, 2.2)
    missing = "[workers 0, 2] worker 1 (process 101) has not made its strategy\n"
    assert desk.due(3.0)[0] == "[workers 0, 2] late\n" + missing


def test_the_end_of_the_launcher_is_no_news_after_a_failure() -> None:
    desk = new_desk(3)
    for rank in range(3):
        desk.take(report(rank, "mpiexec died", label="launcher", if_first=True), rank, 1.0)
        desk.take(change(rank, "ended", 137, if_first=True), rank, 1.0)
    assert desk.due(1.0)[0] == "[launcher] mpiexec died\n"
    desk.take(report(3, "mpiexec died", label="launcher", if_first=True), 3, 1.1)
    assert desk.due(9.0) == ("", [(3, {"answer": "printed", "status": 70})])
    terminated = new_desk(3)
    for rank in range(3):
        terminated.take(report(rank, "ended by SIGTERM", status=143, if_first=True), rank, 1.0)
        terminated.take(change(rank, "ended", 143, if_first=True), rank, 1.0)
    assert (terminated.due(1.0)[0], terminated.status) == ("[workers 0-2] ended by SIGTERM\n", 143)
    other = new_desk(3)
    other.take(report(0, "KeyError"), 0, 1.0)
    other.take(report(1, "mpiexec died", label="launcher", if_first=True), 1, 1.0)
    assert other.due(1.3) == ("[worker 0] KeyError\n", [(rank, {"answer": "printed", "status": 70}) for rank in (0, 1)])


def test_why_a_worker_has_ended_is_said_though_others_miss_it_first() -> None:
    desk = new_desk(3)
    for rank in (0, 2):
        desk.take(report(rank, "worker 1 died", weak=True, dead=[1], wait=5.0), rank, 1.0)
    desk.take(report(1, "ended by SIGTERM", status=143, if_first=True), 1, 1.1)
    assert desk.due(1.1)[0] == "[workers 0, 2] worker 1 died\n[worker 1] ended by SIGTERM\n"
    # They have also missed it before its supervisor was seen to end, which is why the launcher ends others.
    killed = new_desk(3)
    killed.take(report(0, "worker 1 died", weak=True, dead=[1], wait=5.0), 0, 1.0)
    killed.has_failed()
    killed.take(report(2, "ended by SIGTERM", status=143, if_first=True), 2, 1.1)
    killed.is_gone(1)
    assert (killed.due(1.1)[0], killed.status) == ("[worker 0] worker 1 died\n", 70)


def test_what_others_miss_is_no_news_after_an_exception() -> None:
    desk = new_desk(3)
    desk.take(report(1, "KeyError", weak=False), 1, 1.0)
    desk.take(report(0, "worker 1 died", weak=True), 0, 1.0)
    assert desk.due(1.3)[0] == "[worker 1] KeyError\n"
    assert desk.status == 70


def test_the_next_process_takes_over_the_desk_of_one_that_is_gone() -> None:
    written: list[str] = []
    name = f"refdist.test.{os.getpid()}"
    first, second = Line(name, written.append), Line(name, written.append)
    first.become_desk()
    assert second.send(change(1, "running"))
    assert (first.work(), second.desk) == ([], None)
    assert first.desk is not None and set(first.desk.states) == {1}
    first.close()
    assert second.send(report(1, "lost", 0.0))
    assert [answer["answer"] for answer in second.work()] == ["printed"]
    assert (second.desk is not None, written) == (True, ["[worker 1] lost\n"])
    second.close()


def test_nothing_is_lost_when_many_workers_speak_at_once() -> None:
    # Linux keeps as few as 10 datagrams for one who has not read them (net.unix.max_dgram_qlen).
    written: list[str] = []
    name, size = f"refdist.test.{uuid.uuid4()}", 24
    desk = Line(name, written.append)
    states = desk.become_desk().states

    def speak(rank: int) -> None:
        line = Line(name, written.append)
        for state in ("running", "starting", "joined"):
            assert line.send(change(rank, state, size=size, of=size))
        for number in range(5):
            assert line.send(report(rank, f"warning {number} of {rank}", 0.0, status=0, warning=True))
        assert line.send({**report(rank, f"last line of {rank}", HANG), "size": size, "of": size})
        line.close()

    speakers = [threading.Thread(target=speak, args=(rank,)) for rank in range(size)]
    for speaker in speakers:
        speaker.start()
    while desk.work() or any(speaker.is_alive() for speaker in speakers):
        pass
    desk.work()
    assert {state["state"] for state in states.values()} == {"joined"} and len(states) == size
    text = "".join(written)
    assert all(f"[worker {rank}] last line of {rank}\n" in text for rank in range(size)), text
    assert text.count("warning") == 5 * size
    desk.close()


LIE = {"rank": 0, "size": 1, "of": 1, "text": "a lie", "wait": 0, "status": 1}
STRANGE = [b"", b"\xff", b"[" * 100_000, b"{}", b"[]", b"7", json.dumps(LIE).encode(),
           json.dumps({**LIE, "key": "another job"}).encode(), json.dumps({"answer": "over", "status": 1}).encode()]


@pytest.mark.parametrize("data", STRANGE, ids=lambda data: data[:30])
def test_what_does_not_come_from_the_job_is_not_read(data: bytes) -> None:
    written: list[str] = []
    key = uuid.uuid4().hex
    line, other = Line(key, written.append), Line(key, written.append)
    line.become_desk()
    for receiver in (line, other):
        for end in receiver.sockets():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(data, end.getsockname())
    assert (line.work(), other.work(), written) == ([], [], [])
    assert other.send(report(1, "lost", 0.0))
    line.work()
    assert ([answer["answer"] for answer in other.work()], written) == (["printed"], ["[worker 1] lost\n"])
    line.close()


MESSAGES = {"a report": report(1, "lost", 0.0, task=["worker", 1], label="launcher", several="lost"),
            "a warning": report(1, "look", 0.0, task=["worker", 1], label="launcher", warning=True),
            "a state": change(1, "joined", task=["worker", 1], label="launcher")}


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_is_no_message_of_a_supervisor_is_not_read(kind: str) -> None:
    written: list[str] = []
    key = uuid.uuid4().hex
    line, other = Line(key, written.append), Line(key, written.append)
    line.become_desk()
    message = MESSAGES[kind]
    for name in message.keys() - {"text", "warning"}:
        for wrong in (None, [], 1 if isinstance(message[name], str) else "one"):
            assert other.send({**message, name: wrong})
            line.work()
    assert (line.desk is not None and line.desk.states, written) == ({}, [])
    line.close()


def test_what_a_job_may_leave_is_heard_from_its_supervisors_alone(tmp_path: Path) -> None:
    key = uuid.uuid4().hex
    left, line = Left(key), Line(key, lambda _: None)
    strange = [json.dumps({"memory": "", "topology": str(tmp_path), "key": "another job"}).encode(),
               json.dumps({"memory": 1, "topology": str(tmp_path), "key": key}).encode()]
    for data in (*STRANGE, *strange):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(data, left._socket.getsockname())
        left.hear()
    assert left.files == set()
    (tmp_path / "of the job").touch()
    line.leaves("", str(tmp_path / "of the job"))
    left.remove()
    assert [path.name for path in tmp_path.iterdir()] == []
    left.close()
    line.leaves("", "nobody hears it")
    line.close()


def test_what_another_user_sends_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    line = Line(uuid.uuid4().hex, written.append)
    line.become_desk()
    assert line.send(report(1, "a lie", 0.0))
    user = os.getuid()
    monkeypatch.setattr(reports.os, "getuid", lambda: user + 1)
    assert (line.work(), written) == ([], [])
    line.close()


def test_a_process_dies_with_its_parent() -> None:
    inner = ("import os, signal, sys; from refdist.backends.mpi import processes\n"
             "parent = os.getpid()\n"
             "if os.fork() == 0:\n"
             "    processes.die_with(parent, signal.SIGKILL)\n"
             "    print(os.getpid(), flush=True); signal.pause()\n"
             "signal.pause()\n")
    with subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        ends = processes.opened(child)
        assert ends is not None and processes.alive(child)
        parent.kill()

        assert select.select([ends], [], [], 60)[0]
        os.close(ends)


def test_a_process_without_a_supervisor_is_killed_when_its_start_takes_too_long() -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as waits:
        done = subprocess.run([sys.executable, "-I", "-S", alone.__file__, "limit", str(waits.pid), "0.1", "ps 2"],
                              capture_output=True, text=True, timeout=HANG)
        assert (waits.wait(), done.returncode) == (-9, 0)
    assert done.stderr == ("[ps 2] [RD01] starting: not all workers arrived within 0.1 s. "
                           "Look at why the others did not start.\n")


def test_what_supervisors_import_is_of_the_standard_library() -> None:
    inner = ("import runpy, sys\n"
             f"sys.argv = [{alone.__file__!r}, 'limit', '99999999', '0', '0']\n"
             f"runpy.run_path({alone.__file__!r}, run_name='__main__')\n"
             "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'})\n")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", inner], capture_output=True, text=True, timeout=HANG)
    assert (done.stdout.split(), done.stderr) == (["refdist"], "")


def test_only_the_shared_memory_of_the_job_is_removed() -> None:
    # The name that MPICH 5.0 gave to the memory of the job of this name.
    assert processes.memory_of_mpich("kvs_14693_0_533113358_vm") == "mpich_*_2c2361f9_*"
    own, other = (processes.memory_of_mpich(uuid.uuid4().hex) for _ in range(2))
    folder, others = (Path(processes.folder_for_ucx(names, 3)) for names in (own, other))
    files = [Path("/dev/shm", own.replace("*", "shm", 1).replace("*", "0")), folder / "ucx_shm_posix_1"]
    for file in files:
        file.touch()
    for names in (processes.memory_of_mpich(""), processes.memory_of_openmpi(os.getpid())):  # OpenMPI has none here
        assert processes.folder_for_ucx(names, 3) == ""
        processes.remove_shared_memory(names)
    assert all(file.exists() for file in files)
    processes.remove_shared_memory(own)
    assert others.exists() and not any(path.exists() for path in (*files, folder))
    processes.remove_shared_memory(others.name)
    assert not others.exists()
