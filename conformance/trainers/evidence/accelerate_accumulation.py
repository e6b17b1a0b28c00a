"""The last of three batches, two of which make a step, has half its weight: `python accelerate_accumulation.py`."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([[0.0], [0.0], [10.0]]))
accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=2), torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(data, 1))
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(((model(x) - y) ** 2).mean())  # only the third has a gradient: -20
        optimizer.step()
        optimizer.zero_grad()
print(f"the weight is {model.weight.item():.4g}; 2 is the step by the only batch of its group")
