"""The exception classes and the catalogue of error codes.

Every message has the same four parts: a stable code, what was attempted and where, what was found, and what to write
instead.  A code is a row of `CATALOGUE` and a section of docs/errors.md, which is printed from it; the row's `fix` is
what a message ends with unless the caller of `error` knows better.  Programs that tell errors apart should compare
codes: texts may change.

The exception *type* is the one that users of TensorFlow catch.  For most codes it is one class, which also derives
from Python's own (ValueError, TypeError, RuntimeError ...); a single message may use another class where TensorFlow
does.  Every class derives from `RefdistError`, and `InternalError` is the only one that means a bug in refdist.

This module imports no other module of refdist that raises errors, so that all of them can raise its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from refdist import notebook

# TensorFlow's numbers of what went wrong, the `error_code` of an error.
(OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
 RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS,
 UNAUTHENTICATED) = range(17)


class RefdistError(Exception):
    """Base of every error that refdist raises on purpose.

    A program that raises one may give TensorFlow's arguments: `tf.errors.UnavailableError(None, None, "text")`.

    Attributes:
        error_code: TensorFlow's number of what went wrong, such as `UNAVAILABLE`.
        message: the text.
        op, node_def: None, as where TensorFlow runs eagerly.
        experimental_payloads: empty.
        code: the key of its row in the catalogue, for example "RD04".
        on_every_worker: whether all workers raise the same error at the same call, so that none of them has to tell
            the others that it failed.
        history: what this worker came to before, a `core.history.History` of its rendezvous; () where the error
            comes of none.
    """

    error_code: int = UNKNOWN
    op = node_def = None
    code: str = ""
    on_every_worker: bool = False
    history: Sequence[Any] = ()

    def __init__(self, message: str | None = "", code: str | None = "", *tensorflow_s: Any,
                 node_def: None = None, op: None = None) -> None:
        super().__init__(tensorflow_s[0] if tensorflow_s else message)
        self.code = "" if tensorflow_s else code or ""

    @property
    def message(self) -> str:
        """The text."""
        return str(self)

    @property
    def experimental_payloads(self) -> dict[str, bytes]:
        """What TensorFlow's runtime adds to an error: nothing."""
        return {}

    def _repr_html_(self) -> str:
        return notebook.drawing(self)


class InvalidValueError(RefdistError, ValueError):
    """A value that the rules do not allow."""

    error_code = INVALID_ARGUMENT


class InvalidTypeError(RefdistError, TypeError):
    """An object of a type that the call cannot use."""

    error_code = INVALID_ARGUMENT


class InvalidAttributeError(RefdistError, AttributeError):
    """An attribute that the object does not have."""


class InvalidContextError(RefdistError, RuntimeError):
    """A call in a context, or at a time, where it is not allowed."""

    error_code = FAILED_PRECONDITION


class InvalidArgumentError(RefdistError, ValueError):
    """Arrays that do not fit together (`tf.errors.InvalidArgumentError`)."""

    error_code = INVALID_ARGUMENT


class MisfitError(InvalidArgumentError, InvalidTypeError):
    """Arguments that an operation cannot use, for which TensorFlow raises one of several classes; this is of each."""


class UnsupportedError(RefdistError, NotImplementedError):
    """An operation that this kind of object does not support."""

    error_code = UNIMPLEMENTED


class NotFoundError(RefdistError, LookupError):
    """A device, backend or file that does not exist."""

    error_code = NOT_FOUND


class MissingPackageError(NotFoundError, ImportError):
    """A Python package that is not installed."""


class DuplicateKeyError(RefdistError, KeyError):
    """Two values for one key."""

    error_code = ALREADY_EXISTS

    __str__ = Exception.__str__  # that of KeyError shows the repr


class DeviceError(RefdistError, RuntimeError):
    """A device, or the connection between devices, failed."""


class ResourceExhaustedError(RefdistError, MemoryError):
    """There is not enough memory."""

    error_code = RESOURCE_EXHAUSTED


class MissingNameError(RefdistError, AttributeError):
    """A name that exists in TensorFlow and not in refdist."""

    error_code = UNIMPLEMENTED


class OutOfRangeError(RefdistError, IndexError):
    """Reading past the last element."""

    error_code = OUT_OF_RANGE


class UnavailableError(RefdistError, ConnectionError):
    """A task of the cluster is gone (`tf.errors.UnavailableError`)."""

    error_code = UNAVAILABLE


class CancelledError(RefdistError):
    """A function that was not carried out, or not to its end (`tf.errors.CancelledError`)."""

    error_code = CANCELLED


class DataLossError(RefdistError):
    """Stored data that is missing or corrupt (`tf.errors.DataLossError`)."""

    error_code = DATA_LOSS


class UnmatchedError(DataLossError, AssertionError):
    """What a program asserts of a restored checkpoint, for example with `assert_consumed`, does not hold."""


class DifferenceWarning(RefdistError, UserWarning):
    """A number that TensorFlow computes otherwise, or that may not be what the program means."""


class ReplicaTypeWarning(DifferenceWarning):
    """A value is reduced as if it were one of another replica type, such as means that are summed.

    RD37 to RD41, RD51 and RD52; replicas check for it where `refdist.config.checks` is asked to.
    """


class InternalError(RefdistError):
    """A bug in refdist itself: no program, right or wrong, should ever see it."""

    error_code = INTERNAL


class UnknownError(RefdistError):
    """Never raised: for programs that catch it (`tf.errors.UnknownError`)."""


class AbortedError(RefdistError):
    """Never raised: for programs that catch it (`tf.errors.AbortedError`)."""

    error_code = ABORTED


class DeadlineExceededError(RefdistError):
    """Never raised: for programs that catch it (`tf.errors.DeadlineExceededError`)."""

    error_code = DEADLINE_EXCEEDED


class PermissionDeniedError(RefdistError):
    """Never raised: for programs that catch it (`tf.errors.PermissionDeniedError`)."""

    error_code = PERMISSION_DENIED


class UnauthenticatedError(RefdistError):
    """Never raised: for programs that catch it (`tf.errors.UnauthenticatedError`)."""

    error_code = UNAUTHENTICATED


# TensorFlow's names of classes that are called otherwise here, for programs that catch them.
OpError = RefdistError
AlreadyExistsError = DuplicateKeyError
FailedPreconditionError = InvalidContextError
UnimplementedError = UnsupportedError


class Code(NamedTuple):
    """One row of the catalogue.

    Attributes:
        title: the heading in docs/errors.md.
        error: the class that is raised unless the caller of `error` names another; a warning is given.
        rule: what a correct program keeps to, a full sentence.
        fix: what to write instead, a full sentence.
    """

    title: str
    error: type[RefdistError]
    rule: str
    fix: str


CATALOGUE: dict[str, Code] = {
    "RD01": Code(
        "a replica did not come to the rendezvous", InvalidContextError,
        "Every replica makes the same sequence of collective calls, each the same number of times.",
        "Move the call out of the branch, loop or `try` that only some replicas go through."),
    "RD02": Code(
        "replicas are at different calls", InvalidContextError,
        "When replicas wait for each other, all of them are in the same call.",
        "Make the same sequence of calls on every replica."),
    "RD03": Code(
        "reduce ops or axes differ between replicas", InvalidValueError,
        "A reduction has one reduce op, SUM or MEAN, and a gather has one axis.",
        "Pass the same reduce op, and the same axis, on every replica."),
    "RD04": Code(
        "shapes differ", InvalidArgumentError,
        "An element-wise reduction needs the same shape on every replica; contributions are not broadcast.",
        "Contribute the same array on every replica, gradients in the same order. Where the number of rows differs, "
        "reduce over the batch first (`axis=0` in `strategy.reduce`), or gather instead."),
    "RD05": Code(
        "dtypes differ or cannot be converted", InvalidArgumentError,
        "A collective has one dtype, and so has a variable; a float is never converted to an int implicitly.",
        "Cast explicitly with `.astype(...)` before the call."),
    "RD06": Code(
        "the same call at different source lines", InvalidContextError,
        "Replicas meet at the same line of the program; equal calls at different lines are probably swapped.",
        "Where every replica comes to both lines, make the calls in the same order on all. Where each comes to one of "
        "them only, write the call once, outside the branch, and let its argument depend on the replica. Where some "
        "come to both, make both calls on all."),
    "RD07": Code(
        "gather: other dimensions differ", InvalidArgumentError,
        "Arrays are gathered along one axis; all their other dimensions must be equal.",
        "Pad or slice the other dimensions, or gather along the axis that differs."),
    "RD08": Code(
        "gather: the axis does not exist", InvalidValueError,
        "For arrays of n dimensions the axis lies in [-n, n); a scalar has no axis to gather along.",
        "Add a dimension to scalars first: `x[np.newaxis]`."),
    "RD09": Code(
        "call in the wrong context", InvalidContextError,
        "Cross-replica calls are made outside `strategy.run`, replica calls inside the function it runs.",
        "In a replica use `get_replica_context().merge_call(...)`; outside use `strategy.run(...)`."),
    "RD10": Code(
        "strategies were mixed", InvalidContextError,
        "Inside the scope of a strategy only that strategy object is used.",
        "Create one strategy and use it everywhere; leave its scope before using another."),
    "RD11": Code(
        "the variable was not created by this strategy", InvalidValueError,
        "A variable created outside the scope has one copy, and replicas that write to it overwrite each other; a "
        "variable of another strategy has copies for the replicas of that strategy.",
        "Create the variable inside `with strategy.scope():`, with the strategy object that runs the replicas."),
    "RD12": Code(
        "the copies of a mirrored variable would differ", InvalidValueError,
        "All copies of a mirrored variable hold the same value after every update.",
        "Reduce the value first, with `all_reduce` in a replica or `strategy.reduce` outside; or create the variable "
        "with an aggregation, which reduces what replicas assign; or with synchronization ON_READ, for one value per "
        "replica."),
    "RD13": Code(
        "an aggregation is needed", InvalidValueError,
        "Different values from several replicas become one value only by an aggregation that is stated.",
        "Create the variable with `aggregation=VariableAggregation.SUM` or MEAN; with ONLY_FIRST_REPLICA if the value "
        "is the same on all replicas, as after `all_reduce`, because SUM would multiply it by their number."),
    "RD14": Code(
        "an ON_READ variable with the aggregation SUM was incremented outside a replica", InvalidValueError,
        "Its value is the sum of one part per replica; outside a replica it is not defined which part an increment "
        "belongs to.",
        "Update it inside `strategy.run`, or assign the whole value."),
    "RD15": Code(
        "the elements have no batch dimension", InvalidValueError,
        "The first dimension of every array of a dataset element is the batch, which is split over the replicas.",
        "Batch the dataset: `dataset.batch(global_batch_size)`."),
    "RD16": Code(
        "the value is not distributed", InvalidValueError,
        "SUM adds one value per replica; how often a value that is not distributed should be counted is not defined.",
        "Return an array from each replica, or multiply by `num_replicas_in_sync` yourself."),
    "RD17": Code(
        "the description of the cluster is wrong", InvalidValueError,
        "Every task finds the same cluster in its environment, with its own type and index; all run the same version "
        "of refdist.",
        "Correct what the message names; TF_CONFIG is JSON with \"cluster\" and \"task\"."),
    "RD18": Code(
        "the rows cannot be divided among workers and replicas", InvalidArgumentError,
        "The AutoShardPolicy decides which rows each worker reads; every replica then takes its part of each batch.",
        "Choose another `AutoShardPolicy`, or another number of rows or files."),
    "RD19": Code(
        "a per-replica value was used as an array", InvalidValueError,
        "Outside a replica a distributed value is one array per replica, not one array.",
        "Use `strategy.reduce`, `strategy.gather` or `strategy.experimental_local_results`."),
    "RD20": Code(
        "the operation is not supported", UnsupportedError,
        "Some operations are not defined for some kinds of variables or values.",
        "Use the operation that the message names."),
    "RD21": Code(
        "structures differ", InvalidValueError,
        "Arguments and results that are combined over replicas have the same structure on each of them.",
        "Use the same nesting of lists, tuples and dicts, with the same keys, on every replica."),
    "RD22": Code(
        "a call after the run was stopped", InvalidContextError,
        "After a replica has failed, the others are ended by an exception and can make no further collective calls. A "
        "scheduled function whose worker is lost, or that is cancelled, is ended by one at its next access to a "
        "variable.",
        "Do not catch BaseException around collective calls and accesses to variables."),
    "RD23": Code(
        "the dtype cannot be reduced", InvalidTypeError,
        "Numbers can be summed; booleans, strings and objects cannot.",
        "Cast to a numeric dtype first, for example `.astype(np.int32)`."),
    "RD24": Code(
        "the device does not exist", NotFoundError,
        "A device name is TYPE:INDEX, and names a device of this machine or one of the simulated devices.",
        "Use one of the devices listed, or simulate more with `refdist.config.set_simulated_devices`."),
    "RD25": Code(
        "an argument has the wrong type", InvalidTypeError,
        "Arguments have the types that the signature has and the documentation allows.",
        "Pass what the message names."),
    "RD26": Code(
        "the elements of a dataset do not fit together", InvalidValueError,
        "All elements of a dataset have one structure, and in each component one dtype and one rank.",
        "Correct the row that the message names."),
    "RD27": Code(
        "a backend, transport or package is missing or cannot be used", NotFoundError,
        "A backend or transport is built in, or registered under the entry point `refdist.backends` or "
        "`refdist.transports`; a strategy works only with the backend that was active when it was created; some "
        "features need a package that is not installed by default.",
        "Install what the message names."),
    "RD28": Code(
        "a device failed", DeviceError,
        "Arrays must fit into the memory of their device, and the device and its driver must work.",
        "Read the message of the device; after a failure of the device itself, restart the program."),
    "RD29": Code(
        "the end of the input was reached", OutOfRangeError,
        "`get_next` raises this error after the last element.",
        "Use a `for` loop, or `dataset.repeat()`."),
    "RD30": Code(
        "a file cannot be read", DataLossError,
        "Files must exist and be complete; the checksum of every record is verified.",
        "Write the file again, or leave it out."),
    "RD31": Code(
        "a checkpoint cannot be written or read, or does not match", DataLossError,
        "A checkpoint holds one value per variable, under the names of the attributes that lead to the variable.",
        "Correct what the message names."),
    "RD32": Code(
        "a scheduled function was cancelled", CancelledError,
        "When a function has failed, the next call of `schedule`, `join` or `done` stops the functions that run, drops "
        "those that wait, and raises the error; what the stopped ones wrote stays written.",
        "Schedule the function again."),
    "RD33": Code(
        "a task of the cluster is gone", UnavailableError,
        "A worker that is gone is replaced by the others; the variables of a parameter server are gone with it, and "
        "with the last worker nothing runs.",
        "Make the strategy again and restore the latest checkpoint."),
    "RD34": Code(
        "an argument has a value that cannot be used", InvalidValueError,
        "Arguments have the values that the documentation allows, and fit together. Where TensorFlow raises ValueError "
        "for an object of the wrong type, that error has this code, too.",
        "Pass what the message names."),
    "RD35": Code(
        "TensorFlow 2.21 computes another number", DifferenceWarning,
        "A gradient, a batch or a mean in Keras's documents is that of the global batch, on any number of replicas. "
        "Keras on TensorFlow computes some of them for each replica alone, or for each part of a gradient; the warning "
        "says what TensorFlow's result is.",
        "Nothing is wrong here: the number of replicas does not change the result."),
    "RD36": Code(
        "all replicas draw the same random numbers", DifferenceWarning,
        "A generator of seeds has one state, which all replicas read: the masks of a Dropout layer are the same on all "
        "replicas, as under TensorFlow 2.21.",
        "Where masks should differ, draw them from a `tf.random.Generator` that is made in the scope: each replica has "
        "a stream of its own."),
    "RD37": Code(
        "a sum of a value that is the same on all replicas", ReplicaTypeWarning,
        "SUM adds one contribution from each replica; a value that is the same on all of them, because it was reduced "
        "before or never distributed, is counted once per replica, also where it was added to a sum over the rows.",
        "Leave the second reduction out, or use MEAN."),
    "RD38": Code(
        "a sum of means", ReplicaTypeWarning,
        "On N replicas the sum of the replicas' means is not the mean over the batch, but N times as large.",
        "Sum over the rows, `total, rows = replica.all_reduce(\"SUM\", [x.sum(axis=0), np.float32(len(x))])`, and "
        "divide `total / rows`."),
    "RD39": Code(
        "a mean of sums", ReplicaTypeWarning,
        "On N replicas the mean of the replicas' sums is not their total, but one Nth of it.",
        "Use SUM, and divide by the number of rows of all replicas where a mean is wanted."),
    "RD40": Code(
        "a mean of means over different numbers of rows", ReplicaTypeWarning,
        "In a mean of means every replica has the same weight, however many rows it has.",
        "Sum over the rows, `total, rows = replica.all_reduce(\"SUM\", [x.sum(axis=0), np.float32(len(x))])`, and "
        "divide `total / rows`."),
    "RD41": Code(
        "a replica's part is used as if it were the total", ReplicaTypeWarning,
        "What a replica computes from its rows, or reads from an ON_READ variable, is its part; the total is known "
        "after a reduction, or outside the replicas.",
        "Reduce the value with `all_reduce` first, or read the variable outside `strategy.run`."),
    "RD42": Code(
        "a replica contributes infinity or NaN", DifferenceWarning,
        "Infinity or NaN that one replica contributes to a sum reaches all replicas. The warning comes once for a "
        "line, with the replica and how many rows it had: the mean of no rows is NaN. "
        "`np.errstate(invalid=\"ignore\")` around the reduction silences the warning about NaN, "
        "`np.errstate(over=\"ignore\")` that about infinity.",
        "Look at what that replica computes from its rows; sum the rows and divide by the size of the global batch."),
    "RD43": Code(
        "a sum of integers does not fit its dtype", DifferenceWarning,
        "The sum of the replicas' integers has their dtype, and wraps around where it does not fit. The warning comes "
        "once for a line.",
        "Sum a wider dtype: `np.asarray(x, np.int64)`."),
    "RD44": Code(
        "a variable is made in every step", DifferenceWarning,
        "A variable keeps its value from one run to the next only where it is made once. The warning comes when three "
        "runs in a row make a variable at the same line and keep none of them.",
        "Make it in `strategy.scope()` before the first step, or keep it where the step finds it again."),
    "RD45": Code(
        "an epoch without a step", DifferenceWarning,
        "A loop over a distributed dataset that gives no element trains nothing. Either no batch is full and the "
        "remainder is dropped, or a filter leaves nothing, or the generator, or the iterator, was read to its end "
        "before.",
        "Look at what `print(distributed.explain())` says; begin every epoch with the dataset, `for x in dataset`."),
    "RD46": Code(
        "a replica gets no row of a full batch", DifferenceWarning,
        "Every batch is cut into pieces of the same rounded-up size, so that the last replicas may get nothing where "
        "the number of rows is not a multiple of the number of replicas. The mean of no rows is NaN.",
        "Batch by a multiple of `strategy.num_replicas_in_sync`: `dataset.batch(global_batch_size)`."),
    "RD47": Code(
        "a loop without an end", DifferenceWarning,
        "A dataset that repeats without end has no last step. The warning comes after ten epochs of a `for` statement "
        "that has no `break`, in a program that catches no error.",
        "Leave `repeat()` out, or limit it: `dataset.repeat(epochs)`, `dataset.take(steps)`."),
    "RD48": Code(
        "two calls of one line in different orders", DifferenceWarning,
        "Replicas that meet at one line of a loop add up what each contributes there, under whatever name. Where each "
        "goes over the names in an order of its own, as with a set, values of different names are added. Found "
        "with `REFDIST_CHECKS=watch`.",
        "Loop over the names in one order, `for name in sorted(names)`, or reduce them together, as one dict."),
    "RD49": Code(
        "a new iterator in every step", DifferenceWarning,
        "An iterator begins at the first element. A line that makes one for each step reads the first batch again and "
        "again. Found with `REFDIST_CHECKS=watch`.",
        "Loop over the dataset, `for x in dataset`, or make the iterator once, before the loop."),
    "RD50": Code(
        "rows that are read several times, or never", DifferenceWarning,
        "The workers' pipelines together read each row once: either the AutoShardPolicy divides the rows, or `shard` "
        "in an input function does, not both.",
        "Shard the dataset once."),
    "RD51": Code(
        "a reduction of a program whose text cannot be read", ReplicaTypeWarning,
        "Whether a sum of means is a mistake depends on what the program divides by later, which is read from its "
        "text. Of what was passed to `exec`, or to `python -c`, Python keeps no text; and a file may have been edited "
        "since it was imported. The warning comes once for a file, in place of RD37, RD38 and RD39.",
        "Run the program from a file or a notebook, or look for a division by the number of replicas yourself."),
    "RD52": Code(
        "each replica trains weights of its own", ReplicaTypeWarning,
        "Weights of which each replica has its own stay equal only if each is changed by the same gradient, which is "
        "that of all rows after a reduction. Found with `REFDIST_CHECKS=types`, at the end of an epoch in which no "
        "replica has met another.",
        "Reduce each gradient before the weights are changed, `gradient = replica.all_reduce(\"MEAN\", gradient)` "
        "where the replicas have equally many rows."),
    "RD53": Code(
        "rows and labels that are shuffled apart", DifferenceWarning,
        "Two arrays or datasets that belong together, row by row, stay together only in one order. Such a program is "
        "as wrong on one replica, so no comparison finds it. Found with `REFDIST_CHECKS=watch`.",
        "Shuffle the dataset of pairs."),
    "RD54": Code(
        "types of what JAX computes are not followed", DifferenceWarning,
        "What JAX computes is followed through parts of JAX that it documents nowhere and that other versions have "
        "otherwise, and not in a program that imports flax.nnx, whose modules refuse it. Arrays of JAX have no types "
        "then, and nothing is warned of what is computed with them; the program computes as without the check. Said "
        "once, with `REFDIST_CHECKS=types`.",
        "Compare the program on one replica and on several, `python -m refdist compare`, which needs no "
        "types."),
}


def explain_read_only(error: BaseException) -> None:
    """Adds a note to NumPy's error about writing to a read-only array: why it is read-only, what to write instead."""
    if isinstance(error, ValueError) and not isinstance(error, RefdistError) \
            and any("read-only" in text for text in error.args if isinstance(text, str)):
        note = ("replicas share their inputs and the results of collectives, so these arrays are read-only, as are the "
                "elements of datasets; write to a copy: `x = x.copy()`")
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def explain_steps(error: BaseException) -> None:
    """Adds a note to PyTorch's error about a slice of a tensor that goes backwards: what to write instead."""
    if isinstance(error, ValueError) and error.args == ("step must be greater than zero",):
        note = ("tensors of PyTorch take no slice that goes backwards, as in `x[::-1]`; write `tf.reverse(x, [0])`, or "
                "`torch.flip(x, [0])`, with the axes that go backwards; `x[::-2]` is `torch.flip(x, [0])[::2]`")
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


_OF_A_CONTEXT = {
    "all_reduce": "use `strategy.reduce(reduce_op, value, axis=None)` there",
    "all_gather": "use `strategy.gather(value, axis)` there",
    "merge_call": "call the function itself there",
    "num_replicas_in_sync": "`strategy.num_replicas_in_sync` is the same number",
    "replica_id_in_sync_group": "no replica has a number there"}


def explain_no_replica(error: BaseException | None) -> None:
    """Adds a note to an error about an attribute of None that a replica context has: where there is one."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError) and name in _OF_A_CONTEXT and str(error).startswith("'NoneType' object"):
        note = (f"get_replica_context() is None in a scope, in merge_call and in updates, outside of replicas; "
                f"{_OF_A_CONTEXT[name]}, or call it in a function that `strategy.run` runs")
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def type_of(value: object) -> str:
    """The type of a value for messages, with its article.

    >>> type_of([]), type_of(1)
    ('a list', 'an int')
    """
    name = type(value).__name__
    return f"{'an' if name.startswith(('ndarray', *'AEIaeio')) else 'a'} {name}"


def counted(number: int, noun: str) -> str:
    """A number of things, for messages.

    >>> counted(1, "file"), counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {noun}" + "s" * (number != 1)


def shown(text: str) -> str:
    """A text from a file, for messages: quoted if it has characters that a terminal obeys.

    >>> shown("a name"), shown("a\\nb")
    ('a name', "'a\\\\nb'")
    """
    return text if text.isprintable() else repr(text)


def error(code: str, attempted: str, found: str, fix: str = "",
          kind: type[RefdistError] | None = None) -> RefdistError:
    """Makes the exception for a row of the catalogue; the caller raises it.

    Args:
        code: a key of `CATALOGUE`.
        attempted: the call, and where it was made: "all_reduce in replica 1 of 2".
        found: what was found, a sentence without its full stop.
        fix: what to write instead, a full sentence; "" for the `fix` of the row.
        kind: the exception class; None for the class of the row.

    >>> raise error("RD08", "gather(axis=3)", "replica 0 has an array of rank 1")
    Traceback (most recent call last):
    refdist.errors.InvalidValueError: [RD08] gather(axis=3): replica 0 has an array of rank 1. ...
    """
    row = CATALOGUE[code]
    text = f"[{code}] {attempted}: {found}. {fix or row.fix}"
    return (kind or row.error)(text, code)
