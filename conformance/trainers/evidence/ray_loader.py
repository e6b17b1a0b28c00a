"""What is left of a loader after its first batch, of PyTorch's and of the same one prepared by Ray Train: `iter` of an
iterator is the iterator itself, and islice, zip and enumerate call it."""

import ray
from ray.train.torch import TorchTrainer, prepare_data_loader
from torch.utils.data import DataLoader


def loop():
    plain = DataLoader([0, 1, 2], batch_size=1)
    for name, loader in {"PyTorch": plain, "Ray Train": prepare_data_loader(plain)}.items():
        remaining = iter(loader)
        next(remaining)
        print(name, [batch.item() for batch in remaining])  # [1, 2] and [0, 1, 2]


ray.init(num_cpus=2)
TorchTrainer(loop, scaling_config=ray.train.ScalingConfig(num_workers=1)).fit()
