"""The loss that is reported is a mean of masked means on two replicas: `python keras_mirrored_masked_loss.py`."""

import keras
import numpy as np
from keras_mirrored_model import model_of

x, y = np.array([[0], [1]], "float32"), np.array([[[1], [1], [1]], [[3], [9], [9]]], "float32")
mask = np.array([[1, 1, 1], [1, 0, 0]], "float32")
for replicas in (1, 2):
    model = model_of(replicas, 3, keras.losses.MeanSquaredError("mean_with_sample_weight"), learning_rate=0.0)
    [trained] = model.fit(x, y, 2, verbose=0, sample_weight=mask).history["loss"]
    validated = model.evaluate(x, y, 2, verbose=0, sample_weight=mask)
    print(f"{replicas} replica(s): the loss is {trained:.4g} and {validated:.4g}; of the 4 targets that count, 12 / 4")
