"""`eval_loss` depends on the number of processes: `torchrun --nproc-per-node 1 hf_eval_loss.py`, and with 2."""

import os

from hf_model import Model, trainer

rows = [1.0] * 9  # the model is right about all but the last
data = [{"x": row, "labels": row + (number == 8)} for number, row in enumerate(rows)]
tried = trainer(Model(), rows, lambda outputs, labels, num_items_in_batch:
                ((outputs - labels) ** 2).sum() / num_items_in_batch)
tried.args.per_device_eval_batch_size = 8 // int(os.environ["WORLD_SIZE"])
print(f"eval_loss is {tried.evaluate(data)['eval_loss']:.4g}; the mean of 9 rows is {1 / 9:.4g}\n", end="")
