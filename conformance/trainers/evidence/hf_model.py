"""A model of one weight and a Trainer for it, for the programs beside it."""

import os

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        self.kept = torch.nn.functional.dropout(torch.ones(16)).int().tolist()
        return self.weight * x


def trainer(model, rows, loss, **given):
    arguments = transformers.TrainingArguments(
        "hf_out", per_device_train_batch_size=2 // int(os.environ["WORLD_SIZE"]), num_train_epochs=1, max_grad_norm=0.0,
        save_strategy="no", use_cpu=True, report_to=[], disable_tqdm=True, label_names=["labels"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return transformers.Trainer(model, arguments, train_dataset=[{"x": row, "labels": row} for row in rows],
                                compute_loss_func=loss, optimizers=(optimizer, None), **given)
