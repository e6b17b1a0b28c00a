"""Two replicas drop the same numbers: `python keras_mirrored_dropout.py`."""

import keras
import numpy as np
import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dropout(0.5, seed=7), dense])
    model.compile(keras.optimizers.SGD(0.5), "mse")
model.fit(np.ones((2, 16)), np.ones((2, 1)), 2, verbose=0)
counts = model.get_weights()[0].ravel().astype(int).tolist()
print(f"of two rows, one a replica, a column is kept in {counts}; two masks of 16 would differ in about half")
