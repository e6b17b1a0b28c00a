"""What a value is to the other replicas, and what becomes of that: the rules of the check `types`.

The type of a value follows from the operations that it came from, never from its bytes.  What the tables do not list is
`unknown`, and of unknown values nothing is warned.
"""

from __future__ import annotations

from refdist.core.rules.table import Permission, Refusal, Table, Word


class Of(Word):
    """What a value is to the other replicas."""

    SAME = "same"
    ROWS = "rows"
    DIFFERS = "differs"
    SUM = "sum"
    MEAN = "mean"
    BOTH = "both"
    PART = "part"
    UNKNOWN = "unknown"


class Plain(Word):
    """An operand that is no array."""

    NUMBER = "number"


Operand = Of | Plain

MEANINGS: dict[Of, str] = {
    Of.SAME: "the same on all replicas",
    Of.ROWS: "something for each of the replica's rows",
    Of.DIFFERS: "differs between the replicas",
    Of.SUM: "a sum over the replica's rows",
    Of.MEAN: "a mean over the replica's rows",
    Of.BOTH: "a sum over the replica's rows, and what is the same on all replicas added to it",
    Of.PART: "the replica's part of an ON_READ variable with the aggregation SUM",
    Of.UNKNOWN: "unknown",
}


class Operation(Word):
    """The operations of NumPy, by what they do to sums and means."""

    ADD = "add"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    OTHER = "other"


_ABOUT = ("Rows: the first operand.  Columns: the second.  Cells: the result.  A sum times what is the same on all "
          "replicas is a sum, but a sum of rows plus the same on each replica is both.  A difference of both and what "
          "is no sum differs, because what was added may be taken away again.  A number is Python's, or a scalar of "
          "NumPy's.  What an unknown factor makes of a sum or a mean is unknown.")
_OPERANDS = (Of.SAME, Of.ROWS, Of.DIFFERS, Of.SUM, Of.MEAN, Of.BOTH, Of.PART, Plain.NUMBER, Of.UNKNOWN)
_PLAIN = "numbers and values of which nothing is known are NumPy's alone"

ADDING: Table[Operand, Operand, Of] = Table("Adding and subtracting", _ABOUT, MEANINGS, """
             same     rows     differs  sum      mean     both     part     number   unknown
    same     same     rows     differs  both     mean     both     part     same     unknown
    rows     rows     rows     differs  rows     rows     rows     rows     rows     rows
    differs  differs  differs  differs  differs  differs  differs  differs  differs  unknown
    sum      both     rows     differs  sum      differs  both     differs  differs  unknown
    mean     mean     rows     differs  differs  mean     differs  differs  mean     unknown
    both     both     rows     differs  both     differs  both     differs  differs  unknown
    part     part     rows     differs  differs  differs  differs  part     part     unknown
    number   same     rows     differs  differs  mean     differs  part     -        -
    unknown  unknown  rows     unknown  unknown  unknown  unknown  unknown  -        -
    """, rows=_OPERANDS, columns=_OPERANDS, cells=Of, unreached=_PLAIN)
MULTIPLYING: Table[Operand, Operand, Of] = Table("Multiplying", _ABOUT, MEANINGS, """
             same     rows     differs  sum      mean     both     part     number   unknown
    same     same     rows     differs  sum      unknown  both     part     same     unknown
    rows     rows     rows     differs  rows     rows     rows     rows     rows     differs
    differs  differs  differs  differs  differs  differs  differs  differs  differs  unknown
    sum      sum      rows     differs  differs  differs  differs  differs  sum      unknown
    mean     unknown  rows     differs  differs  differs  differs  differs  mean     unknown
    both     both     rows     differs  differs  differs  differs  differs  both     unknown
    part     part     rows     differs  differs  differs  differs  differs  part     unknown
    number   same     rows     differs  sum      mean     both     part     -        -
    unknown  unknown  differs  unknown  unknown  unknown  unknown  unknown  -        -
    """, rows=_OPERANDS, columns=_OPERANDS, cells=Of, unreached=_PLAIN)
DIVIDING: Table[Operand, Operand, Of] = Table("Dividing", _ABOUT, MEANINGS, """
             same     rows     differs  sum      mean     both     part     number   unknown
    same     same     rows     differs  differs  differs  differs  differs  same     unknown
    rows     differs  rows     differs  rows     rows     rows     rows     rows     differs
    differs  differs  differs  differs  differs  differs  differs  differs  differs  unknown
    sum      unknown  rows     differs  mean     differs  differs  differs  sum      unknown
    mean     unknown  rows     differs  differs  differs  differs  differs  mean     unknown
    both     unknown  rows     differs  differs  differs  differs  differs  both     unknown
    part     unknown  rows     differs  differs  differs  differs  part     part     unknown
    number   same     rows     differs  differs  differs  differs  differs  -        -
    unknown  unknown  differs  unknown  unknown  unknown  unknown  unknown  -        -
    """, rows=_OPERANDS, columns=_OPERANDS, cells=Of, unreached=_PLAIN)
OTHERS: Table[Operand, Operand, Of] = Table("Any other operation on items", _ABOUT, MEANINGS, """
             same     rows     differs  sum      mean     both     part     number   unknown
    same     same     rows     differs  differs  differs  differs  differs  same     unknown
    rows     rows     rows     differs  rows     rows     rows     rows     rows     rows
    differs  differs  differs  differs  differs  differs  differs  differs  differs  unknown
    sum      differs  rows     differs  differs  differs  differs  differs  differs  unknown
    mean     differs  rows     differs  differs  differs  differs  differs  differs  unknown
    both     differs  rows     differs  differs  differs  differs  differs  differs  unknown
    part     differs  rows     differs  differs  differs  differs  differs  differs  unknown
    number   same     rows     differs  differs  differs  differs  differs  -        -
    unknown  unknown  rows     unknown  unknown  unknown  unknown  unknown  -        -
    """, rows=_OPERANDS, columns=_OPERANDS, cells=Of, unreached=_PLAIN)
COMBINED = {Operation.ADD: ADDING, Operation.MULTIPLY: MULTIPLYING, Operation.DIVIDE: DIVIDING,
            Operation.OTHER: OTHERS}

# The types that an array can have, apart from unknown.
_TYPED = (Of.SAME, Of.ROWS, Of.DIFFERS, Of.SUM, Of.MEAN, Of.BOTH, Of.PART)


class Along(Word):
    """How the items of one array become fewer."""

    SUM_OF_ROWS = "sum of rows"
    MEAN_OF_ROWS = "mean of rows"
    SUM_OF_ITEMS = "sum of items"
    MEAN_OF_ITEMS = "mean of items"
    OTHER = "other"


ALONG: Table[Of, Along, Of] = Table(
    "Reducing one array",
    "Rows: the array.  Columns: what is done: sums and means along the axis of the rows, or along other axes only, and "
    "anything else, such as a maximum.  A matrix product sums along the axis that it contracts.",
    MEANINGS, """
             sum of rows  mean of rows  sum of items  mean of items  other
    same     same         same          -             -              same
    rows     sum          mean          rows          rows           differs
    differs  differs      differs       -             -              differs
    sum      sum          sum           -             -              differs
    mean     mean         mean          -             -              differs
    both     both         both          -             -              differs
    part     part         part          -             -              unknown
    """, rows=_TYPED, columns=Along, cells=Of, unreached="what has no rows has items only")


class Reducing(Word):
    """How the values of all replicas become one."""

    SUM = "SUM"
    MEAN = "MEAN"
    FIRST = "first replica"
    EACH = "own part"


REPLICAS: Table[Of, Reducing, Permission | Refusal] = Table(
    "Reducing over replicas",
    "Rows: what each replica contributes.  Columns: SUM and MEAN of all_reduce, of Strategy.reduce without an axis, "
    "and of an assignment with that aggregation; an assignment with the aggregation ONLY_FIRST_REPLICA; and an "
    "addition in a replica to its part of an ON_READ variable with the aggregation SUM.  A code is a warning and not "
    "an error.  RD40 is given only where the replicas have different numbers of rows.",
    {Permission.OK: "nothing is wrong for certain"}, """
             SUM   MEAN  first replica  own part
    same     RD37  ok    ok             RD37
    rows     ok    ok    ok             ok
    differs  ok    ok    ok             ok
    sum      ok    RD39  RD41           ok
    mean     RD38  RD40  ok             ok
    both     RD37  ok    ok             ok
    part     ok    RD39  RD41           ok
    """, rows=_TYPED, columns=Reducing, cells=Permission | Refusal)
