"""Two processes that were seeded drop the same numbers: `torchrun --nproc-per-node 2 lightning_dropout.py`."""

import lightning
import torch
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, number):
        kept = torch.nn.functional.dropout(torch.ones(16)).int().tolist()
        print(f"rank {self.global_rank} keeps {kept}\n", end="")
        return (self.weight * batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


lightning.seed_everything(7, verbose=False)
lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(Module(), DataLoader(torch.ones(2)))
