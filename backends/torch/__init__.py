"""PyTorch's tensors: as guests on simulated devices, and as a backend (`REFDIST_BACKEND=torch`)."""
