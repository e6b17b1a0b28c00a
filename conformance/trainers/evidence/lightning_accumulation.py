"""The last of three batches, two of which make a step, has half its weight: `python lightning_accumulation.py`."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, number):
        return ((batch[0] * self.weight - batch[1]) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


# Only the third has a gradient: -20.
data = TensorDataset(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 10.0]))
module = Module()
lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, accumulate_grad_batches=2, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False).fit(module, DataLoader(data, 1))
print(f"the weight is {module.weight.item():.4g}; 2 is the step by the only batch of its group")
