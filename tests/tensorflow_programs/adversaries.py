"""Models without `call`: a GAN with two optimizers and noise on its labels, an autoencoder that draws numbers."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(4)
pictures = np.random.default_rng(0).random((24, 4, 4, 1)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(pictures).batch(8)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, size):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.size = size

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real):
        batch_size = tf.shape(real)[0]
        vectors = 0.3 * tf.ones(shape=(batch_size, self.size))
        both = tf.concat([self.generator(vectors), real], axis=0)
        labels = tf.concat([tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0)
        labels += 0.05 * tf.random.stateless_uniform(tf.shape(labels), seed=[1, 2])
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_weights, strict=True))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros((batch_size, 1)), self.discriminator(self.generator(vectors)))
        gradients = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights, strict=True))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


class Monitor(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        print("built:", self.model.built)

    def on_epoch_end(self, epoch, logs=None):
        images = self.model.generator(tf.zeros((3, self.model.size))) * 255
        print(epoch, images.shape, sorted(logs))


discriminator = keras.Sequential(
    [keras.Input((4, 4, 1)), layers.Conv2D(2, 3, strides=2), layers.LeakyReLU(), layers.Flatten(),
     layers.Dense(1, activation="sigmoid")])
generator = keras.Sequential(
    [keras.Input((3,)), layers.Dense(8), layers.Reshape((2, 2, 2)),
     layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid")])
gan = GAN(discriminator, generator, 3)
gan.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy())
history = gan.fit(dataset, epochs=2, callbacks=[Monitor()], verbose=0)
for name, values in sorted(history.history.items()):
    print(name, *values)


class Sampling(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        drawn = keras.random.normal(keras.ops.shape(mean), seed=self.seed_generator)
        return mean + keras.ops.exp(0.5 * log_var) * drawn


class Autoencoder(keras.Model):
    def __init__(self, encoder, decoder, **options):
        super().__init__(**options)
        self.encoder, self.decoder = encoder, decoder
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, drawn = self.encoder(data)
            losses = keras.losses.binary_crossentropy(data, self.decoder(drawn))
            loss = tf.reduce_mean(tf.reduce_sum(losses, axis=(1, 2)))
            loss += tf.reduce_mean(-0.5 * (1 + log_var - tf.square(mean) - tf.exp(log_var)))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


given = keras.Input((4, 4, 1))
hidden = layers.Flatten()(given)
parts = [layers.Dense(2, name="mean")(hidden), layers.Dense(2, name="log_var")(hidden)]
encoder = keras.Model(given, [*parts, Sampling()(parts)])
decoder = keras.Sequential([keras.Input((2,)), layers.Dense(16, activation="sigmoid"), layers.Reshape((4, 4, 1))])
model = Autoencoder(encoder, decoder)
model.compile(keras.optimizers.Adam(0.01))
print(*model.fit(pictures, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"])
print(model.encoder.predict(pictures[:2], verbose=0)[0], len(model.trainable_weights))
