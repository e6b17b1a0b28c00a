"""A model of Keras, trained by scheduled steps under a ParameterServerStrategy.

The mistake: BatchNormalization reads its moving statistics, and assigns them, in every step.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist
import refdist.tf as tf
from refdist.tf.keras import connect

CORRECTED = "corrected" in sys.argv
keras = connect()
x = np.float32([[0.0, 1.0], [2.0, 3.0], [4.0, 6.0], [8.0, 1.0]])
y = x[:, :1] - x[:, 1:]

strategy = make_strategy()
with strategy.scope():
    layer = keras.layers.LayerNormalization if CORRECTED else keras.layers.BatchNormalization
    model = keras.Sequential([layer(center=False, scale=False),
                              keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = keras.optimizers.SGD(0.125)
    model.build((None, 2))
    optimizer.build(model.trainable_variables)


def on_replica(features, labels):
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(keras.ops.square(model(features, training=True) - tf.convert_to_tensor(labels)))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def step(features, labels):
    strategy.run(on_replica, args=(features, labels))


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for begin in (0, 2):
    coordinator.schedule(step, args=(x[begin:begin + 2], y[begin:begin + 2]))
coordinator.join()
print(f"{int(optimizer.iterations)} steps")
