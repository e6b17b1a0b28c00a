"""A regularizer in `compute_loss_func` counts once for each process.

Run with `torchrun --nproc-per-node 1 hf_regularizer.py`, and with 2.
"""

from hf_model import Model, trainer

model = Model()  # at 1, where the rows have no loss: only the regularizer has a gradient, 1
done = trainer(model, [1.0, 1.0], lambda outputs, labels, num_items_in_batch:
               ((outputs - labels) ** 2).sum() / num_items_in_batch + 0.5 * model.weight ** 2).train()
print(f"the weight is {model.weight.item():.4g} after a step, whose loss is {done.training_loss:.4g}; "
      "0.9 and 0.5 are those of one process\n", end="")
