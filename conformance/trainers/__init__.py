"""The level `trainer`: tests for programs that train on several replicas.

A trainer is whatever reads rows and updates weights: a loop of one's own, Keras's `fit`, a framework's Trainer.  To the
suite it is a command.  `runner.py` starts the command with a file of jobs, and reads its answers; jobs and answers are
data (`jobs.py`, `jobs.schema.json`, `answers.schema.json`).  `reference.py` computes the right answers with one worker
that reads the global batch, and `checks.py` compares.  `clauses.py` says what a trainer must do, and who promises it.
"""
