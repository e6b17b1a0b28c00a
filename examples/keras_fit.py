"""A digit classifier with Keras, as it is written for TensorFlow: `fit` on several replicas.

    pip install keras torch ml_dtypes scikit-learn
    python examples/keras_fit.py                        # 4 replicas on simulated devices
    python -m refdist run --workers 2 examples/keras_fit.py
    python -m refdist launch -n 2 examples/keras_fit.py

The batch is the global one: however many replicas there are, the losses are those of one.
"""

from __future__ import annotations

import os

from sklearn.datasets import load_digits

import refdist
from refdist.tf.keras import connect

keras = connect()

if "TF_CONFIG" in os.environ:
    strategy = refdist.MultiWorkerMirroredStrategy()
else:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2", "CPU:3"])
print(f"{strategy.num_replicas_in_sync} replicas")

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
keras.utils.set_random_seed(1)

with strategy.scope():
    model = keras.Sequential([
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(10),
    ])
    model.compile(optimizer=keras.optimizers.Adam(0.01),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])

history = model.fit(x[:1536], y[:1536], batch_size=64, epochs=5, shuffle=False, verbose=0)
for epoch, loss in enumerate(history.history["loss"], 1):
    print(f"epoch {epoch}: loss {loss:.4f}")
loss, accuracy = model.evaluate(x[1536:], y[1536:], batch_size=64, verbose=0)
print(f"loss {loss:.4f}, accuracy {accuracy:.3f} of rows that were not trained on")
