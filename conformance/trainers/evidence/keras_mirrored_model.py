"""A model of one weight under MirroredStrategy, for the programs beside it."""

import keras
import numpy as np
import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)


def model_of(replicas, columns, loss="mse", **optimizer):
    """A model whose weights begin at 0."""
    with tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)]).scope():
        dense = keras.layers.Dense(columns, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), dense, keras.layers.Reshape((-1, 1))])
        model.compile(keras.optimizers.SGD(**optimizer), loss)
    return model


def weight(replicas, x, y, batch_size, loss="mse", sample_weight=None, **optimizer):
    """The weight after an epoch."""
    model = model_of(replicas, np.shape(y)[1], loss, **optimizer)
    x, y = np.array(x, "float32"), np.array(y, "float32")[..., None]
    model.fit(x, y, batch_size, shuffle=False, verbose=0, sample_weight=sample_weight)
    return model.get_weights()[0].tolist()
