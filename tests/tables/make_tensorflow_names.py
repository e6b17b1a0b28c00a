"""Prints tensorflow_names.txt: the public names of TensorFlow, where it is installed.

    python tests/tables/make_tensorflow_names.py > tests/tables/tensorflow_names.txt
"""

import os
import tempfile
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

# Modules of Keras, and those that have other modules' names again or one for each kernel of the runtime.
LEFT_OUT = {"keras", "initializers", "losses", "metrics", "optimizers", "compat.v2", "raw_ops", "experimental.numpy"}
TABLE = 'tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([0], tf.int64))'
OBJECTS = f"""
tf.constant(1.0)
tf.constant("a")
tf.Variable(1.0)
tf.TensorShape([2])
tf.float32
tf.TensorSpec([2])
tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
tf.GradientTape()
tf.Module()
tf.TensorArray(tf.float32, 2)
tf.name_scope("a")
tf.function(abs)
tf.data.Dataset.range(3)
iter(tf.data.Dataset.range(3))
tf.data.Options()
tf.data.DatasetSpec(tf.TensorSpec([]))
tf.errors.InvalidArgumentError(None, None, "text")
tf.random.Generator.from_seed(1)
tf.train.Checkpoint()
tf.train.CheckpointManager(tf.train.Checkpoint(), "checkpoints", 1)
tf.train.ClusterSpec({{"worker": ["a:1"]}})
tf.train.Example()
tf.train.Features()
tf.train.Feature()
tf.train.BytesList()
tf.train.FloatList()
tf.train.Int64List()
tf.io.FixedLenFeature([], tf.int64)
tf.io.TFRecordOptions()
tf.io.TFRecordWriter("records")
tf.io.gfile.GFile("file", "w")
{TABLE}
tf.lookup.StaticHashTable({TABLE}, 0)
tf.lookup.StaticVocabularyTable({TABLE}, 1)
tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
tf.config.LogicalDeviceConfiguration()
tf.distribute.ReduceOp.SUM
tf.distribute.InputContext()
tf.distribute.get_strategy()
tf.distribute.get_replica_context()
tf.distribute.MirroredStrategy(["CPU:0"])
tf.distribute.MirroredStrategy(["CPU:0"]).extended
tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))
tf.keras.Sequential([tf.keras.layers.Dense(1)])
tf.keras.optimizers.SGD()
tf.keras.metrics.Mean()
"""


def names(value: object) -> list[str]:
    found = []
    for name in sorted(dir(value)):
        try:
            if not name.startswith("_"):
                getattr(value, name)
                found.append(name)
        except AttributeError:
            pass
        except Exception:  # such as a property that belongs to graphs
            found.append(name)
    return found


def modules(module: types.ModuleType, path: str) -> None:
    listed = names(module)
    print(f"{f'tf.{path}'.rstrip('.')} : {' '.join(listed)}")
    for name in listed if path != "compat.v1" else ():
        part, below = getattr(module, name), f"{path}.{name}".lstrip(".")
        if below == "experimental":
            import tensorflow._api.v2.experimental as part
        if (isinstance(part, types.ModuleType) and below not in LEFT_OUT
                and part.__name__.startswith("tensorflow._api")):
            modules(part, below)


if __name__ == "__main__":
    print(f"# Public names of TensorFlow {tf.__version__}: of its modules, and of objects; make_tensorflow_names.py.")
    modules(tf, "")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for expression in OBJECTS.split("\n")[1:-1]:
            print(f"{expression} : {' '.join(names(eval(expression)))}")
