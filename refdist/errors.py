"""Every exception class and the catalogue of error codes.

An error says what was attempted, where, what was found and what to do instead, and carries a stable
code (`RD01` ...) that has a row in `CATALOGUE` and a paragraph in docs/errors.md, which is printed from
it.  The exception *type* is the one TensorFlow users catch: ValueError, TypeError, RuntimeError ...
Nothing here imports another module of refdist.
"""

from __future__ import annotations

from typing import NamedTuple


class RefdistError(Exception):
    """Base of every error that refdist raises on purpose.

    Attributes:
        code: the row of the catalogue, for example "RD04".
        on_every_worker: whether all workers have the same error at the same moment.
    """

    code: str = ""
    on_every_worker: bool = False

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InvalidValueError(RefdistError, ValueError):
    """A value that the rules do not allow."""


class InvalidTypeError(RefdistError, TypeError):
    """An object of a type that the call cannot use."""


class InvalidAttributeError(RefdistError, AttributeError):
    """An attribute that the object does not have."""


class InvalidContextError(RefdistError, RuntimeError):
    """A call in a context, or at a moment, in which it has no meaning."""


class InvalidArgumentError(RefdistError, ValueError):
    """Arrays that do not fit together (`tf.errors.InvalidArgumentError`)."""


class UnsupportedError(RefdistError, NotImplementedError):
    """An operation that this kind of object does not have."""


class NotFoundError(RefdistError, LookupError):
    """A name that nothing carries: a device, a backend, a file."""


class DeviceError(RefdistError, RuntimeError):
    """A device, or the connection between devices, does not work."""


class ResourceExhaustedError(RefdistError, MemoryError):
    """There is not enough memory."""


class MissingNameError(RefdistError, AttributeError):
    """A name that TensorFlow has and refdist has not."""


class OutOfRangeError(RefdistError, IndexError):
    """A position past the end."""


class DataLossError(RefdistError):
    """Data that cannot be read back (`tf.errors.DataLossError`)."""


class InternalError(RefdistError):
    """A fault of refdist itself.  A legal program never sees it."""


class Code(NamedTuple):
    """One row of the catalogue."""

    title: str
    error: type[RefdistError]
    rule: str
    fix: str


CATALOGUE: dict[str, Code] = {
    "RD01": Code(
        "a replica is missing from a meeting", InvalidContextError,
        "Every replica makes the same calls that need all replicas, the same number of times.",
        "Move the call out of the branch or loop that only some replicas take."),
    "RD02": Code(
        "replicas met with different calls", InvalidContextError,
        "At a meeting all replicas make the same kind of call.",
        "Give every replica the same sequence of calls."),
    "RD03": Code(
        "replicas met with different reduce ops or axes", InvalidValueError,
        "One reduction has one reduce op, SUM or MEAN, and one gather has one axis.",
        "Pass the same reduce op, and the same axis, on every replica."),
    "RD04": Code(
        "shapes differ between replicas", InvalidArgumentError,
        "An element-wise reduction needs the same shape on every replica; nothing is broadcast.",
        "Reduce over the batch first (`axis=0` in `strategy.reduce`), or gather instead."),
    "RD05": Code(
        "dtypes differ or do not fit", InvalidArgumentError,
        "One collective, and one variable, has one dtype; a float never becomes an int by itself.",
        "Cast explicitly with `.astype(...)` before the call."),
    "RD06": Code(
        "same call at another source line", InvalidContextError,
        "Replicas meet at the same place of the program; equal calls at different places were swapped.",
        "Write the call once, outside the branch, and let only its argument depend on the replica."),
    "RD07": Code(
        "gather: other dimensions differ", InvalidArgumentError,
        "Arrays are gathered along one axis; all the other dimensions are equal.",
        "Pad or slice the other dimensions, or gather along the axis that differs."),
    "RD08": Code(
        "gather: no such axis", InvalidValueError,
        "The axis lies in [-rank, rank), and a scalar has no axis to gather along.",
        "Give scalars a dimension first: `x[np.newaxis]`."),
    "RD09": Code(
        "call in the wrong context", InvalidContextError,
        "Cross-replica calls belong outside replicas, replica calls inside `strategy.run`.",
        "In a replica use `get_replica_context().merge_call(...)`; outside use `strategy.run(...)`."),
    "RD10": Code(
        "strategies were mixed", InvalidContextError,
        "Inside the scope of one strategy only that strategy, the same object, is used.",
        "Create one strategy and use it everywhere; leave its scope before using another."),
    "RD11": Code(
        "variable was not created by this strategy", InvalidValueError,
        "A variable made outside the scope has one copy, and replicas that write to it overwrite each other; one of "
        "another strategy has copies for that one's replicas.",
        "Create the variable inside `with strategy.scope():`, of the same strategy object that runs."),
    "RD12": Code(
        "mirrored copies would drift apart", InvalidValueError,
        "All copies of a mirrored variable hold the same value after every update.",
        "Reduce the value first; in replicas the variable can do it, given an aggregation (SUM, MEAN, "
        "ONLY_FIRST_REPLICA), or keep a value for each, made ON_READ."),
    "RD13": Code(
        "an aggregation is needed", InvalidValueError,
        "A value that differs between replicas becomes one value only by a stated aggregation.",
        "Create the variable with `aggregation=VariableAggregation.SUM` or MEAN; with ONLY_FIRST_REPLICA where all "
        "replicas have the same value, as after `all_reduce`, which SUM would multiply."),
    "RD14": Code(
        "sync-on-read variable updated across replicas", InvalidValueError,
        "A SUM variable that is synchronized on read has no share to add to outside a replica.",
        "Update it inside `strategy.run`, or assign the whole value."),
    "RD15": Code(
        "the input cannot be split", InvalidValueError,
        "The first dimension of a dataset element is the batch.",
        "Batch the dataset: `dataset.batch(global_batch_size)`."),
    "RD16": Code(
        "value is not distributed", InvalidValueError,
        "SUM needs one value per replica; a value that is the same everywhere has no number of parts.",
        "Return an array from each replica, or multiply by `num_replicas_in_sync` yourself."),
    "RD17": Code(
        "the cluster is not described rightly", InvalidValueError,
        "Every task finds the same cluster in its environment, and its own place in it.",
        "Correct what the message names; TF_CONFIG is JSON with \"cluster\" and \"task\"."),
    "RD18": Code(
        "the rows cannot be shared out", InvalidArgumentError,
        "Every worker and every replica gets a share of the rows, by the policy chosen.",
        "Choose another `AutoShardPolicy`, or another number of rows or files."),
    "RD19": Code(
        "a per-replica value was used as an array", InvalidValueError,
        "Outside a replica a distributed value is several arrays, not one.",
        "Use `strategy.reduce`, `strategy.gather` or `strategy.experimental_local_results`."),
    "RD20": Code(
        "the operation is not supported", UnsupportedError,
        "Some operations have no meaning for some kinds of variable or value.",
        "Use the operation that the message names."),
    "RD21": Code(
        "structures differ between replicas", InvalidValueError,
        "Results and arguments that are put together have one structure on all replicas.",
        "Return the same nesting of lists, tuples and dicts, with the same keys, from every replica."),
    "RD22": Code(
        "a meeting after the run was stopped", InvalidContextError,
        "After one replica failed, the others are unwound and cannot meet again.",
        "Do not catch BaseException around calls that need all replicas."),
    "RD23": Code(
        "the dtype cannot be reduced", InvalidTypeError,
        "Numbers can be summed; booleans, strings and objects cannot.",
        "Cast to a number first, for example `.astype(np.int32)`."),
    "RD24": Code(
        "no such device", NotFoundError,
        "A device is named TYPE:INDEX and must exist once the machine has been sized.",
        "Use one of the devices listed, or size the machine with `refdist.config.set_simulated_devices`."),
    "RD25": Code(
        "the argument has the wrong type or value", InvalidTypeError,
        "Arguments have the types that the signature shows.",
        "Pass what the message names."),
    "RD26": Code(
        "the dataset is wrong", InvalidValueError,
        "Elements of a dataset have one structure, and one dtype and rank per component.",
        "Correct the row that the message names."),
    "RD27": Code(
        "the backend cannot be used", NotFoundError,
        "A backend is built in or found through the entry points `refdist.backends`; a strategy is used with the one "
        "it was made with.",
        "Install what the message names."),
    "RD28": Code(
        "a device failed", DeviceError,
        "An array fits into the memory of its device, and the device does what it is told.",
        "Look at the device's own message; after an error of the device itself, start the program anew."),
    "RD29": Code(
        "the input has ended", OutOfRangeError,
        "A dataset ends; `get_next` says so by this error.",
        "Use a `for` loop, or `dataset.repeat()`."),
    "RD30": Code(
        "a file cannot be read", DataLossError,
        "Files exist and are complete; the checksum of every record is compared.",
        "Write the file anew, or leave it out."),
    "RD31": Code(
        "a checkpoint cannot be written, read, or does not fit", DataLossError,
        "A checkpoint holds one value for each variable, by the names of the attributes that lead to it.",
        "Correct what the message names."),
}


def explain_read_only(error: BaseException) -> None:
    """Adds to NumPy's error about a write to a read-only array why it is one, and what to write instead."""
    if isinstance(error, ValueError) and not isinstance(error, RefdistError) \
            and any("read-only" in text for text in error.args if isinstance(text, str)):
        note = ("replicas share their inputs and the results of collectives, so these arrays are read-only, as are the "
                "elements of datasets; write to a copy: `x = x.copy()`")
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def error(code: str, attempted: str, found: str, fix: str = "",
          kind: type[RefdistError] | None = None) -> RefdistError:
    """The exception for a row of the catalogue, ready to be raised.

    Args:
        code: a key of `CATALOGUE`.
        attempted: the call and where it was made, for example "all_reduce in replica 1 of 2".
        found: what was found, a full sentence without its full stop.
        fix: what to write instead; the catalogue's advice when empty.
        kind: the exception class where a case needs another one than the row's.

    >>> raise error("RD08", "gather(axis=3)", "replica 0 has an array of rank 1")
    Traceback (most recent call last):
    refdist.errors.InvalidValueError: [RD08] gather(axis=3): replica 0 has an array of rank 1. ...
    """
    row = CATALOGUE[code]
    text = f"[{code}] {attempted}: {found}. {fix or row.fix}"
    return (kind or row.error)(text, code)
