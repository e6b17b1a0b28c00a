"""Each process draws weights of its own: `mlx.launch -n 2 python mlx_first_weights.py`."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

model, optimizer = nn.Linear(1, 1, bias=False), optim.SGD(0.0625)
step = nn.value_and_grad(model, lambda x: ((model(x) - 1) ** 2).mean())
for _ in range(100):
    loss, gradients = step(mx.ones((2, 1)))
    optimizer.update(model, nn.average_gradients(gradients))
print(f"rank {mx.distributed.init().rank()}: {model.weight.item():.4f} after 100 steps, and 1 is right\n", end="",
      flush=True)
