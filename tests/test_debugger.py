"""`refdist.breakpoint`, as somebody at a terminal uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import refdist

HANG = 120
PROGRAM = """import refdist
def step():
    context = refdist.get_replica_context()
    part = context.replica_id_in_sync_group
    refdist.breakpoint({which})
    total = context.all_reduce("SUM", float(part))
    done = total + part
    return done
def program():
    strategy = {strategy}
    print(strategy.run(step))
{start}
"""
MIRRORED = {"strategy": "refdist.MirroredStrategy([f'GPU:{i}' for i in range(4)])", "start": "program()"}
WORKERS = {"strategy": "refdist.MultiWorkerMirroredStrategy()", "start": "refdist.simulate_workers(program, 2, 2)"}


def output_of(tmp_path: Path, commands: str, which: str, strategy: str, start: str) -> str:
    (tmp_path / "a.py").write_text(PROGRAM.format(which=which, strategy=strategy, start=start))
    done = subprocess.run([sys.executable, tmp_path / "a.py"], input=commands, capture_output=True, text=True,
                          timeout=HANG, cwd=Path(refdist.__file__).parents[1])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_stops_in_one_replica_and_next_goes_over_a_collective(tmp_path: Path) -> None:
    steps = 2 if sys.version_info >= (3, 13) else 1  # from 3.13 on pdb stops at the call of `breakpoint` itself
    output = output_of(tmp_path, "p part\n" + "next\n" * steps + "p total\ncontinue\n", "replica=2", **MIRRORED)
    assert output.count("(Pdb replica 2) ") == 3 + steps and output.count("(Pdb") == 3 + steps
    assert "a.py(6)step()" in output and "a.py(7)step()" in output and "array(6., dtype=float32)" in output
    assert output.rstrip().endswith("scalar 9.\n}")


def test_it_stops_in_each_replica_that_comes_there(tmp_path: Path) -> None:
    output = output_of(tmp_path, "continue\n" * 4, "", **MIRRORED)
    assert [output.count(f"(Pdb replica {i}) ") for i in range(4)] == [1] * 4


def test_it_says_which_worker(tmp_path: Path) -> None:
    output = output_of(tmp_path, "p part\ncontinue\n", "replica=3", **WORKERS)
    assert output.count("(Pdb worker 1, replica 3) ") == 2


def test_outside_replicas_one_replica_s_breakpoint_is_passed_over() -> None:
    refdist.breakpoint(replica=0)


@pytest.mark.parametrize(("replica", "code"), [(2, "RD34"), (-1, "RD34"), ("2", "RD25"), (1.5, "RD25")])
def test_a_replica_that_is_not_there_is_an_error(replica: object, code: str) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with pytest.raises(refdist.errors.RefdistError) as error:
        strategy.run(lambda: refdist.breakpoint(replica=replica))  # type: ignore[arg-type]
    assert error.value.code == code
