"""Averages of weights beside them, shapes that are asserted, and moments with weights."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(3)
strategy = tf.distribute.MirroredStrategy()
GLOBAL = 16
x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
y = np.sin(x.sum(1, keepdims=True)).astype(np.float32)

with strategy.scope():
    w1 = tf.Variable(tf.random.stateless_normal([6, 8], seed=[1, 2]) * 0.3, name="w1")
    b1 = tf.Variable(tf.zeros([8]), name="b1")
    w2 = tf.Variable(tf.random.stateless_normal([8, 1], seed=[3, 4]) * 0.3, name="w2")
    ema = tf.train.ExponentialMovingAverage(decay=0.9)
    opt = tf.keras.optimizers.Adam(1e-2)
    params = [w1, b1, w2]
    opt.build(params)
    ema.apply(params)


def forward(inp):
    tf.debugging.assert_shapes([(inp, ("N", 6)), (w1, (6, "H")), (w2, ("H", 1))])
    h = tf.nn.relu(tf.matmul(inp, w1) + b1)
    return tf.matmul(h, w2)


def step(inputs):
    a, b = inputs
    with tf.GradientTape() as tape:
        out = forward(a)
        weights = tf.abs(a[:, :1])
        mean, var = tf.nn.weighted_moments(out - b, axes=[0], frequency_weights=weights)
        loss = tf.nn.compute_average_loss(tf.reduce_sum(tf.square(out - b), -1), global_batch_size=GLOBAL)
    g = tape.gradient(loss, params)
    opt.apply_gradients(zip(g, params, strict=True))
    return loss, tf.squeeze(mean), tf.squeeze(var)


@tf.function
def dist_step(inputs):
    loss, m, v = strategy.run(step, args=(inputs,))
    return (strategy.reduce("SUM", loss, axis=None), strategy.reduce("MEAN", m, axis=None),
            strategy.reduce("MEAN", v, axis=None))


ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL)
for i, batch in enumerate(strategy.experimental_distribute_dataset(ds)):
    loss, m, v = dist_step(batch)
    with strategy.scope():
        ema.apply(params)
    print(i, loss.numpy(), m.numpy(), v.numpy(), tf.norm(ema.average(w1)).numpy(), ema.name)
for p in params:
    p.assign(ema.average(p))
print(float(tf.reduce_mean(tf.square(forward(tf.constant(x)) - y))))
with strategy.scope():
    ema2 = tf.train.ExponentialMovingAverage(0.99, num_updates=4)
with strategy.scope():
    ema2.apply([b1])
b1.assign(tf.ones_like(b1))
with strategy.scope():
    ema2.apply([b1])
print(ema2.average(b1).numpy().ravel()[:3])
mx = tf.tensor_scatter_nd_max(tf.zeros([4]), [[1], [1], [3]], [3.0, 2.0, -1.0])
mn = tf.tensor_scatter_nd_min(tf.zeros([4]), [[1], [1], [3]], [3.0, 2.0, -1.0])
print(mx.numpy(), mn.numpy())
