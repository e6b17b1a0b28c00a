"""refdist's MirroredStrategy around Keras's `fit`, on PyTorch: `python refdist_keras.py`."""

import os

os.environ["KERAS_BACKEND"] = "torch"

from keras import ops
from keras_fit import LOCAL, caveat, main, note

import refdist
from refdist.tf.keras import connect

connect()
SEEDS = {"what": "all replicas draw the same masks from a Dropout layer", "page": "docs/keras.md"}


def record(rows):
    def tell(x, numbers):
        replica = refdist.get_replica_context()
        if replica is not None and x.device.type != "meta":  # Keras looks at shapes
            note(rows, replica.replica_id_in_sync_group, numbers.detach())
        return x
    return tell


def of_layers(job):
    kinds = {layer["kind"] for layer in job["model"]}
    if "dropout" in kinds and job["replicas"] > 1:
        return SEEDS
    return LOCAL if "batch_norm" in kinds and not job["checkpoint"] else caveat(job)


def replicas(variable):
    return strategy.experimental_local_results(strategy.run(lambda: ops.convert_to_numpy(variable)))


def scope(job):
    global strategy
    strategy = refdist.MirroredStrategy([f"GPU:{number}" for number in range(job["replicas"])])
    return strategy.scope()


main(record, of_layers, replicas, scope)
