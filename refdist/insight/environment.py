"""What asks for the recording of a whole program, which need not know it."""

VARIABLE = "REFDIST_RECORD"
