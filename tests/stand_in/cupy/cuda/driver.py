"""The class of the driver's errors."""


class CUDADriverError(RuntimeError):
    pass
