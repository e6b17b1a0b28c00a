"""The check `types`: what replicas contribute to a reduction, held against the table REPLICAS.

A finding is a warning with a code, once for each line and code.  None is given where a correct program could have
computed the same: where a factor may be the number of replicas, and where a type is not known on every replica.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from refdist import nest
from refdist.array import tensor_types
from refdist.array.convert import HoldsArray, on_host
from refdist.array.replica_types import (
    UNKNOWN,
    ReplicaType,
    added_differs,
    has_type,
    program,
    source,
    type_of,
    type_of_contribution,
    typed,
)
from refdist.core import call_site, divisors, remarks
from refdist.core.rules.options import ReduceOp
from refdist.core.rules.replica_types import REPLICAS, Of, Operation, Reducing
from refdist.core.rules.table import Refusal
from refdist.runtime import Field

_REDUCING = {ReduceOp.SUM: Reducing.SUM, ReduceOp.MEAN: Reducing.MEAN}
_WHOLE = "an argument of strategy.run that every replica gets whole"
_DISTRIBUTE = ("Where it is a batch, distribute the dataset with `strategy.experimental_distribute_dataset`; or use "
               "MEAN.")
_ADD = "Add it after the reduction, or a share of it in each replica: `loss + penalty / strategy.num_replicas_in_sync`."

# What to write in place of a mean of means, or a sum of means, where it is not the program that calls `all_reduce`.
_RETURN_BOTH = ("Let each replica return its sum and its rows, `x.sum(axis=0), np.float32(len(x))`, reduce both, "
                "`total, rows = [strategy.reduce(\"SUM\", part, axis=None) for part in parts]`, and divide "
                "`total / rows`.")
_DIVIDE_BEFORE = ("Divide the sum over the replica's rows by the rows of all replicas, `x.sum(axis=0) / rows` with "
                  "`rows = get_replica_context().all_reduce(\"SUM\", np.float32(len(x)))`, and let the aggregation be "
                  "SUM.")
_DIVIDE_THE_LOSS = ("Divide the loss by the size of the global batch: `tf.nn.compute_average_loss(losses, "
                    "global_batch_size=...)`, with a loss for each row.")

# Where `fit` or `evaluate` takes the mean of what a step of the program's returns.
_LOGS = "Strategy.reduce MEAN of the logs of a step of fit"
_SHOW_A_MEAN = ("Return a mean over the replica's rows, of which `fit` shows the mean over the replicas, or the result "
                "of a metric that the step updates.")

_DIVIDED_BEFORE = "Use SUM: what each replica contributes is divided by the number of all rows."

_unread: Field[set[str]] = Field("files of the program of which it was said that their text cannot be read", set)


class Contributing:
    """Carries out a reduction of all replicas, after its contributions were checked.

    Args:
        execute: carries it out, with the calls of all replicas.
        reducing: a column of REPLICAS.
        attempted: what it is called.
        total: how many replicas there are.
        value: what this replica contributes.
        result: whether what each replica gets is the same.
    """

    __slots__ = ("attempted", "execute", "kinds", "leaves", "of_optimizer", "reducing", "result", "total")

    def __init__(self, execute: Callable[[Any], Sequence[Any]], reducing: Reducing, attempted: str, total: int,
                 value: object, result: bool = True) -> None:
        self.execute = execute
        self.reducing = reducing
        self.attempted = attempted
        self.total = total
        self.leaves = nest.flatten(value) if nest.is_nested(value) else [value]
        self.kinds = [type_of_contribution(leaf) for leaf in self.leaves]
        self.result = result
        self.of_optimizer = _reduces_for("optimizer", sys._getframe(1))

    def __call__(self, calls: Sequence[Any]) -> Sequence[Any]:
        executions = [call.execute for call in calls]
        answers = self.execute(calls)
        for leaf in range(len(self.kinds)):
            check(self.reducing, [execution.kinds[leaf] for execution in executions], self.attempted, self.total,
                  [execution.leaves[leaf] for execution in executions], self.of_optimizer)
        if not self.result:
            return answers
        same = source(Of.SAME, self.attempted, reduced=True)
        return [typed(answer, same) if has_type(answer)
                else nest.map_structure(lambda leaf: typed(leaf, same), answer) for answer in answers]


def reducing_of(op: ReduceOp) -> Reducing:
    """The column of REPLICAS for a reduce op."""
    return _REDUCING[op]


def element(step: Sequence[Any]) -> list[Any]:
    """The parts of an element of a distributed dataset, one for each replica, with their types."""
    tensor_types.mode()

    def of(leaf: Any) -> Any:
        if not has_type(leaf) or not leaf.ndim:
            return leaf
        return typed(leaf, source(Of.ROWS, "rows of a distributed dataset", rows=len(leaf), back=leaf.ndim))
    return [nest.map_structure(of, part) for part in step]


def followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a replica, with what it computes by PyTorch's functions followed."""
    mode = tensor_types.mode()

    def call(*args: Any, **kwargs: Any) -> Any:
        with mode():
            return function(*args, **kwargs)
    return call


def gathered(parts: Sequence[Any]) -> list[Any]:
    """The results of an all_gather with their types: the same on all replicas."""
    return [typed(part, source(Of.SAME, "all_gather", reduced=True)) for part in parts]


def argument(leaf: Any) -> Any:
    """An argument of `strategy.run` that all replicas get; numbers, which may count, have no type."""
    if (isinstance(leaf, np.ndarray) and type(leaf) is not np.ndarray) or not has_type(leaf) or not leaf.ndim:
        return leaf
    return typed(leaf, source(Of.SAME, _WHOLE)) if type_of(leaf) is UNKNOWN else leaf


def average(result: Any, losses: object, size: int, step: str = "compute_average_loss") -> Any:
    """A sum over the replica's rows that is divided by those of all, with its type.

    Where the size is the number of the replica's own rows it is a mean over them.

    Args:
        result: the sum, divided.
        losses: of the rows.
        size: by which it is divided.
        step: what gives it.
    """
    kind = type_of(losses)
    if kind.of is not Of.ROWS or kind.back != np.ndim(losses):  # type: ignore[arg-type]
        return result
    of, numbers = (Of.MEAN, ()) if size == kind.rows else (Of.SUM, ((Operation.DIVIDE, float(size)),))
    return typed(result, ReplicaType(of, step, program(sys._getframe(1)), kind, kind.rows, numbers=numbers))


def _reduces_for(what: str, frame: FrameType | None) -> bool:
    # Whether a module with this mark, and not the program, has called what runs.
    while frame is not None and call_site.is_ours(frame.f_globals.get("__name__", "")):
        if frame.f_globals.get("_reduces_for") == what:
            return True
        frame = frame.f_back
    return False


def check(reducing: Reducing, kinds: Sequence[ReplicaType], attempted: str, total: int,
          values: Sequence[object] = (), of_optimizer: bool = False) -> None:
    """Warns where what the replicas contribute is not what this reduction is for.

    Args:
        reducing: what is done.
        kinds: what each replica of this worker contributes.
        attempted: the call, for the message.
        total: how many replicas there are on all workers.
        values: the contributions.
        of_optimizer: whether an optimizer of Keras reduces its gradients.
    """
    if total < 2:
        return
    of = _as_means(kinds)
    if of is Of.UNKNOWN:
        if reducing is Reducing.SUM:
            check_shared(values, attempted, total)
        return
    cell = REPLICAS[of][reducing]
    if not isinstance(cell, Refusal):
        return
    per_row = kinds[0].per_row if len({kind.per_row for kind in kinds}) == 1 else 1
    if attempted.startswith("Strategy.reduce") and _reduces_for("fit", sys._getframe(1)):
        attempted = _LOGS
    # Elsewhere the program calls `all_reduce`, as the catalogue's advice does.
    fix = (_DIVIDE_THE_LOSS if of_optimizer else _RETURN_BOTH if attempted.startswith("Strategy.reduce") else
           _DIVIDE_BEFORE if "aggregation" in attempted else "")
    rows = ", ".join("?" if kind.rows is None else str(kind.rows // per_row) for kind in kinds)
    match cell.code:
        case "RD37":
            if reducing is Reducing.EACH:
                if kinds[0].reduced and not (kinds[0].numbers or kinds[0].captured):
                    _warn("RD37", attempted, "every replica adds what is already reduced, and a read adds the parts of "
                          f"all replicas: {total} times as much", kinds[0], "Add each replica's own part, before it is "
                          "reduced.")
            elif not _agree(kinds, total) or (of is Of.BOTH and len(kinds) == 1):
                pass  # the one replica of this worker may be the only one that adds it
            elif _differ(values) if of is Of.SAME else added_differs(kinds):
                pass  # it was written to after its type was known, as through another view of its memory
            elif of is Of.BOTH:
                _warn("RD37", attempted, f"what is the same on all {total} replicas is added to each replica's sum "
                      f"over its rows, and these are summed: it counts {total} times", kinds[0], _ADD, scaled=total)
            else:
                _warn("RD37", attempted, f"what is the same on all {total} replicas is summed: the result is {total} "
                      "times as much", kinds[0], _DISTRIBUTE if kinds[0].chain()[0] == _WHOLE else "", scaled=total)
        case "RD38":
            if not any(_may_hold(kind, total, of is not kind.of) for kind in kinds):
                _warn("RD38", attempted, f"the means over the replicas' rows ({rows}) are summed: the result is "
                      f"{total} times the mean over the batch", kinds[0], fix, scaled=total)
        case "RD39":
            if not any(_is_normalised(kind, kinds, total) for kind in kinds):
                _warn("RD39", attempted, f"it is the mean of what each of {total} replicas has a part of: the result "
                      f"is 1/{total} of the sum", kinds[0], _SHOW_A_MEAN if attempted == _LOGS else
                      _DIVIDED_BEFORE if any(operation is Operation.DIVIDE for operation, _ in kinds[0].numbers) else
                      "", scaled=total, multiplied=True)
        case "RD40":
            counts = {kind.rows for kind in kinds}
            if None not in counts and len(counts) > 1:
                _warn("RD40", attempted, f"the replicas have different numbers of rows ({rows}), and their means count "
                      "alike: the result is not the mean over the batch", kinds[0], fix)
        case _:
            _warn("RD41", attempted, f"only replica 0's part is used of {total}: {kinds[0].meaning}", kinds[0])


def check_shared(values: Sequence[object], attempted: str, total: int) -> None:
    """Warns where what all replicas contribute to a sum is one array."""
    if len(values) == total > 1 and _is_shared(values):
        _warn("RD37", attempted, f"all {total} replicas contribute one and the same array, which is counted {total} "
              "times (TensorFlow counts it once)", UNKNOWN,
              "Make an array in each replica where each has one to add; to count, pass a number such as 1.0.",
              scaled=total)


def check_part(kind: ReplicaType, attempted: str, own: str, total: int) -> None:
    """Warns where a part of an ON_READ variable is written to another variable as if it were its total."""
    if kind.of is Of.PART and kind.variable != own and total > 1:
        _warn("RD41", attempted, f"the value is {kind.meaning}, one of {total} parts and not the total", kind)


def _as_means(kinds: Sequence[ReplicaType]) -> Of:
    # What all contribute; a sum that each divides by its own number of rows is a mean, and a mean that is multiplied by
    # them is none.
    of = kinds[0].of
    if any(kind.of is not of for kind in kinds):
        return Of.DIFFERS
    if of is Of.SUM and kinds[0].numbers and all(
            any(map(kind.numbers.__contains__, _by_its_rows(kind))) for kind in kinds) and (
            len({kind.rows for kind in kinds}) > 1 or all(kind.lengths for kind in kinds)):
        return Of.MEAN
    return Of.DIFFERS if of is Of.MEAN and _are_weighed(kinds) else of


def _by_its_rows(kind: ReplicaType, operation: Operation = Operation.DIVIDE) -> list[tuple[Operation, float]]:
    # A quotient, or product, with its number of rows; or with that of the dataset's rows, each of which gave several.
    rows = kind.rows or 0
    return [(operation, float(rows)), (operation, float(rows // kind.per_row))]


def _are_weighed(kinds: Sequence[ReplicaType]) -> bool:
    # Whether a number that took part may be the replica's number of rows, or its share of all of them.
    return any(kind.numbers != kinds[0].numbers or any(
        number in kind.numbers for number in _by_its_rows(kind, Operation.MULTIPLY)) for kind in kinds)


def _divisions(kind: ReplicaType) -> list[call_site.Place]:
    return [place for step in divisors.DIVIDING for place in kind.places(step)]


def _is_shared(values: Sequence[object]) -> bool:
    # Ones are counted.
    if any(value is not values[0] for value in values):
        return False
    first = on_host(values[0])
    return first is not None and first.dtype.kind in "iufc" and bool(np.any((first != 0) & (first != 1)))


def _differ(values: Sequence[object]) -> bool:
    # Whether what replicas contribute has other bytes.
    arrays = [array for value in values if (array := on_host(value)) is not None]
    return any(array.tobytes() != arrays[0].tobytes() for array in arrays)


def _agree(kinds: Sequence[ReplicaType], total: int) -> bool:
    # Whether it is the same for certain: the numbers that took part are, and none may be a replica's share or count.
    numbers, captured = kinds[0].numbers, kinds[0].captured
    if any((kind.numbers, kind.captured) != (numbers, captured) for kind in kinds) or (
            (numbers or captured) and len(kinds) < total):
        return False
    factors = [number for operation, number in numbers if operation is Operation.MULTIPLY]
    return not _may_hold(kinds[0], total) and not any(
        number == int(number) and abs(number) != 1 for number in factors if np.isfinite(number)) and not any(
        map(divisors.multiplies_by_length, kinds[0].places()))


def _may_hold(kind: ReplicaType, total: int, by_rows: bool = False) -> bool:
    # Whether a number that took part may be the number of replicas, or one over it; of a sum that is known to have been
    # divided by its rows another number than these.
    numbers = list(kind.numbers)
    for _ in range(kind.lengths if by_rows else 0):
        numbers.remove(next(number for number in _by_its_rows(kind) if number in numbers))
    divisors = [number for operation, number in numbers if operation is Operation.DIVIDE]
    if any(number and number % total == 0 for number in divisors) and not _are_of_sizes(kind, len(divisors), total):
        return True
    return any(operation is Operation.MULTIPLY and abs(number * total - 1) < 1e-6 for operation, number in numbers)


def _are_of_sizes(kind: ReplicaType, divisions: int, total: int) -> bool:
    # Whether the text of all divisions tells that none is by the number of replicas.
    places = _divisions(kind)
    return len(places) >= divisions and not any(divisors.is_by_replicas(place, total) for place in places)


def _is_normalised(kind: ReplicaType, kinds: Sequence[ReplicaType], total: int) -> bool:
    # Whether a sum was divided by what may be the replica's number of rows, and not that of the batch, or multiplied by
    # the number of replicas.
    rows = sum(other.rows or 0 for other in kinds)
    for operation, number in kind.numbers:
        if operation is Operation.DIVIDE and (number != rows or number == kind.rows):
            return True
        if operation is Operation.MULTIPLY and (number == total or any(
                other.rows and abs(number * other.rows - 1) < 1e-6 for other in kinds)):
            return True
    return False


def _warn(code: str, attempted: str, found: str, kind: ReplicaType, fix: str = "", scaled: int = 0,
          multiplied: bool = False) -> None:
    called = site = call_site.that_led_here()
    if attempted == _LOGS:
        site = (*kind.places()[:1], *called)  # the line of the step, and not that of `fit`
    if not remarks.is_due(code, site):
        return
    files = {place.file for place in kind.places()} | {program(sys._getframe(1)).f_code.co_filename}
    here = f"{attempted} ({called[0] if called else ''})"
    chain = " -> ".join([*kind.chain(), here]) if kind is not UNKNOWN else here
    if scaled and (unread := divisors.unread(files, site)):
        if unread not in _unread.value:
            _unread.value.add(unread)
            remarks.make("RD51", site, attempted, f"{found}, unless the program divides by the number of replicas; "
                         f"that was not looked at, because the text of {unread} cannot be read or is not what runs. "
                         f"{chain}")
        return
    if scaled and divisors.by_replicas(files, site, scaled, multiplied):
        return
    # The mean of sums over equally many rows, divided by these, is the mean of all.
    if multiplied and any(divisors.divides_by_length(place) for place in site):
        return
    remarks.make(code, site, attempted, f"{found}. {chain}", fix)


def replica_type(value: object) -> Any:
    """What a value is to the other replicas, while `refdist.config.checks(types=True)` holds.

    Args:
        value: an array, a variable, or a distributed value.

    Returns:
        A ReplicaType, whose repr says what the value is and how it came about; of a PerReplica a tuple of them.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with refdist.config.checks(types=True):
    ...     batches = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(4).batch(4))
    ...     for batch in batches:
    ...         strategy.run(lambda x: print(refdist.replica_type(x)), args=(batch,))
    something for each of the replica's rows (2): rows of a distributed dataset
    something for each of the replica's rows (2): rows of a distributed dataset
    """
    components = getattr(value, "values", None)
    if isinstance(components, tuple) and not isinstance(value, HoldsArray):
        return tuple(map(type_of_contribution, components))
    return type_of_contribution(value._read() if isinstance(value, HoldsArray) else value)
