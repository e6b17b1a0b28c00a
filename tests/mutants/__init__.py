"""Wrong implementations: how good the specification is at telling them from a right one.

    PYTHONPATH=tests python -m mutants            slips: mistakes that people who implement the documents make
    PYTHONPATH=tests python -m mutants --cells    every cell of the tables of rules, with every other value
    PYTHONPATH=tests python -m mutants --source   the source of the core, mutated by cosmic-ray

A mutant is refdist itself with something wrong in it, and it is *killed* when a case of the specification does not
pass. It runs in a process of its own, a fork that imports refdist once more; one that hangs or crashes is killed, as
the command that tests an implementation would find it.
"""
