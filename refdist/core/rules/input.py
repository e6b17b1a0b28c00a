"""Who reads which rows of a dataset, and how the rows are cut into pieces for the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from refdist.core.rules.options import AutoShardPolicy, InputReplicationMode, UnevenEnd
from refdist.core.rules.table import Allowed, Permission, Refusal, Table, Word


class Readers(Word):
    """Columns of SHARDING: whether one worker reads a dataset, or several."""

    ONE = "one"
    SEVERAL = "several"


class Files(Word):
    """Columns of SHARDING: whether a dataset reads files, and whether there is one for each worker."""

    NONE = "no files"
    SOME = "files"
    FEWER = "fewer files"
    ENOUGH = "enough files"


class Source(NamedTuple):
    """A column of SHARDING: how many workers read, and from which files."""

    readers: Readers
    files: Files


class Reads(Word):
    """Cells of SHARDING: what one worker reads of a dataset."""

    ITS_FILES = "its files"
    ALL_ROWS = "all rows"
    ITS_SHARE = "its share"


SHARDING: Table[AutoShardPolicy, Source, Reads | Refusal] = Table(
    "What a worker reads",
    "Rows: the AutoShardPolicy of a dataset of global batches.  Columns: one worker or several, and the files that are "
    "read: none, fewer than there are workers, or enough.  Each host of a TPU is a worker here, where all of them have "
    "the same number of replicas.  Source: tf.data.experimental.AutoShardPolicy; OFF, HINT, FILE on one worker, and "
    "hosts were observed, TensorFlow 2.21.",
    {Reads.ITS_FILES: "every n-th file, where there are n workers; the worker cuts their rows for its own replicas",
     Reads.ALL_ROWS: "the same rows as every other worker, which it cuts for its own replicas",
     Reads.ITS_SHARE: "all rows, which it cuts for the replicas of all workers; it keeps the pieces of its own"}, """
                one, no files    one, files    several, no files    several, fewer files    several, enough files
        AUTO    its share        its files     its share            its share               its files
        FILE    its files        its files     RD18                 RD18                    its files
        DATA    its share        its share     its share            its share               its share
        OFF     all rows         all rows      all rows             all rows                all rows
        HINT    all rows         all rows      all rows             all rows                all rows
    """, rows=AutoShardPolicy, cells=Reads | Refusal, columns=(
        Source(Readers.ONE, Files.NONE), Source(Readers.ONE, Files.SOME), Source(Readers.SEVERAL, Files.NONE),
        Source(Readers.SEVERAL, Files.FEWER), Source(Readers.SEVERAL, Files.ENOUGH)))


class Size(Word):
    """Columns of CUTS: whether the number of rows of a batch is known before it is read."""

    ONE_REPLICA = "one replica"
    CERTAIN = "size certain"
    UNKNOWN = "size unknown"


class Cut(Word):
    """Cells of CUTS: how the rows that a worker reads are cut into pieces for its replicas."""

    WHOLE = "not at all"
    EACH_BATCH = "each batch"
    ROW_STREAM = "stream of rows"


CUTS: Table[Reads, Size, Cut] = Table(
    "How rows are cut into pieces for replicas",
    "Rows: what the worker reads.  Columns: whether there is one replica in all, and whether the number of rows of a "
    "batch is certain before reading.  Source: observed, TensorFlow 2.21.",
    {Cut.WHOLE: "the one replica gets every batch as it is",
     Cut.EACH_BATCH:
         "every batch is cut into pieces of the same rounded-up size; the last ones may be shorter, or empty",
     Cut.ROW_STREAM: "the rows are cut, batch boundaries aside, into pieces whose sizes differ by at most one"}, """
                     one replica    size certain      size unknown
        its share    not at all     each batch        each batch
        its files    not at all     stream of rows    each batch
        all rows     not at all     stream of rows    each batch
    """, rows=Reads, columns=Size, cells=Cut)


class End(Word):
    """Columns of UNEVEN: the questions that an UnevenEnd answers."""

    ROWS_OF_A_BATCH = "rows of a batch"
    UNEVEN_STEP = "uneven step"
    FULL_BATCHES = "where all batches are full"


class Shared(Word):
    """Cells of UNEVEN: which rows of a batch the replicas get."""

    EVERY_ROW = "all"
    EQUAL_SHARES = "equal shares"


class Step(Word):
    """Cells of UNEVEN: what becomes of a step in which replicas have different numbers of rows."""

    KEEP = "keep"
    DROP = "drop"
    PAD = "pad"


UNEVEN: Table[UnevenEnd, End, Shared | Step | Refusal] = Table(
    "Uneven ends",
    "Rows: the UnevenEnd of the options.  Columns: which rows of a batch are shared out; and what becomes of a step in "
    "which replicas have different numbers of rows.  The last column is for batches that a function made and that are "
    "all full, on one worker.  Source: EMPTY was observed, TensorFlow 2.21; the others are refdist's own.",
    {Shared.EVERY_ROW: "all rows", Shared.EQUAL_SHARES: "as many as the number of replicas divides",
     Step.KEEP: "replicas get what there is, some of them empty arrays", Step.DROP: "the step is left out",
     Step.PAD: "elements are filled up with zeros, and a mask tells which rows are real"}, """
                 rows of a batch    uneven step    where all batches are full
        EMPTY    all                keep           drop
        DROP     equal shares       drop           drop
        PAD      all                pad            pad
        ERROR    all                RD18           RD18
    """, rows=UnevenEnd, columns=End, cells=Shared | Step | Refusal)

ROWS_OF_A_BATCH: Mapping[UnevenEnd, Shared] = UNEVEN.column(End.ROWS_OF_A_BATCH, Shared)
UNEVEN_STEP: Mapping[UnevenEnd, Step | Refusal] = UNEVEN.column(End.UNEVEN_STEP, Step | Refusal)
FULL_BATCHES: Mapping[UnevenEnd, Step | Refusal] = UNEVEN.column(End.FULL_BATCHES, Step | Refusal)


class Distributing(Word):
    """Rows of MODES: which call distributes a dataset, and whether there are other workers."""

    DATASET = "experimental_distribute_dataset"
    FUNCTION_ONE_WORKER = "distribute_datasets_from_function, one worker"
    FUNCTION_SEVERAL_WORKERS = "distribute_datasets_from_function, several workers"


MODES: Table[Distributing, InputReplicationMode, Allowed] = Table(
    "Replication modes",
    "Rows: the call.  Columns: the InputReplicationMode of the options.  Source: tf.distribute.InputReplicationMode.",
    {Permission.OK: "allowed"}, """
                                                              PER_WORKER    PER_REPLICA
        experimental_distribute_dataset                       ok            RD20
        distribute_datasets_from_function, one worker         ok            ok
        distribute_datasets_from_function, several workers    ok            RD20
    """, rows=Distributing, columns=InputReplicationMode, cells=Allowed)
