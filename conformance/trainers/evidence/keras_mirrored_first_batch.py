"""A first batch that two replicas cannot halve ends with an error: `python keras_mirrored_first_batch.py`."""

from keras_mirrored_model import weight

for batch_size in (2, 3):  # one row is left over in the second batch, or in the first
    moved = weight(2, [[1]] * 3, [[1]] * 3, batch_size)
    print(f"3 rows in batches of {batch_size}: the weight is {moved}")
