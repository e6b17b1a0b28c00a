"""A first batch that two replicas cannot halve ends with an error: `python keras_mirrored_first_batch.py`."""

import numpy as np
import tensorflow as tf
from keras_mirrored_model import model_of

x, y = np.ones((3, 1), "float32"), np.ones((3, 1, 1), "float32")
for batch_size in (2, 3):  # one row is left over in the second batch, or in the first
    for name in ("fit", "evaluate"):
        try:
            getattr(model_of(2, 1), name)(x, y, batch_size=batch_size, verbose=0)
            print(f"{name} of 3 rows in batches of {batch_size} ends well")
        except tf.errors.InvalidArgumentError as error:
            print(f"{name} of 3 rows in batches of {batch_size} ends with an error: {error.message[:200]}")
