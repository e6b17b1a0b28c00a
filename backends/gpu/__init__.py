"""Real GPUs of one process, and NCCL between the GPUs of several."""
