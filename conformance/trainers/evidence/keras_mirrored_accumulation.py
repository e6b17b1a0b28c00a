"""Accumulation ends with an error on two replicas: `python keras_mirrored_accumulation.py`."""

from keras_mirrored_model import weight

for replicas in (1, 2):
    print(replicas, "replica(s):", weight(replicas, [[1]] * 4, [[1]] * 4, 2, gradient_accumulation_steps=2))
