"""The level `trainer`: programs that train on several replicas are given jobs, and their answers are judged.

A trainer is whatever reads rows and moves weights: a loop of one's own, Keras's `fit`, a framework's Trainer.  What it
is told and what it answers is data (`jobs.py`, `jobs.schema.json`, `answers.schema.json`), and it is one command, which
`runner.py` starts with a file of jobs.  What the answers should be is computed by `reference.py`, one worker that reads
the global batch, and compared by `checks.py`.  `clauses.py` says what a trainer must do, and who promises it.
"""
