"""A masked mean is one of means, on two replicas: `python keras_mirrored_mask.py`."""

import keras
import numpy as np
from keras_mirrored_model import weight

for replicas in (1, 2):
    mean = keras.losses.MeanSquaredError("mean_with_sample_weight")
    moved = weight(replicas, [[0], [1]], [[0, 0, 0], [8, 0, 0]], 2, mean, np.array([[1, 1, 1], [1, 0, 0]], "float32"),
                   learning_rate=0.25)
    print(f"{replicas} replica(s): the weights are {moved}; the first of 4 targets that count has a gradient, -16 / 4")
