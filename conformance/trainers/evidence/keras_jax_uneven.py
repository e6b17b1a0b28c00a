"""Rows that cannot be shared out evenly end with an error: `python keras_jax_uneven.py`."""

import os

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((9, 1)), np.ones((9, 1)), 8, verbose=0)
