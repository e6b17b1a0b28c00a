"""Embeddings of words in a table that is split over two parameter servers, trained towards their neighbours.

The mistake: a step reads the table, changes the rows of its words, and assigns the table.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
WORDS, WIDTH = 4, 2
sentences = [np.array([0, 2]), np.array([1, 3])]

strategy = make_strategy(shards=2)
with strategy.scope():
    table = refdist.Variable(np.ones((WORDS, WIDTH), np.float32), name="table")


def step(words):
    if CORRECTED:
        gradient = 2.0 * refdist.nn.embedding_lookup(table, words) - 1.0
        table.scatter_sub(refdist.IndexedSlices(0.25 * gradient, words))
    else:
        rows = np.array(table)
        rows[words] -= 0.25 * (2.0 * rows[words] - 1.0)
        table.assign(rows)


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for sentence in sentences:
    coordinator.schedule(step, args=(sentence,))
coordinator.join()
print(np.array(table))
