"""Each process has its own statistics: `mlx.launch -n 2 python mlx_batch_norm.py`."""

import mlx.core as mx
import mlx.nn as nn

rank = mx.distributed.init().rank()
model = nn.BatchNorm(1, momentum=1.0)
loss, gradients = nn.value_and_grad(model, lambda x: model(x).sum())(mx.full((4, 1), 100.0 * rank))
mx.eval(model.update(nn.average_gradients(gradients)))
print(f"rank {rank}: the moving mean is {model.running_mean.item():.4g}; that of all rows is 50\n", end="", flush=True)
