"""The environment variable that has a whole program recorded; it is read before what records is imported."""

VARIABLE = "REFDIST_RECORD"
