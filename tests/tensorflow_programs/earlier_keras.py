"""Names of Keras 2 that `tf.keras` still has: functions of the backend, a tokenizer, a layer without names."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K  # noqa: N812
from tensorflow.keras.preprocessing.sequence import pad_sequences
from tensorflow.keras.preprocessing.text import Tokenizer

tf.keras.utils.set_random_seed(4)
strategy = tf.distribute.MirroredStrategy()
tokenizer = Tokenizer(num_words=8, oov_token="<OOV>")
tokenizer.fit_on_texts(["a cat sat", "a dog"])
print(pad_sequences(tokenizer.texts_to_sequences(["a bird sat", "a cat"]), maxlen=4, padding="post").tolist())

x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
print(K.int_shape(x), K.ndim(x), K.mean(x, axis=0).numpy(), K.std(x).numpy(), K.dot(x, x).numpy().tolist())
print(K.concatenate([x, x]).numpy().tolist(), K.clip(x, 2, None).numpy().tolist(), K.l2_normalize(x, 1).numpy()[0])
print(K.binary_crossentropy([[0.0, 1.0]], [[0.2, 0.9]]).numpy(), K.eval(K.sum(x)), K.get_value(tf.Variable(2.0)))


def root_mean_squared_error(targets, outputs):
    return K.sqrt(K.mean(K.square(outputs - targets), axis=-1))


def explained(targets, outputs):
    return 1 - K.sum(K.square(targets - outputs)) / (K.sum(K.square(targets - K.mean(targets))) + K.epsilon())


class Linear(tf.keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 1), initializer="glorot_uniform")
        self.b = self.add_weight(shape=(1,), initializer="zeros")

    def call(self, rows):
        return K.dot(rows, self.w) + self.b


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), Linear()])
    model.compile("sgd", root_mean_squared_error, metrics=[explained])
rows = np.random.default_rng(0).normal(size=(32, 2)).astype("float32")
history = model.fit(rows, rows[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)
for name, values in sorted(history.history.items()):
    print(name, *values)
print([(variable.name, variable.path) for variable in model.weights])
print(tf.keras.losses.mse([1.0], [3.0]).numpy(), tf.compat.as_str(b"a"), tf.compat.as_bytes("a"))
words = tf.data.Dataset.from_tensors("a").repeat(2)
print(list(words.as_numpy_iterator()))
