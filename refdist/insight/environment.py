"""The environment variable that records a whole program; it is read before modules that record are imported."""

VARIABLE = "REFDIST_RECORD"
