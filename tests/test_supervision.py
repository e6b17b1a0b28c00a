"""What the processes that watch a job are given: closed streams, ignored signals, names without words, full pipes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, cast

import pytest
from limits import HANG
from workers import moments

from refdist import errors, journal
from refdist.backends.mpi import alone, failure, last_words, pipes, pmi, processes, supervised
from refdist.backends.mpi.last_words import LastWords
from refdist.backends.mpi.launch import _Launch
from refdist.backends.mpi.messages import SocketChannel, _check_names, _connected
from refdist.backends.mpi.reports import Desk
from refdist.backends.mpi.start import limit
from refdist.backends.mpi.supervisor import (
    DEFAULT_TIMEOUT,
    LAUNCHER_VARIABLE,
    TIMEOUT_VARIABLE,
    Supervisor,
    seconds_to_wait,
)
from refdist.backends.mpi.transport import MPITransport
from refdist.workers.channels import Gone
from refdist.workers.launcher import SUPERVISED_VARIABLE, Task

ROOT = Path(__file__).parents[1]
PYTHON_ALONE = [sys.executable, "-I", "-S", alone.__file__]


def supervise(script: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script in a worker that has a supervisor and nothing above it."""
    return subprocess.run([*PYTHON_ALONE, "supervise", sys.executable, "-I", "-c", script], timeout=HANG,
                          stdout=subprocess.PIPE, text=True, **{"stderr": subprocess.PIPE, **more})


def broken_pipe() -> IO[bytes]:
    """A pipe that nobody reads any more."""
    here, there = os.pipe()
    os.close(here)
    return open(there, "wb")


def in_a_child(work: Callable[[], object]) -> int:
    """The exit status of a process in which this is done."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_worker_is_named_that_a_signal_without_a_name_has_killed() -> None:
    done = supervise("import os; os.kill(os.getpid(), 40)")
    assert (done.returncode, done.stderr) == (
        168, "[worker 0] was killed by signal 40 before it joined the others\n")


def without_source(printed: str) -> str:
    """Without the lines of a `-c` program in a traceback, which Python 3.13 shows and others do not."""
    return re.sub(r"(?m)^(\[worker 0\] )?    .*\n", "", printed)


ENDS_EARLY = "[worker 0] ended with exit status 1 before it joined the others\n"


@pytest.mark.parametrize(("script", "says"), [
    ("raise KeyError('May')", "[worker 0] Traceback (most recent call last):\n"
     "[worker 0]   File \"<string>\", line 1, in <module>\n[worker 0] KeyError: 'May'\n" + ENDS_EARLY),
    ("x = (", "[worker 0]   File \"<string>\", line 1\n[worker 0]     x = (\n[worker 0]         ^\n"
     "[worker 0] SyntaxError: '(' was never closed\n" + ENDS_EARLY),
    ("import sys; print('of May', file=sys.stderr); raise KeyError('May')", "of May\n"
     "[worker 0] Traceback (most recent call last):\n[worker 0]   File \"<string>\", line 1, in <module>\n"
     "[worker 0] KeyError: 'May'\n" + ENDS_EARLY),
    ("import sys; sys.exit('usage: with a file')", "usage: with a file\n" + ENDS_EARLY)])
def test_the_traceback_of_a_worker_without_a_strategy_is_part_of_its_report(script: str, says: str) -> None:
    done = supervise(script)
    assert (done.returncode, without_source(done.stderr)) == (1, without_source(says))


GOES_ON = """
import os, sys, time, traceback
try:
    {}["May"]
except KeyError:
    traceback.print_exc()
    print("of May", file=sys.stderr)
"""
OF_MAY = ('Traceback (most recent call last):\n  File "<string>", line 4, in <module>\nKeyError: \'May\'\nof May\n')


@pytest.mark.parametrize(("ends", "status", "more"), [
    ("", 0, ""), ("os.kill(os.getpid(), 9)", 137, "[worker 0] was killed by SIGKILL before it joined the others\n")])
def test_a_traceback_with_which_nothing_ends_is_passed_on(ends: str, status: int, more: str) -> None:
    done = supervise(GOES_ON + ends)
    assert (done.returncode, without_source(done.stderr)) == (status, OF_MAY + more)


def test_a_traceback_is_passed_on_when_a_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, now = list[bytes](), 0.0
    monkeypatch.setattr("refdist.backends.mpi.last_words.time.monotonic", lambda: now)
    words = LastWords(passed.append)
    writing, reading = os.dup(words._there), words.source()
    for text in (b"one\n", b"two, Traceback (most recent call last):\n", b"three\nTraceback (most recent call last):\n",
                 b"  File 4\n"):
        os.write(writing, text)
        assert words.passed() == text
    assert passed == [b"one\n", b"two, Traceback (most recent call last):\n", b"three\n"]
    assert words.next() == last_words.HOLD_SECONDS
    words.flush()
    assert passed[3:] == [b"Traceback (most recent call last):\n  File 4\n"] and words.next() == float("inf")
    os.write(writing, b"Traceback (most recent call last):\n" + b"x" * 40_000)
    words.drain()
    assert len(passed) == 5 and words.taken() == "", "no report has room for it"
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_nothing_else_is_opened_in_place_of_a_closed_stream(stream: int) -> None:
    opens = f"import os, socket; assert socket.socket().fileno() > 2; assert os.get_inheritable({stream})"
    done = supervise(opens, preexec_fn=lambda: os.close(stream))
    assert done.returncode == 0, done.stderr


def test_how_a_worker_has_ended_is_known_where_its_end_is_ignored() -> None:
    done = supervise("import os; os._exit(3)",
                     preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stderr) == (3, "[worker 0] ended with exit status 3 before it joined the others\n")


def test_a_program_that_ignores_the_ends_of_its_children_gets_a_supervisor() -> None:
    def start() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        assert supervised._threads() >= 1
        processes.outlived(lambda _: None).send(processes.OVER)

    assert in_a_child(start) == 0


@pytest.mark.parametrize("letter", ["x", "ü", "\N{GRINNING FACE}", "\n", "\udc80"])
def test_a_long_text_fits_into_a_message_in_every_alphabet(letter: str) -> None:
    text = supervised._end(letter * 150_000 + "the end")
    assert len(json.dumps(text)) <= 100_000 < len(json.dumps(3 * text)) and text.endswith("the end")
    assert supervised._end("short") == "short"


class Full(io.StringIO):
    """A stream on a full disk."""

    def flush(self) -> None:
        raise OSError("No space left on device")


@pytest.mark.parametrize("stream", [None, Full()])
def test_an_exception_is_reported_whatever_has_become_of_the_output(
        stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = list[Any]()
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr(journal, "tell", lambda _: Full().flush())
    monkeypatch.setattr(failure, "_report", lambda *words: reported.append(words[1]))
    handler = signal.getsignal(signal.SIGINT)
    failure.end_job_on_exceptions("worker 1", reported.append)
    sys.excepthook(KeyError, KeyError("the rows of May are missing"), None)
    signal.signal(signal.SIGINT, handler)
    assert "the rows of May are missing" in reported[0] and reported[1:] == [70]


def test_a_job_ends_where_nobody_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def unheard() -> None:
        os.close(2)
        assert not failure._report("worker 1", "a text", False)

    assert in_a_child(unheard) == 0
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as waits:
        with broken_pipe() as unread:
            subprocess.run([*PYTHON_ALONE, "limit", str(waits.pid), "0.1", "ps 2"], timeout=HANG, stderr=unread)
        waits.wait(HANG)


def test_what_a_worker_forks_is_no_worker(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    reported, seen = list[Any](), list[object]()
    here, there = socket.socketpair()
    monkeypatch.setattr(supervised, "_supervisor", there)
    monkeypatch.setattr("sys.excepthook", lambda kind, *_: seen.append(kind))
    handler = signal.getsignal(signal.SIGINT)
    failure.end_job_on_exceptions("worker 1", reported.append)
    signal.signal(signal.SIGINT, handler)
    transport = object.__new__(MPITransport)
    transport._process = os.getpid()

    def forked() -> None:
        sys.excepthook(KeyError, KeyError("a child's own"), None)
        supervised.tell("finished")
        transport.finish()
        assert (reported, seen) == ([], [KeyError])

    assert in_a_child(forked) == 0
    here.setblocking(False)
    with pytest.raises(BlockingIOError):
        here.recv(100)


def test_a_worker_does_not_start_mpi_while_its_supervisor_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    # It may have asked MPICH's launcher something, over the line that MPI uses, and not read the answer yet.
    here, there = socket.socketpair()
    states = ["T", "T", "S"]
    monkeypatch.setattr(supervised, "_supervisor", there)
    monkeypatch.setattr(supervised, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(processes, "facts", lambda _: processes.Facts("python", states.pop(0), 1, 1, False, 0))
    with here, there, supervised.limited_start(60.0):
        assert states == []


def full_pipe() -> tuple[IO[bytes], IO[bytes]]:
    """Both ends of a pipe that takes nothing more."""
    here, there = map(os.fdopen, os.pipe(), ("rb", "wb"))
    os.set_blocking(there.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(there.fileno(), b"x" * 4096)
    return here, there


@pytest.mark.parametrize("blocking", [True, False])
def test_a_report_waits_for_a_reader_and_comes_whole(blocking: bool) -> None:
    here, there = full_pipe()
    os.set_blocking(there.fileno(), blocking)
    text = b"a line\n" * 20_000
    writer = threading.Thread(target=pipes.put, args=(there.fileno(), text, lambda: False))
    with here:
        writer.start()
        os.set_blocking(here.fileno(), False)
        came = b""
        while writer.is_alive() or not came.endswith(text):
            with contextlib.suppress(BlockingIOError):
                came += os.read(here.fileno(), 1 << 16)
        there.close()
    assert came.lstrip(b"x") == text


WAITS = """
import os, signal, sys
from refdist.backends.mpi import logs, processes, supervisor
from refdist.workers.channels import Gone
from refdist.workers.launcher import SUPERVISED_VARIABLE, Task
woken = processes.woken_by(*processes.ENDING)
print(flush=True)
if sys.argv[1] == "report":
    supervisor.write("a report")
else:
    printed = logs.Printed(Task("worker", 1), "", True)
    os.dup2(2, 1)
    printed._show(1, b"a line\\n")
"""


@pytest.mark.parametrize("what", ["report", "line"])
def test_who_is_told_to_end_does_not_wait_for_a_reader(what: str) -> None:
    here, there = full_pipe()
    os.set_blocking(there.fileno(), True)
    with here, there, subprocess.Popen([sys.executable, "-c", WAITS, what], stdout=subprocess.PIPE, stderr=there,
                                       cwd=ROOT) as writes:
        assert writes.stdout is not None and writes.stdout.readline()
        writes.terminate()
        assert writes.wait(HANG) == 0


def test_a_job_that_a_worker_starts_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_VARIABLE, "1 a key")
    assert Supervisor()._launched
    monkeypatch.setenv(SUPERVISED_VARIABLE, "5 7")  # in the environment of a worker, and of what that starts
    assert not Supervisor()._launched


LEAVES_A_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"


def test_what_a_program_leaves_running_does_not_keep_the_job(tmp_path: Path) -> None:
    done = supervise(LEAVES_A_CHILD, env={**os.environ, LAUNCHER_VARIABLE: f"{os.getpid()} {tmp_path}"})
    assert (done.returncode, done.stderr) == (0, "")
    assert not processes.alive(int(done.stdout))


@pytest.mark.parametrize("text", ["nan", "0", "-5", "soon"])
def test_a_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, text)
    with pytest.raises(errors.RefdistError, match=rf"\[RD34\] environment variable REFDIST_TIMEOUT='{text}'"):
        limit(None)
    assert seconds_to_wait() == DEFAULT_TIMEOUT
    assert limit(5.0) == 5.0


def test_a_limit_of_years_is_one() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as source:
        SocketChannel(Connection(source.detach()), float("inf")).close()


def test_messages_arrive_whole_however_they_are_cut() -> None:
    messages = [b"", b"a", bytes(range(256)) * 60, b"b" * 1_000_000, b"", b"c" * 16_385, b"d"]
    sending, cutting = socket.socketpair()
    joining, receiving = socket.socketpair()
    sender = SocketChannel(Connection(sending.detach()), 60.0)
    receiver = SocketChannel(Connection(receiving.detach()), 60.0)

    def cut() -> None:
        for size in itertools.cycle([1, 3, 8, 100, 70_000]):
            part = cutting.recv(size)
            if not part:
                return joining.close()
            joining.sendall(part)

    cutter = threading.Thread(target=cut, daemon=True)
    with cutting:
        sending_all = threading.Thread(target=lambda: [sender.send(message) for message in messages], daemon=True)
        sending_all.start()
        sending_all.join(0.01)  # so that some of them are there together
        cutter.start()
        assert [receiver.receive() for _ in messages] == messages
        sender.close()
        with pytest.raises(Gone, match="its process is gone"):
            receiver.receive()
        cutter.join(HANG)


def test_a_program_s_own_limit_for_sockets_is_none_for_messages() -> None:
    here, there = socket.socketpair()
    socket.setdefaulttimeout(0.001)
    try:
        receiver, sender = (SocketChannel(Connection(end.detach()), 60.0) for end in (here, there))
    finally:
        socket.setdefaulttimeout(None)
    later = threading.Timer(0.1, sender.send, [b"late"])
    later.start()
    assert receiver.receive() == b"late"
    later.join(HANG)


def test_the_other_end_of_a_channel_that_another_thread_has_closed_is_gone() -> None:
    here, there = (SocketChannel(Connection(end.detach()), 60.0) for end in socket.socketpair())
    here.close()
    for call in (here.answer, here.receive, lambda: here.send(b"")):
        with pytest.raises(Gone, match="its process is gone"):
            call()
    there.close()


def test_a_message_that_ends_in_the_middle_is_none() -> None:
    here, there = socket.socketpair()
    receiver = SocketChannel(Connection(here.detach()), 60.0)
    SocketChannel(Connection(os.dup(there.fileno())), 60.0).send(b"whole")
    there.sendall(struct.pack("!Q", 5) + b"half")
    there.close()
    assert receiver.receive() == b"whole"
    with pytest.raises(Gone, match="its process is gone"):
        receiver.receive()


@pytest.mark.parametrize("message", [b"short", b"long" * 100_000])
def test_an_interrupt_at_any_moment_leaves_messages_whole(message: bytes) -> None:
    def is_interrupted_at(number: int, sends: bool, again: bool) -> bool:
        here, there = socket.socketpair()
        sender, receiver = (SocketChannel(Connection(end.detach()), 60.0) for end in (here, there))
        received: list[bytes] = []

        def send(*messages: bytes) -> None:
            for each in messages:
                sender.send(each)

        def receive_all() -> None:
            while received[-1:] != [b"last"]:
                received.append(receiver.receive())

        peer = threading.Thread(target=receive_all) if sends else threading.Thread(target=send, args=(message, b"last"))
        peer.start()
        try:
            interrupted = moments.interrupted(number, functools.partial(send, message) if sends else receive_all,
                                              moments.interrupt)
        except KeyboardInterrupt:
            interrupted = True
            if again:
                send(message)
        send(b"last") if sends else receive_all()
        peer.join(HANG)
        assert received == [message, b"last"] or (sends and interrupted and not again and received == [b"last"])
        return interrupted

    for sends, again in ((True, False), (True, True), (False, False)):
        assert next(number for number in itertools.count() if not is_interrupted_at(number, sends, again)) > 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("sends", [True, False])
def test_an_interrupt_in_the_middle_of_a_message_leaves_it_whole(sends: bool, error: type[BaseException]) -> None:
    message = b"long" * 1_000_000  # more than fits into a socket
    here, there = socket.socketpair()
    channel = SocketChannel(Connection(here.detach()), 60.0)

    def is_in_the_middle() -> bool:
        if sends:
            return bool(there.recv(1, socket.MSG_PEEK))
        return fcntl.ioctl(there, termios.TIOCOUTQ, bytes(4)) == bytes(4)  # all that was sent has been read

    def interrupt() -> None:
        while not is_in_the_middle():
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise error

    if not sends:
        there.sendall(struct.pack("!Q", len(message)) + message[:100])
    before = signal.signal(signal.SIGUSR1, handler)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(error):
            channel.send(message) if sends else channel.receive()
        interrupter.join(HANG)
    finally:
        signal.signal(signal.SIGUSR1, before)
    if sends:
        later = threading.Thread(target=channel.send, args=(b"last",))
        later.start()
        receiver = SocketChannel(Connection(there.detach()), 60.0)
        assert [receiver.receive(), receiver.receive()] == [message, b"last"]
    else:
        later = threading.Thread(target=there.sendall, args=(message[100:],))
        later.start()
        assert channel.receive() == message
    later.join(HANG)


def test_strangers_that_take_all_files_do_not_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    came = [OSError(24, "Too many open files"), "a worker"]
    taken = list[object]()

    class Listener:
        def accept(self) -> tuple[object, object]:
            if not came:
                raise KeyboardInterrupt  # the end of the test
            answer = came.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer, None

    class Thread:
        def __init__(self, target: Callable[..., object], args: tuple[object, ...], **_: object) -> None:
            taken.append(args[0])

        def start(self) -> None:
            pass

    monkeypatch.setattr("refdist.backends.mpi.pmi.threading.Thread", Thread)
    with pytest.raises(KeyboardInterrupt):
        pmi.Server(cast(Any, Listener()), "", {"worker 0": "a:1"}).serve(os.getpid())
    assert taken == [os.getpid(), "a worker"]


STOPS = """
import contextlib, os, signal, sys
from pathlib import Path
launcher = os.environ["REFDIST_LAUNCHER"].split()[0]
words = Path(f"/proc/{launcher}/cmdline").read_bytes()
for path in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError):  # it has ended
        if path.name != launcher and (path / "cmdline").read_bytes() == words:
            print(path.name)
            os.kill(int(path.name), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_a_job_ends_though_the_process_is_stopped_that_outlives_the_launch_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STOPS)
    stopped = tmp_path / "stopped"
    with stopped.open("w") as output:  # a pipe would be open as long as the process that is stopped
        done = subprocess.run([sys.executable, "-m", "refdist", "launch", "-n", "1", str(script)], timeout=HANG,
                              cwd=ROOT, stdout=output)
    pids = [int(pid) for pid in stopped.read_text().split()]
    for pid in pids:
        processes.kill(pid)
    assert (done.returncode, len(pids)) == (0, 1)


@pytest.mark.parametrize("order", ["before", "after", "missed"])
def test_a_supervisor_that_was_killed_is_named_though_the_others_are_told_to_end(
        order: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    # As OpenMPI's mpiexec tells them.
    run = object.__new__(_Launch)
    run._desk, run._size, run._cause, run._over, run._is_proxy = Desk(), 2, "", False, False
    run._seen = {0, 1}
    monkeypatch.setattr(_Launch, "_look_at_mpiexec", lambda _: None)
    report = {"size": 2, "of": 2, "status": 143, "if_first": True, "rank": 0, "text": "ended by SIGTERM", "wait": 0.0}
    if order == "before":
        run._desk.take(report, None, 0.0)
    elif order == "missed":
        run._desk.take({**report, "if_first": False, "weak": True, "text": "worker 1 died", "wait": 5.0}, None, 0.0)
    run._supervisor_died({"rank": 1, "of": 2, "state": "joined", "supervisor": 7, "proxy": 0}, is_first=True)
    if order == "after":
        run._desk.take(report, None, 0.0)
    assert run._desk.due(1.0)[0] == ""
    assert (run._desk.cause or run._lost(143)) == 137
    assert capfd.readouterr().err == ("[launcher] the supervisor of worker 1 (process 7) was killed, and all workers "
                                      "have ended with it\n")


def test_a_task_on_a_host_without_an_address_is_named() -> None:
    says = r"RD01\] starting: ps 0 is on the host nowhere\.invalid, and \S+ knows no address of that: .*/etc/hosts"
    with pytest.raises(errors.RefdistError, match=says):
        _connected(Task("ps", 0), ("nowhere.invalid", 1), b"key", Task("chief", 0))


def test_hosts_of_one_name_cannot_have_parameter_servers() -> None:
    _check_names(["one", "two"])
    with pytest.raises(errors.RefdistError, match=r"RD17\] starting: 2 hosts have the name one\. Give each"):
        _check_names(["one", "two", "one"])
