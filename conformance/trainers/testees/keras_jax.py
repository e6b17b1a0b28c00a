"""Keras's own DataParallel on JAX, around `fit`: `python keras_jax.py`."""

import os
from contextlib import nullcontext

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import keras
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from keras_fit import caveat, main, note


def record(rows):
    mesh = jax.make_mesh((len(rows),), ("batch",), (AxisType.Auto,), devices=jax.devices()[:len(rows)])

    def tell(x, numbers):
        replicas = jax.lax.with_sharding_constraint(jax.numpy.arange(len(rows)),
                                                    NamedSharding(mesh, PartitionSpec("batch")))
        jax.debug.callback(lambda replica, numbers: note(rows, replica[0], numbers), replicas, numbers,
                           partitioned=True)
        return x
    return tell


def replicas(variable):
    return [shard.data for shard in sorted(variable.value.addressable_shards, key=lambda shard: shard.device.id)]


def distribute(job):
    devices = [f"cpu:{number}" for number in range(job["replicas"])]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    return nullcontext()


main(record, caveat, replicas, distribute)
