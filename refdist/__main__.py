"""`python -m refdist run --workers 4 script.py`: a program of several workers, simulated in this process.  Without
`--workers`, a process that TF_CONFIG makes one of several workers is that one.

`python -m refdist launch -n 4 script.py`: in several processes, started by mpiexec; with `--max-restarts 3` again from
its last checkpoint when it has lost a worker.

`python -m refdist launch --workers 4 --ps 2 script.py`: a coordinator, workers and parameter servers, each a process.

`python -m refdist run --tensorflow script.py`: a program written for TensorFlow, or a notebook, without TensorFlow.

`python -m refdist show run.jsonl`: the page of a recording, in a browser.

`python -m refdist explore script.py`: an asynchronous program under every schedule.  Exit status 0: proved; 1: a fault
was found; 3: neither; 130: interrupted.  With `--choices`, one schedule: 0 or 1.

`python -m refdist compare script.py`: a program at several numbers of replicas.  Exit status 0: it trains the same;
1: it does not; 2: wrong arguments; 3: a run failed, or was stopped at the limit; 130: interrupted.
"""

from __future__ import annotations

from refdist import interrupts

if __name__ == "__main__":
    interrupts.end()

import argparse
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import NoReturn

import refdist
from refdist.backends.mpi import alone, hosts
from refdist.backends.mpi.logs import LABEL_VARIABLE
from refdist.backends.mpi.processes import ENDING
from refdist.backends.mpi.supervisor import TIMEOUT_VARIABLE
from refdist.conformance.readers import may_go
from refdist.workers.launcher import RESTARTS_VARIABLE, SERVERS_VARIABLE


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status, the largest one of all workers."""
    with may_go():
        return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m refdist", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"refdist {refdist.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("run", help="run a script once per worker, in lock step, in one process")
    run.add_argument("--workers", type=int, help="how many workers run the script, for "
                     "MultiWorkerMirroredStrategy (default 2; 1 with --tensorflow; where TF_CONFIG has several, this "
                     "process is the one that it says); with MirroredStrategy each would train a model, so write 1")
    run.add_argument("--replicas-per-worker", type=int,
                     help="simulated GPUs of each (default those of REFDIST_DEVICES)")
    launch = commands.add_parser("launch", help="run a script in several processes, started and watched")
    launch.add_argument("-n", "-np", type=int, dest="processes",
                        help="how many processes (default 2), all of them workers")
    launch.add_argument("--ps", type=int, default=0, help="how many parameter servers, beside a coordinator")
    launch.add_argument("--workers", type=int, help="how many workers they have (default 2)")
    launch.add_argument("--max-restarts", type=int, default=0, metavar="N",
                        help="start the job again up to N times when it has lost a worker (default 0)")
    launch.add_argument("--min-workers", type=int, metavar="N", help="start it again with as few as N workers, where "
                        "hosts are gone (default: only with all)")
    launch.add_argument("--hosts", metavar="HOST:N,...", help="start N processes on each of these hosts (default: on "
                        "this one, or in a job of Slurm on its hosts)")
    launch.add_argument("--hostfile", type=Path, metavar="FILE", help="the same hosts in a file, one on each line")
    launch.add_argument("--timeout", type=float, metavar="SECONDS", help="how long processes wait for each other "
                        "(default REFDIST_TIMEOUT, or 300)")
    launch.add_argument("-l", "--label", action="store_true", help="print the name of the worker before each line")
    launch.add_argument("--log-dir", type=Path, metavar="FOLDER", help="also write what each worker prints into files, "
                        "FOLDER/attempt_0/worker-1/stdout.log and stderr.log")
    explore = commands.add_parser("explore", help="run an asynchronous program under every schedule that matters")
    explore.add_argument("--budget", default="20s", help='how long, such as "2min" (default 20s)')
    explore.add_argument("--faults", metavar="FAULTS", help="what else goes wrong, such as 'any worker, once'")
    explore.add_argument("--max-staleness", type=int, metavar="N",
                         help="how many updates may lie between a function's read of a variable and its write")
    explore.add_argument("--orders", action="store_true", dest="replica_orders",
                         help="explore the order of replicas before each rendezvous")
    explore.add_argument("--choices", metavar="N,N,...", help="run this one schedule, and show it")
    explore.add_argument("--record", type=Path, metavar="FILE", help="with --choices: record the run in this file")
    show = commands.add_parser("show", help="show a recording as a page, in a browser where there is one")
    show.add_argument("recording", type=Path, help="what --record, REFDIST_RECORD or Recording.save has written")
    compare = commands.add_parser("compare", help="run a program at several numbers of replicas")
    compare.add_argument("--replicas", default="1,2,4", metavar="N,N,...", dest="counts",
                         help="at which numbers of replicas (default 1,2,4); all are compared with the first")
    compare.add_argument("--workers", type=int, default=1, help="also on so many simulated workers")
    compare.add_argument("--orders", type=int, default=1, help="in how many other orders of replicas (default 1)")
    compare.add_argument("--global-batch", type=int, metavar="ROWS",
                         help="hold this batch where the program multiplies by num_replicas_in_sync")
    compare.add_argument("--limit", type=float, default=60.0, help="seconds that a run may take (default 60)")
    for command in (run, launch):
        command.add_argument("--record", type=Path, metavar="FILE", help="record the program in this file")
    for command, nargs in ((run, argparse.REMAINDER), (launch, argparse.REMAINDER), (explore, "*"), (compare, "*")):
        command.add_argument("--tensorflow", action="store_true",
                             help="let `import tensorflow` of the program find refdist.tf; it may be a notebook")
        command.add_argument("script", type=Path, help="the program")
        given = "what it is given" + "; after -- whatever it is" * (nargs == "*")
        command.add_argument("arguments", nargs=nargs, help=given).required = False
    words = sys.argv[1:] if arguments is None else arguments
    # argparse takes what follows "--" for arguments of the parser above, too.
    end = words.index("--") if words[:1] in (["compare"], ["explore"]) and "--" in words else len(words)
    options = parser.parse_args(words[:end])
    if "recording" in options:
        return _show(options.recording)
    options.arguments += words[end + 1:]
    if not options.script.is_file():
        parser.error(f"there is no file {options.script}")
    if "budget" in options and options.record and options.choices is None:
        parser.error("write --record with --choices, which say which run is recorded")
    if "processes" in options:
        if options.ps < 0 or (options.processes if options.ps else options.workers) is not None:
            parser.error("write -n for workers alone, or --workers and --ps")
        for name, count in (("-n", options.processes), ("--workers", options.workers)):
            if count is not None and count < 1:
                parser.error(f"{name} is {count}; write how many workers are started, 1 or more")
        if options.timeout is not None and not options.timeout > 0:
            parser.error(f"--timeout is {options.timeout:g}; write a number of seconds above 0")
        if options.max_restarts < 0:
            parser.error(f"--max-restarts is {options.max_restarts}; write how often a lost job is started again")
        try:
            wanted = _wanted(options)
        except (ValueError, OSError) as error:
            parser.error(str(error))
        _launch(options, wanted)
    for name in ("workers", "replicas_per_worker"):
        count = vars(options).get(name)
        if count is not None and count < 1:
            parser.error(f"--{name.replace('_', '-')} is {count}; write 1 or more")
    # Not for a launch, which needs no NumPy; and while an interrupt still ends this process without a traceback.
    from refdist import missing
    from refdist.insight import explorer
    from refdist.tf import programs
    from refdist.tf.stand_in import install

    interrupts.are_raised()
    if "counts" in options:
        return _compare(options)

    def script() -> None:
        if options.tensorflow:
            programs.run(options.script)
            return
        try:
            runpy.run_path(os.path.abspath(options.script), run_name="__main__")
        except ModuleNotFoundError as error:
            missing.name_the_option(error)
            raise

    def program() -> int:
        try:
            script()
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                return ended.code or 0
            print(ended.code, file=sys.stderr)
            return 1
        return 0

    before = sys.argv, sys.path[:]
    sys.argv = [str(options.script), *options.arguments]
    sys.path.insert(0, str(options.script.parent))
    try:
        if options.tensorflow:
            install()
        if "budget" in options:
            return _explore(options, script, explorer.replay)
        if options.workers is None and _is_one_of_several():
            if options.record:
                parser.error("TF_CONFIG says that this is one of several processes; write REFDIST_RECORD=FILE before "
                             "each command, in place of --record")
            devices = {} if options.replicas_per_worker is None else {"gpu": options.replicas_per_worker}
            with refdist.config.temporary_devices(**devices) if devices else nullcontext():
                return program()
        with refdist.insight.record_to(options.record) if options.record else nullcontext():
            workers = options.workers
            if workers is None:
                workers = 1 if options.tensorflow else 2
            return max(refdist.simulate_workers(program, workers, options.replicas_per_worker))
    finally:
        sys.argv, sys.path[:] = before


def _is_one_of_several() -> bool:
    # Whether TF_CONFIG, of the user or of a launcher, makes this process a task of a cluster.
    try:
        cluster = refdist.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    except ValueError:
        return True  # the program says what is wrong with it
    return sum(map(cluster.num_tasks, cluster.jobs)) > 1


def _show(recording: Path) -> int:
    page = recording.with_suffix(".html")
    try:
        refdist.insight.load(recording).html(page)
    except (refdist.errors.RefdistError, OSError) as error:
        print(f"python -m refdist show: {error}", file=sys.stderr)
        return 2
    print(page)
    # Without a display Python may find a browser that takes the terminal.
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page.resolve().as_uri())
    return 0


def _explore(options: argparse.Namespace, script: Callable[[], None],
             replay: Callable[..., tuple[bool, str]]) -> int:
    try:
        if options.choices is not None:
            if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", options.choices):
                raise ValueError(f"--choices is {options.choices!r}; write numbers from 0, as a report has them: 0,0,1")
            choices = [int(choice) for choice in options.choices.split(",")]
            with refdist.insight.record_to(options.record) if options.record else nullcontext():
                right, text = replay(script, choices, faults=options.faults, max_staleness=options.max_staleness,
                                     orders=options.replica_orders)
            print(text)
            return 0 if right else 1
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # what a script prints, it prints each time
            report = refdist.explore(script, budget=options.budget, faults=options.faults,
                                     max_staleness=options.max_staleness, orders=options.replica_orders)
    except (ValueError, refdist.errors.InvalidTypeError) as error:
        print(f"python -m refdist explore: {error}", file=sys.stderr)
        return 2
    print(report)
    return 130 if report.interrupted else 1 if report.findings else 0 if report.proved else 3


def _compare(options: argparse.Namespace) -> int:
    try:
        counts = [int(count) for count in options.counts.split(",")]
        report = refdist.compare(options.script, replicas=counts, workers=options.workers, orders=options.orders,
                                 global_batch=options.global_batch, limit=options.limit, arguments=options.arguments,
                                 tensorflow=options.tensorflow)
    except ValueError as error:
        print(f"python -m refdist compare: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(report)
    return report.status


def _wanted(options: argparse.Namespace) -> dict[str, object]:
    """The options of the launch command as `backends.mpi.launch.main` takes them, without the command to start."""
    if options.hosts is not None and options.hostfile is not None:
        raise ValueError("write --hosts or --hostfile")
    listed = (hosts.of_list(options.hosts) if options.hosts is not None else
              hosts.of_file(options.hostfile.read_text()) if options.hostfile is not None else
              hosts.of_slurm(os.environ))
    room = sum(host.room for host in listed)
    size = (room or 2) if options.processes is None else options.processes
    if options.ps:
        size = 1 + (2 if options.workers is None else options.workers) + options.ps
    if listed and size > room:
        raise ValueError(f"the hosts {', '.join(map(str, listed))} have room for {room} processes, and {size} are "
                         "wanted")
    fewest = size if options.min_workers is None else options.min_workers
    if options.min_workers is not None:
        if options.ps:
            raise ValueError("--min-workers is for workers alone; those of --ps are lost one by one")
        if not 1 <= fewest <= size:
            raise ValueError(f"--min-workers is {fewest}; write 1 to {size}, the number of all workers")
        if not (listed and options.max_restarts):
            raise ValueError("--min-workers needs --max-restarts and several hosts, by --hosts, --hostfile or Slurm; "
                             "on this host a job is started again with all workers")
    return {"size": size, "restarts_at_most": options.max_restarts, "listed": listed, "fewest": fewest,
            "log_dir": "" if options.log_dir is None else os.path.abspath(options.log_dir)}


def _launch(options: argparse.Namespace, wanted: dict[str, object]) -> NoReturn:
    if options.ps:
        os.environ[SERVERS_VARIABLE] = str(options.ps)
    if options.timeout is not None:
        os.environ[TIMEOUT_VARIABLE] = f"{options.timeout:g}"
    if options.label:
        os.environ[LABEL_VARIABLE] = "1"
    if options.max_restarts:
        os.environ[RESTARTS_VARIABLE] = str(options.max_restarts)
    if options.record:
        from refdist.insight.environment import VARIABLE
        os.environ[VARIABLE] = str(options.record)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until that is ready for them
    # In place of this process, which has the threads of NumPy.
    python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    os.execv(sys.executable, [sys.executable, "-I", "-S", alone.__file__, "launch", json.dumps(wanted), *python,
                              *(["-m", "refdist.tf"] if options.tensorflow else []), str(options.script),
                              *options.arguments])


if __name__ == "__main__":
    sys.exit(main())
