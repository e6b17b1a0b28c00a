"""Who reads which rows of a dataset, and how the rows are cut into pieces for the replicas."""

from __future__ import annotations

from refdist.core.rules.table import Table

ITS_FILES = "its files"
ALL_ROWS = "all rows"
ITS_SHARE = "its share"

SHARDING = Table(
    "What a worker reads",
    "Rows: the AutoShardPolicy of a dataset of global batches.  Columns: one worker or several, and the files that are "
    "read: none, fewer than there are workers, or enough.  Each host of a TPU is a worker here, where all of them have "
    "the same number of replicas.  Source: tf.data.experimental.AutoShardPolicy; OFF, HINT, FILE on one worker, and "
    "hosts were observed, TensorFlow 2.21.",
    {ITS_FILES: "every n-th file, where there are n workers; the worker cuts their rows for its own replicas",
     ALL_ROWS: "the same rows as every other worker, which it cuts for its own replicas",
     ITS_SHARE: "all rows, which it cuts for the replicas of all workers; it keeps the pieces of its own"}, """
                one, no files    one, files    several, no files    several, fewer files    several, enough files
        AUTO    its share        its files     its share            its share               its files
        FILE    its files        its files     RD18                 RD18                    its files
        DATA    its share        its share     its share            its share               its share
        OFF     all rows         all rows      all rows             all rows                all rows
        HINT    all rows         all rows      all rows             all rows                all rows
    """)

WHOLE = "not at all"
EACH_BATCH = "each batch"
ROW_STREAM = "stream of rows"

CUTS = Table(
    "How rows are cut into pieces for replicas",
    "Rows: what the worker reads.  Columns: whether there is one replica in all, and whether the number of rows of a "
    "batch is certain before reading.  Source: observed, TensorFlow 2.21.",
    {WHOLE: "the one replica gets every batch as it is",
     EACH_BATCH: "every batch is cut into pieces of the same rounded-up size; the last ones may be shorter, or empty",
     ROW_STREAM: "the rows are cut, batch boundaries aside, into pieces whose sizes differ by at most one"}, """
                     one replica    size certain      size unknown
        its share    not at all     each batch        each batch
        its files    not at all     stream of rows    each batch
        all rows     not at all     stream of rows    each batch
    """)

EVERY_ROW, EQUAL_SHARES = "all", "equal shares"
KEEP, DROP, PAD = "keep", "drop", "pad"

UNEVEN = Table(
    "Uneven ends",
    "Rows: the UnevenEnd of the options.  Columns: which rows of a batch are shared out; and what becomes of a step in "
    "which replicas have different numbers of rows.  The last column is for batches that a function made and that are "
    "all full, on one worker.  Source: EMPTY was observed, TensorFlow 2.21; the others are refdist's own.",
    {EVERY_ROW: "all rows", EQUAL_SHARES: "as many as the number of replicas divides",
     KEEP: "replicas get what there is, some of them empty arrays", DROP: "the step is left out",
     PAD: "elements are filled up with zeros, and a mask tells which rows are real"}, """
                 rows of a batch    uneven step    where all batches are full
        EMPTY    all                keep           drop
        DROP     equal shares       drop           drop
        PAD      all                pad            pad
        ERROR    all                RD18           RD18
    """)

MODES = Table(
    "Replication modes",
    "Rows: the call.  Columns: the InputReplicationMode of the options.  Source: tf.distribute.InputReplicationMode.",
    {"ok": "allowed"}, """
                                                              PER_WORKER    PER_REPLICA
        experimental_distribute_dataset                       ok            RD20
        distribute_datasets_from_function, one worker         ok            ok
        distribute_datasets_from_function, several workers    ok            RD20
    """)
