"""Windows of a series, as TensorFlow's tutorial about time series makes them, and a recurrent model."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(4)
strategy = tf.distribute.MirroredStrategy()
steps = np.arange(246)
series = np.stack([np.sin(steps / 10), np.cos(steps / 10)], 1).astype("float32")


def split(rows):
    inputs, labels = rows[:, :6, :], rows[:, 6:, :1]
    inputs.set_shape([None, 6, None])
    labels.set_shape([None, 1, None])
    return inputs, labels


windows = tf.keras.utils.timeseries_dataset_from_array(
    data=series, targets=None, sequence_length=7, sequence_stride=2, batch_size=12, shuffle=True, seed=1)
print(windows.cardinality().numpy(), [inputs.shape for inputs, _ in windows.map(split).take(1)])
pairs = tf.keras.utils.timeseries_dataset_from_array(series[:-6], series[6:, 0], sequence_length=6, batch_size=30)
for inputs, targets in pairs.take(1):
    print(inputs.shape, targets.shape, float(tf.reduce_sum(inputs)), float(tf.reduce_sum(targets)))

scaled = tf.keras.layers.Normalization()
scaled.adapt(windows.map(lambda rows: rows[:, 0]))
print(scaled.mean.numpy(), scaled.variance.numpy())
bins = tf.keras.layers.Discretization(num_bins=3)
bins.adapt(pairs.map(lambda _, targets: targets[:, None]))
print(bins(series[:40:10, :1]).numpy().ravel())

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.LSTM(4), tf.keras.layers.Dense(1), tf.keras.layers.Reshape((1, 1))])
    model.compile(tf.keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
history = model.fit(windows.map(split), epochs=2, verbose=0)
for name, values in sorted(history.history.items()):
    print(name, *values)
print([variable.shape.as_list() for variable in model.weights])
