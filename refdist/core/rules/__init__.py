"""The tables of rules: what a program may do and what happens then.  Code looks a cell up and carries it out.

table.py      what a table is: text, parsed against the types of its rows, columns and cells
options.py    the options that a program writes, which are rows and columns of tables: ReduceOp, VariableAggregation ...
calls.py      CALLS, who may call what where; MISMATCH, the error for calls that do not fit together
variables.py  CREATION, TRAINABLE, TRAITS, READS, OPERATIONS, WRITES, FOREIGN_WRITES, FOREIGN_UPDATES
values.py     REDUCE, what is reduced and gathered; RESULTS and LOCAL, what replicas' results become; DTYPES, MEAN_DTYPE
input.py      SHARDING and CUTS, who reads which rows; UNEVEN, what becomes of uneven ends; MODES
replica_types.py  ADDING, MULTIPLYING, DIVIDING, OTHERS, ALONG, what a value is to the other replicas; REPLICAS
advice.py     what to write instead

A cell is a member of an Enum, or a `Refusal` with the code of an error; "-" is a cell that no program reaches.  The
tables are printed in docs/tables.md, and docs/design.md lists the decisions that are not in them.  Nothing here touches
an array or knows a class of variables.

Three things keep tables and code from drifting apart:

* Each rule is in one place.  Code that has found its row and column does what the cell says, and asks nothing else.
  Where there are more than two kinds of cells it has a `match` with a case for each, which mypy checks.
* A table with a misspelt word or a missing row does not import.
* A test changes every cell, one at a time, and something that a program sees must change (`tests/cells.py`).

The advice in messages (what to write instead) is kept in three places: in `errors.CATALOGUE` if it holds for every
error of a code; in `advice.py` if it is for one call, or one read or write of a variable, that a table refuses; and
beside the `raise` if it needs the values found.

Tried before: `if` statements beside the work, and tables for the largest groups of conditions only.  Seventy-two cells
of those tables then decided nothing, and three of them were wrong.
"""
