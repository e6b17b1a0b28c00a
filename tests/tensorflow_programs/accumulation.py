"""Gradients of several batches are added up before a step, by a model of the program's own; averages of weights."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(4)
strategy = tf.distribute.MirroredStrategy()
random = np.random.default_rng(0)
x = random.normal(size=(64, 4)).astype("float32")
y = (x @ random.normal(size=(4, 1))).astype("float32")


class Accumulating(tf.keras.Model):
    def __init__(self, batches, **options):
        super().__init__(**options)
        self.batches = tf.constant(batches, dtype=tf.int32)
        self.count = tf.Variable(0, dtype=tf.int32, trainable=False)
        self.sums = [tf.Variable(tf.zeros_like(v, dtype=tf.float32), trainable=False) for v in self.trainable_variables]

    def train_step(self, data):
        self.count.assign_add(1)
        features, labels = data
        with tf.GradientTape() as tape:
            outputs = self(features, training=True)
            loss = self.compute_loss(features, labels, outputs)
        for total, gradient in zip(self.sums, tape.gradient(loss, self.trainable_variables), strict=True):
            total.assign_add(gradient)
        tf.cond(tf.equal(self.count, self.batches), self.apply, lambda: None)
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(labels, outputs)
        return {metric.name: metric.result() for metric in self.metrics}

    def apply(self):
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables, strict=True))
        self.count.assign(0)
        for total, variable in zip(self.sums, self.trainable_variables, strict=True):
            total.assign(tf.zeros_like(variable, dtype=tf.float32))


class Warmup(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        return 0.1 * tf.math.minimum(tf.math.rsqrt(step + 1), (step + 1) * 0.1)


inputs = tf.keras.Input((4,))
model = Accumulating(2, inputs=[inputs], outputs=[tf.keras.layers.Dense(1)(inputs)])
model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
for name, values in sorted(history.history.items()):
    print(name, *values)

with strategy.scope():
    average = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    average.compile(tf.keras.optimizers.SGD(Warmup(), momentum=0.9, use_ema=True, ema_momentum=0.5), "mse")
print(*average.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"])
print(average.get_weights()[0].ravel(), average.optimizer.iterations.numpy())
