"""A table of text and numbers: layers that prepare it, a wide and deep model, and its file."""

import re
import string

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(7)
random = np.random.default_rng(0)
table = {"age": random.integers(20, 80, 48), "pressure": random.normal(130, 10, 48).astype("float32"),
         "kind": random.choice(["fixed", "normal", "other"], 48).astype(object),
         "city": random.choice(["Paris", "Rome", "Oslo"], 48).astype(object)}
targets = random.integers(0, 2, 48)


def dataset_of(rows):
    columns = {name: values[rows] for name, values in table.items()}
    return tf.data.Dataset.from_tensor_slices((columns, targets[rows])).batch(16).prefetch(2)


train, validation = dataset_of(slice(32)), dataset_of(slice(32, None))
[(features, labels)] = train.take(1)
print(list(features), features["kind"][:4], labels[:4])


def normalized(name):
    layer = layers.Normalization(axis=None)
    layer.adapt(train.map(lambda rows, _: rows[name]))
    return layer


def encoded(name, lookup):
    lookup.adapt(train.map(lambda rows, _: rows[name]))
    encoding = layers.CategoryEncoding(num_tokens=lookup.vocabulary_size(), output_mode="one_hot")
    return lambda column: encoding(lookup(column))


inputs = {"pressure": keras.Input((1,), name="pressure"), "age": keras.Input((1,), name="age", dtype="int64"),
          **{name: keras.Input((1,), name=name, dtype="string") for name in ("kind", "city")}}
columns = [
    normalized("pressure")(inputs["pressure"]),
    layers.CategoryEncoding(4, "one_hot")(layers.Discretization([120.0, 130.0, 140.0])(inputs["pressure"])),
    encoded("age", layers.IntegerLookup(max_tokens=5))(inputs["age"]),
    encoded("kind", layers.StringLookup())(inputs["kind"]),
    layers.CategoryEncoding(6, "multi_hot")(layers.Hashing(6)(inputs["city"])),
]
wide = layers.concatenate(columns)
deep = layers.Dense(4, activation="relu")(wide)
model = keras.Model(inputs, layers.Dense(1)(layers.concatenate([layers.BatchNormalization()(wide), deep])))
model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True),
              metrics=[keras.metrics.AUC(from_logits=True, name="auc")])
history = model.fit(train, epochs=2, validation_data=validation, verbose=0)
for name, values in sorted(history.history.items()):
    print(name, *values)
model.save("model.keras")
loaded = keras.models.load_model("model.keras")
row = {"pressure": 130.0, "age": 33, "kind": "fixed", "city": "Rome"}
print(loaded.predict({name: tf.convert_to_tensor([value]) for name, value in row.items()}, verbose=0))
print(loaded.evaluate(validation, return_dict=True, verbose=0))


@keras.utils.register_keras_serializable("features")
def plain(texts):
    return tf.strings.regex_replace(tf.strings.lower(texts), f"[{re.escape(string.punctuation)}]", "")


words = layers.TextVectorization(standardize=plain, output_sequence_length=3)
words.adapt(["Good, good film!", "Bad film."])
model = keras.Sequential([keras.Input((1,), dtype="string"), words, layers.Embedding(words.vocabulary_size(), 2),
                          layers.GlobalAveragePooling1D()])
texts = tf.constant([["A bad film"], ["GOOD!"]])
model.save("words.keras")
loaded = keras.models.load_model("words.keras")
print(words.get_vocabulary(), bool(tf.reduce_all(model(texts) == loaded(texts))), loaded.layers[0](texts).numpy())
