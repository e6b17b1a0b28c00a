"""Every strategy x synchronization x aggregation x dtype x operation x context, against TensorFlow 2.21.

`tables/variables.json` holds what was observed there.  A cell is equal, or one row of DELIBERATE says what
refdist does instead and why.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation, VariableSynchronization

TABLE = json.loads((Path(__file__).parent / "tables" / "variables.json").read_text())
SITUATIONS = ("outside", "scope", "merge", "replica")


class Cell(NamedTuple):
    strategy: str
    synchronization: str
    aggregation: str
    dtype: str
    operation: str
    situation: str
    observed: str

    @property
    def name(self) -> str:
        return " ".join((self.strategy, self.synchronization, self.aggregation, self.dtype, self.operation,
                         self.situation))


def cells() -> Iterator[Cell]:
    for group in TABLE["cells"]:
        for operation, across, replica in group["rows"]:
            for variable in group["variables"]:
                for situation in SITUATIONS:
                    observed = replica if situation == "replica" else (
                        across if isinstance(across, str) else across[situation])
                    strategy, synchronization, aggregation, dtype = variable.split()
                    yield Cell(strategy, synchronization, aggregation, dtype, operation, situation, observed)


CELLS = list(cells())

# (pattern of the cell's name, what refdist does, why).  The first pattern that matches counts.
DRIFT = "copies of a mirrored variable must not differ; equal values are accepted"
ONE_EACH = "a value counts once for every replica, whether or not the replicas share the object"
DELIBERATE = [
    (r"^(?!M[12] ON_READ NONE).* assign_item |^M[12] ON_READ NONE \w+ assign_item replica", "raises AttributeError",
     "arrays are plain arrays; v[0] has no assign"),
    (r"M2 (AUTO|ON_WRITE) NONE \w+ (assign|assign_add|assign_sub) replica", "raises ValueError RD12", DRIFT),
    (r"M2 (AUTO|ON_WRITE) NONE \w+ scatter_(?!max)\w+ replica", "raises ValueError RD12", DRIFT),
    (r"M2 (AUTO|ON_WRITE) NONE float32 scatter_max replica", "raises ValueError RD12",
     "the replicas contribute different slices, whatever their maximum is"),
    (r"M2 (AUTO|ON_WRITE) SUM float32 assign_python replica", "[14.0, 14.0] ; [14.0, 14.0]", ONE_EACH),
    (r"M2 (AUTO|ON_WRITE) SUM int32 assign_python replica", "[14, 14] ; [14, 14]", ONE_EACH),
    (r"C2 \w+ SUM float32 assign_python replica", "[14.0, 14.0]", ONE_EACH),
    (r"C2 \w+ SUM int32 assign_python replica", "[14, 14]", ONE_EACH),
    (r"M2 (AUTO|ON_WRITE) ONLY_FIRST_REPLICA float32 assign_python replica", "[7.0, 7.0] ; [7.0, 7.0]",
     "a list is converted like any other value"),
    (r"M2 (AUTO|ON_WRITE) ONLY_FIRST_REPLICA int32 assign_python replica", "[7, 7] ; [7, 7]",
     "a list is converted like any other value"),
    (r"M1 ON_WRITE ONLY_FIRST_REPLICA float32 assign_python replica", "[7.0, 7.0]",
     "a list is converted like any other value"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 assign_python replica", "[7.0, 7.0]",
     "a list is converted like any other value"),
    (r"C2 \w+ MEAN int32 assign_python replica", "raises ValueError RD05",
     "the mean of integers is a float, also when the replicas agree"),
    (r"M2 ON_READ SUM float32 assign_python (outside|scope|merge)", "[3.5, 3.5] ; [3.5, 3.5] -> reads [7.0, 7.0]",
     "a list is converted like any other value"),
    (r"M2 ON_READ SUM int32 assign_python (outside|scope|merge)", "[4, 4] ; [3, 3] -> reads [7, 7]",
     "a list is converted like any other value"),
    (r"M1 ON_READ SUM float32 assign_python (outside|scope|merge)", "[7.0, 7.0]",
     "a list is converted like any other value"),
    (r"M2 ON_READ SUM int32 assign (outside|scope|merge)", "[1, 1] ; [0, 1] -> reads [1, 2]",
     "the variable reads what was assigned: the remainder of the division stays in the first copy"),
    (r"C2 \w+ NONE float32 (batch_)?scatter_\w+ replica", "raises ValueError RD13",
     "NONE refuses updates by several replicas, of every kind"),
    (r"C2 \w+ (SUM|MEAN) float32 (scatter_(min|max|update)|batch_scatter_update) replica",
     "raises NotImplementedError RD20", "as for mirrored variables: no replica asked for the minimum of a sum"),
    (r"C2 \w+ MEAN float32 scatter_add replica", "[10.0, 23.0]", "MEAN averages the slices too"),
    (r"C2 \w+ MEAN float32 scatter_sub replica", "[10.0, 17.0]", "MEAN averages the slices too"),
    (r"C2 \w+ MEAN float32 scatter_mul replica", "[10.0, 40.0]", "MEAN averages the slices too"),
    (r"C2 \w+ MEAN float32 scatter_div replica", "[10.0, 10.0]", "MEAN averages the slices too"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 scatter_add replica", "[10.0, 22.0]", "only replica 0's slices count"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 scatter_sub replica", "[10.0, 18.0]", "only replica 0's slices count"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 scatter_mul replica", "[10.0, 40.0]", "only replica 0's slices count"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 scatter_div replica", "[10.0, 10.0]", "only replica 0's slices count"),
    (r"C2 \w+ ONLY_FIRST_REPLICA float32 (batch_)?scatter_update replica", "[10.0, 2.0]",
     "only replica 0's slices count"),
]


def expected(cell: Cell) -> tuple[str, int | None]:
    for number, (pattern, outcome, _) in enumerate(DELIBERATE):
        if re.search(pattern, cell.name + " "):
            return outcome, number
    return cell.observed, None


def new_strategy(name: str) -> Any:
    if name == "D":
        return refdist.get_strategy()
    if name == "O":
        return refdist.OneDeviceStrategy("CPU:0")
    if name == "C2":
        return refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    return refdist.MirroredStrategy(["CPU:0"] if name == "M1" else ["CPU:0", "CPU:1"])


def operate(v: Any, operation: str) -> Any:
    context = refdist.get_replica_context()
    i = context.replica_id_in_sync_group if context is not None else 0
    value = np.asarray([1, 2]) * (i + 1)
    if operation == "read":
        return v.read_value()
    if operation == "assign_same":
        return v.assign(np.asarray([7, 7]))
    if operation == "assign_python":
        return v.assign([7, 7])
    if operation == "assign_item":
        return v[0].assign(7)
    if operation.startswith(("scatter", "batch")):
        delta = refdist.IndexedSlices(np.asarray([2 * (i + 1)]), [1])
        return getattr(v, operation)(delta)
    return getattr(v, operation)(value.astype(v.dtype))


def outcome(cell: Cell) -> str:
    strategy = new_strategy(cell.strategy)
    with strategy.scope():
        v = refdist.Variable(np.asarray([10, 20], cell.dtype), synchronization=VariableSynchronization[
            cell.synchronization], aggregation=VariableAggregation[cell.aggregation])
    before = copies(v)
    try:
        result = carry_out(strategy, v, cell)
    except Exception as error:
        assert copies(v) == before, "a refused operation changed something"
        assert not refdist.has_strategy(), "a refused operation left a context open"
        if isinstance(error, refdist.errors.RefdistError):
            return f"{raised(error)} {error.code}"
        assert cell.operation == "assign_item", repr(error)
        return raised(error)
    if cell.operation == "read":
        assert copies(v) == before, "reading changed something"
        return text(result, cell.dtype)
    return written(v)


def carry_out(strategy: Any, v: Any, cell: Cell) -> Any:
    if cell.situation == "outside":
        return operate(v, cell.operation)
    if cell.situation == "scope":
        with strategy.scope():
            return operate(v, cell.operation)
    if cell.situation == "merge":
        results: list[Any] = []

        def meet() -> None:
            context = refdist.get_replica_context()
            assert context is not None
            context.merge_call(lambda _: results.append(operate(v, cell.operation)))

        strategy.run(meet)
        assert len(results) == 1
        return results[0]
    return strategy.run(lambda: operate(v, cell.operation))


def copies(v: Any) -> list[Any]:
    parts = v.values if isinstance(v, refdist.DistributedValues) else [v]
    arrays = [part.numpy() for part in parts]
    assert {array.dtype for array in arrays} == {v.dtype}
    return [array.tolist() for array in arrays]


def written(v: Any) -> str:
    shown = copies(v)
    try:
        array = v.read_value()
        assert not array.flags.writeable
        read = array.tolist()
    except ValueError as error:
        read = raised(error).removeprefix("raises ")
    line = " ; ".join(map(str, shown))
    return line if read == shown[0] else f"{line} -> reads {read}"


def text(result: Any, dtype: str) -> str:
    parts = result.values if isinstance(result, refdist.PerReplica) else [result]
    assert {(type(part), part.dtype, part.flags.writeable) for part in parts} == {(np.ndarray, np.dtype(dtype), False)}
    line = ", ".join(str(part.tolist()) for part in parts)
    return f"PerReplica({line})" if isinstance(result, refdist.PerReplica) else line


def raised(error: Exception) -> str:
    for kind in (NotImplementedError, AttributeError, TypeError, ValueError, RuntimeError):
        if isinstance(error, kind):
            return f"raises {kind.__name__}"
    return f"raises {type(error).__name__}"


def without_code(line: str) -> str:
    return re.sub(r"^(raises \w+) RD\d\d$", r"\1", line)


GROUPS = sorted({cell[:4] for cell in CELLS})


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_every_operation_in_every_context_does_what_the_table_says(group: tuple[str, ...]) -> None:
    wrong = []
    for cell in CELLS:
        if cell[:4] != group:
            continue
        wanted, deliberate = expected(cell)
        got = outcome(cell)
        if got != wanted and (deliberate is not None or without_code(got) != wanted):
            wrong.append(f"{cell.name}: wanted {wanted}, got {got}")
    assert not wrong, "\n".join(wrong)


def test_every_deliberate_difference_is_one() -> None:
    used: Counter[int] = Counter()
    for cell in CELLS:
        wanted, number = expected(cell)
        if number is not None and without_code(wanted) != cell.observed:
            used[number] += 1
    unused = [DELIBERATE[i][0] for i in range(len(DELIBERATE)) if not used[i]]
    assert not unused


@pytest.mark.parametrize("row", TABLE["creation"], ids=lambda row: " ".join(row[:3]))
def test_creation_makes_the_kind_of_variable_the_table_says(row: list[str]) -> None:
    name, synchronization, aggregation, float_kind, int_kind = row
    for dtype, wanted in (("float32", float_kind), ("int32", int_kind)):
        for member in VariableAggregation if aggregation == "any" else [VariableAggregation[aggregation]]:
            if not wanted:
                continue
            strategy = new_strategy(name)
            try:
                with strategy.scope():
                    got = type(refdist.Variable(np.zeros(2, dtype), aggregation=member,
                                                synchronization=VariableSynchronization[synchronization])).__name__
            except ValueError as error:
                got = raised(error)
            assert wanted.startswith(got), (row, member, dtype)


def test_every_variable_that_can_be_created_stands_in_the_table() -> None:
    creatable = set()
    for name, synchronization, aggregation, *kinds in TABLE["creation"]:
        for dtype, kind in zip(("float32", "int32"), kinds, strict=True):
            if kind and not kind.startswith("raises"):
                creatable |= {(name, synchronization, member.name if aggregation == "any" else aggregation, dtype)
                              for member in VariableAggregation}
    assert creatable == set(GROUPS)


def test_every_operation_stands_in_the_table_in_every_context() -> None:
    counts = Counter((cell[:4], cell.situation) for cell in CELLS)
    assert set(counts.values()) == {15, 4}
    assert {group[3] for (group, _), count in counts.items() if count == 15} == {"float32"}
    assert len({cell[:6] for cell in CELLS}) == len(CELLS)
    assert ast.literal_eval(CELLS[0].observed) == [10.0, 20.0]
