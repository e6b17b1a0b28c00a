"""A training loop for TensorFlow, which recognizes handwritten digits; runs unchanged on TensorFlow and without it.

    python -m refdist run --tensorflow examples/tensorflow_digits.py --replicas 4
"""

import argparse
import os
import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--replicas", type=int, default=2)
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

GLOBAL_BATCH = 64
digits = load_digits()
images = (digits.images[..., None] / 16).astype(np.float32)
labels = digits.target.astype(np.int64)
train = tf.data.Dataset.from_tensor_slices((images[:1536], labels[:1536])).batch(GLOBAL_BATCH)
test = tf.data.Dataset.from_tensor_slices((images[1536:], labels[1536:])).batch(GLOBAL_BATCH)

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(options.replicas)])
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(options.replicas)])
tf.keras.utils.set_random_seed(1)


def make_model():
    return tf.keras.Sequential([
        tf.keras.layers.Conv2D(8, 3, activation="relu"), tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, kernel_regularizer=tf.keras.regularizers.L2(1e-5))])


with strategy.scope():
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(0.01)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)


def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = tf.nn.compute_average_loss(loss_object(y, logits), global_batch_size=GLOBAL_BATCH)
        loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def test_step(inputs):
    x, y = inputs
    accuracy.update_state(y, model(x, training=False))


@tf.function
def distributed_train_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def distributed_test_step(inputs):
    strategy.run(test_step, args=(inputs,))


for epoch in range(options.epochs):
    losses = [float(distributed_train_step(batch)) for batch in strategy.experimental_distribute_dataset(train)]
    accuracy.reset_state()
    for batch in strategy.experimental_distribute_dataset(test):
        distributed_test_step(batch)
    print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, accuracy {float(accuracy.result()):.3f}")

path = checkpoint.save(os.path.join(tempfile.mkdtemp(), "digits"))
restored = make_model()
tf.train.Checkpoint(model=restored).restore(path).expect_partial()
right = [np.asarray(tf.argmax(restored(x), axis=1)) == np.asarray(y) for x, y in test]
print(f"restored without a strategy: accuracy {np.concatenate(right).mean():.3f}")
