"""A step is twice as long as `global_clipnorm` allows, on two replicas: `python keras_mirrored_clip.py`."""

from keras_mirrored_model import weight

for name in ("global_clipnorm", "clipnorm", "clipvalue"):
    for replicas in (1, 2):
        moved = weight(replicas, [[1], [1]], [[10], [10]], 2, learning_rate=1.0, **{name: 1.0})
        print(f"{name}=1 and a learning rate of 1, {replicas} replica(s): a step of {moved}")
