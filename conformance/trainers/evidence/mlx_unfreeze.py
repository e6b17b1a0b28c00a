"""A layer is unfrozen during training: `python mlx_unfreeze.py` ends with a KeyError."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

model, optimizer = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), optim.SGD(0.5)
model.layers[0].freeze()
step = nn.value_and_grad(model, lambda x: model(x).sum())
optimizer.update(model, step(mx.ones((2, 1)))[1])
model.layers[0].unfreeze()  # with optimizer.init(model.trainable_parameters()) it goes on
optimizer.update(model, step(mx.ones((2, 1)))[1])
