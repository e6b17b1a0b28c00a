"""Random programs, run on two implementations, which must return the same values or raise the same kind of error.

    python -m refdist.conformance.old.generate --against refdist.conformance.old.adapters.tensorflow:TensorFlow

A program on which they differ is made as short as possible and printed as Python that can be run.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from refdist import errors
from refdist.conformance.old.case import Case, Implementation, differences, verdict_of
from refdist.conformance.old.language import Program, const, get, let, op, run, seq, variable
from refdist.conformance.old.testee import arrays

try:
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise errors.error("RD27", "refdist.conformance.old.generate", f"{error.name} is not installed",
                       "Run `pip install pytest hypothesis`.") from error

NUMBERS = st.integers(-4, 4).map(float)
METHODS = st.sampled_from(["assign", "assign_add", "assign_sub"])
OPS = st.sampled_from(["SUM", "MEAN"])
# The programs avoid the known differences of expected/tensorflow.txt: every replica makes its own arrays, of float32;
# variables of aggregation NONE are written with equal values; a single replica gets no wrong axis, which TensorFlow
# would not check; and the policy OFF, with which TensorFlow loses the last rows, is not used with central storage.
AGGREGATIONS = ["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"]


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[str, int], Program]:
    """A strategy, and a program that creates variables, makes up to six steps, reads a dataset and then everything."""
    kind = draw(st.sampled_from(["mirrored", "mirrored", "central"]))
    count = draw(st.integers(1 if kind == "mirrored" else 2, 6 if kind == "mirrored" else 3))
    steps: list[Program] = []
    names: list[tuple[str, str, str]] = []
    for i in range(draw(st.integers(0, 3))):
        aggregation = draw(st.sampled_from(AGGREGATIONS))
        on_read = kind == "mirrored" and count > 1 and aggregation != "NONE" and draw(st.booleans())
        names.append((f"v{i}", "ON_READ" if on_read else "AUTO", aggregation))
        steps.append(variable(f"v{i}", draw(NUMBERS), *names[-1][1:]))
    steps.append(let("x", run(of_replica(draw, count))))
    for _ in range(draw(st.integers(1, 6))):
        steps.append(draw(st.deferred(lambda: step(count, names))))
    if draw(st.booleans()):
        rows, batch = draw(st.integers(0, 20)), draw(st.integers(count, 12))
        steps.append(let("d", op("dataset", rows, batch, draw(st.booleans()), draw(st.sampled_from(
            ["AUTO", "OFF"] if kind == "mirrored" else ["AUTO"])),
                                 draw(st.integers(1, 2)))))
    else:
        steps.append(let("d", const(0.0)))
    read = [get("d"), *(op("read", name) for name, _, _ in names)]
    copies = [op("copies", name) for name, _, _ in names]
    return (kind, count), seq(*steps, op("list", op("reduce", "SUM", get("x"), None), *read, *copies))


def of_replica(draw: st.DrawFn, count: int, length: int = 2) -> Program:
    """A value that differs between replicas."""
    return ["pick", [const([draw(NUMBERS) for _ in range(length)]) for _ in range(count)]]


@st.composite
def step(draw: st.DrawFn, count: int, names: list[tuple[str, str, str]]) -> Program:
    """One statement."""
    choice = draw(st.integers(-1, 7 if names else 4))
    if choice == -1:
        inner = op("reduce", draw(OPS), get("0"), draw(st.sampled_from([None, 0])))
        return let("m", run(op("merge_call", op("list", inner, op("mul", inner, const(2.0))), of_replica(draw, count))))
    if choice == 0:
        return let("x", run(op("all_reduce", draw(OPS), of_replica(draw, count))))
    if choice == 1:
        return let("x", run(op("add", get("0"), op("all_reduce", draw(OPS), of_replica(draw, count))), get("x")))
    if choice == 2:
        lengths = [draw(st.integers(1, 3)) for _ in range(count)]
        return let("g", run(op("all_gather", ["pick", [const([float(n)] * n) for n in lengths]], 0)))
    if choice == 3:
        return let("y", op("reduce", draw(OPS), get("x"), draw(st.sampled_from([None, 0]))))
    if choice == 4:
        return let("z", op("gather", get("x"), draw(st.sampled_from([0, 0, 0, int(count > 1)]))))
    name, synchronization, aggregation = draw(st.sampled_from(names))
    method = draw(METHODS)
    if choice == 5 and aggregation != "NONE":
        value = ["pick", [const(draw(NUMBERS)) for _ in range(count)]]
        return run(seq(op("write", name, method, value), const(0.0)))
    if choice == 6 and synchronization == "AUTO":
        return op("update", name, method, const(draw(NUMBERS)))
    return op("write", name, method if synchronization == "AUTO" else "assign", const(draw(NUMBERS)))


def outcome(adapter: Implementation, strategy: tuple[str, int], program: Program) -> tuple[str, object]:
    """("value", result) or ("error", kind)."""
    verdict = verdict_of(Case("generated", program, gives="?", strategy=strategy), adapter)
    if isinstance(verdict.found, str) and verdict.found.startswith("an error: "):
        return "error", verdict.found.removeprefix("an error: ")
    return "value", verdict.found


def agree(one: Implementation, other: Implementation, strategy: tuple[str, int], program: Program) -> str | None:
    """How two implementations differ on a program, None if they do not."""
    first, second = (outcome(adapter, strategy, program) for adapter in (one, other))
    if first[0] != second[0] or (first[0] == "error" and first[1] != second[1]):
        return f"{first} and {second}"
    if first[0] == "error":
        return None
    return next(differences(plain(first[1]), arrays(second[1]), bitwise=False), None)


def plain(value: object) -> Any:
    """A result as nested lists of numbers, without dtypes."""
    found = arrays(value)
    if isinstance(found, dict):
        return {key: plain(item) for key, item in found.items()}
    if isinstance(found, list):
        return [plain(item) for item in found]
    return found.tolist() if hasattr(found, "tolist") else found


def printed(strategy: tuple[str, int], program: Program) -> str:
    """Python that runs a program."""
    return ("from refdist.conformance.old.adapters.simulated import Simulated\n"
            "from refdist.conformance.old.language import Interpreter\n\n"
            f"print(Interpreter(Simulated(), {strategy!r}).value({program!r}))")


def compare(one: Implementation, other: Implementation, count: int, start: int = 0) -> int:
    """Runs `count` random programs on two adapters.

    Raises:
        AssertionError: they differ on one; the message has a short program on which they do.
    """
    done = 0

    @seed(start)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def test(found: tuple[tuple[str, int], Program]) -> None:
        nonlocal done
        done += 1
        difference = agree(one, other, *found)
        assert difference is None, f"{difference}\n\n{printed(*found)}"

    test()
    return done


def main() -> int:
    """The command."""
    from refdist.conformance.old.plugin import make_adapter

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", default="refdist.conformance.old.adapters.simulated:Simulated")
    parser.add_argument("--against", required=True)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        done = compare(make_adapter(options.adapter), make_adapter(options.against), options.programs, options.seed)
    except AssertionError as error:
        print(error)
        return 1
    print(f"{done} programs, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
