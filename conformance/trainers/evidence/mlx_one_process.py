"""mlx.launch cannot start one process: `mlx.launch -n 1 python mlx_one_process.py` fails; `python` alone does not."""

import mlx.core as mx

print(mx.distributed.all_sum(mx.array(1.0)).item(), "is 1.0")
