"""Two processes drop the same numbers: `torchrun --nproc-per-node 2 hf_dropout.py`."""

import os

from hf_model import Model, trainer

model = Model()
trainer(model, [1.0, 2.0], lambda outputs, labels, num_items_in_batch: (outputs - labels).sum()).train()
print(f"rank {os.environ['RANK']} keeps {model.kept}\n", end="")
