"""TensorFlow's MirroredStrategy around Keras's `fit`: `python keras_mirrored.py`.

A process has strategies of one size only, because TensorFlow's collectives of two sizes disturb each other.
"""

import functools
import os

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

import tensorflow as tf
from keras_fit import LOCAL, caveat, main, note

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 4)
SHORT = {"what": "in fit, the sum is divided by the number of replicas times the batch size seen on the replica",
         "page": "https://www.tensorflow.org/tutorials/distribute/custom_training"}


def record(rows):
    def tell(x, numbers):
        context = tf.distribute.get_replica_context()
        if context is None:  # Keras looks at shapes
            return x
        arguments = [context.replica_id_in_sync_group, numbers]
        with tf.control_dependencies([tf.py_function(lambda *arguments: note(rows, *arguments), arguments, [])]):
            return tf.identity(x)
    return tell


@functools.cache
def strategy(replicas):
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def of_strategy(job):
    if any(layer["kind"] == "batch_norm" for layer in job["model"]) and not job["checkpoint"]:
        return LOCAL
    last = len(job["rows"]["x"]) % job["batch"] or job["batch"]
    short = job["clause"] in ("undivided-batch", "uneven-end", "empty-part") and last % job["replicas"]
    return SHORT if short else caveat(job)


main(record, of_strategy, lambda variable: [part.numpy() for part in variable.value.values],
     lambda job: strategy(job["replicas"]).scope())
