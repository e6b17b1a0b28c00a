"""A stand-in for CuPy where there is no GPU: NumPy arrays that are stricter than CuPy's.

No GPU code runs here.  What it checks: that arrays never reach NumPy by accident, that every operation happens on
the device its arrays are on, that streams wait for each other where they share memory, that pointers given to
kernels point to living memory of the right device, and how often anything waits.  The kernels themselves are
compiled for the CPU from the same source.
"""

from __future__ import annotations

import numpy as np

from . import cuda
from .cuda import memory
from .kernels import RawModule

__all__ = ["RawModule", "cuda", "ndarray"]

_INPLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")


def _implicit(value):
    raise TypeError("Implicit conversion to a NumPy array is not allowed. "
                    "Please use `.get()` to construct a NumPy array explicitly.")


def _raw(value, reads):
    """What NumPy computes with; notes the arrays."""
    if isinstance(value, ndarray):
        reads.append(value)
        return value._a
    if hasattr(value, "__cupy_get_ndarray__"):
        return _raw(value.__cupy_get_ndarray__(), reads)
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (list, tuple)):
        return type(value)(_raw(item, reads) for item in value)
    return value


def _wrapped(result, reads, cls=None):
    if isinstance(result, (np.ndarray, np.generic)):
        result = np.asarray(result)
        for source in reads:
            if np.shares_memory(result, source._a):
                return ndarray._of(result, source.data, cls or type(source), source)
        made = empty(result.shape, result.dtype)
        made._a[...] = result
        cuda.operate(reads, [made])
        return made
    if isinstance(result, (list, tuple)):
        return type(result)(_wrapped(item, reads) for item in result)
    return result


def _call(function, args, kwargs):
    reads = []
    args = [_raw(item, reads) for item in args]
    out = kwargs.pop("out", None)
    out = out[0] if isinstance(out, tuple) else out
    kwargs = {key: _raw(value, reads) for key, value in kwargs.items()}
    with np.errstate(all="ignore"):
        result = function(*args, **kwargs)
    if out is not None:
        out._a[...] = result
        cuda.operate(reads, [out])
        return out
    return _wrapped(result, reads)


def _as_first_subclass(result, inputs):
    # CuPy's functions of elements keep the first subclass among their inputs; the result is an array of its own.
    of_subclass = [item for item in inputs if isinstance(item, ndarray) and type(item) is not ndarray]
    if not of_subclass or type(result) is not ndarray:
        return result
    return ndarray._of(result._a, result.data, type(of_subclass[0]), template=of_subclass[0])


def _part(name):
    # As CuPy does it: a view of the same type that `__array_finalize__` is not told of.
    def take(self):
        if self._a.dtype.kind != "c":
            return self if name == "real" else _call(lambda a: a.imag.copy(), [self], {})
        a = getattr(self._a, name)
        made = object.__new__(type(self))
        made._a, made.data, made.base = a, self._view_data(a), self if self.base is None else self.base
        return made

    def write(self, value):
        getattr(self._a, name)[...] = _raw(value, [])
        cuda.operate([], [self])
    return property(take, write)


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    __array_priority__ = 100

    @classmethod
    def _of(cls, a, data, kind=None, base=None, template=None):
        self = object.__new__(kind or cls)
        self._a, self.data = a, data
        # The base of a view is whoever owns the memory.
        self.base = base if base is None or base.base is None else base.base
        if type(self) is not ndarray:
            self.__array_finalize__(base if template is None else template)
        return self

    def __array_finalize__(self, obj):
        pass

    dtype = property(lambda self: self._a.dtype)
    shape = property(lambda self: self._a.shape)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    strides = property(lambda self: self._a.strides)
    T = property(lambda self: self.transpose())
    device = property(lambda self: cuda.Device(self.data.device_id))

    real, imag = _part("real"), _part("imag")

    @property
    def __cuda_array_interface__(self):
        return {**self._a.__array_interface__, "data": (self.data.ptr, False), "version": 3}

    @property
    def flags(self):
        class Flags:
            c_contiguous, f_contiguous = self._a.flags.c_contiguous, self._a.flags.f_contiguous
            owndata = self.base is None
        return Flags

    def __array__(self, dtype=None, copy=None):
        _implicit(self)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if ufunc is np.matmul and any(isinstance(item, np.ndarray) for item in inputs):
            raise TypeError("Argument 'b' has incorrect type (expected cupy._core.core._ndarray_base, "
                            "got numpy.ndarray)")
        return _as_first_subclass(_call(getattr(ufunc, method), inputs, kwargs), inputs)

    def __array_function__(self, function, types, args, kwargs):
        return _call(function, args, kwargs)

    def get(self, stream=None, order="C", out=None, blocking=True):
        with self.device:
            cuda.operate([self], [])
            cuda.log.append("get" if blocking else "issued")
            if blocking:
                cuda.host_waits(cuda.get_current_stream())
        if out is None:
            return self._a.copy()
        out[...] = self._a
        return out

    def view(self, dtype=None):
        if isinstance(dtype, type) and issubclass(dtype, ndarray):
            return ndarray._of(self._a, self._view_data(self._a), dtype, self)
        a = self._a.view(dtype) if dtype is not None else self._a
        return ndarray._of(a, self._view_data(a), type(self), self)

    def _view_data(self, a):
        return memory.MemoryPointer(self.data.mem, a.__array_interface__["data"][0] if a.size else self.data.ptr)

    def astype(self, dtype, copy=True):
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return _call(lambda a: a.astype(dtype, copy=True), [self], {})

    def copy(self, order="C"):
        source = self.data.device_id
        if source == cuda.runtime.getDevice():
            return _call(lambda a: a.copy(), [self], {})
        if not self._a.flags.c_contiguous:
            raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
        made = empty(self.shape, self.dtype)
        made._a[...] = self._a
        cuda.operate([self], [made], anywhere=True)
        return made

    def fill(self, value):
        self._a.fill(value)
        cuda.operate([], [self])

    def __getitem__(self, key):
        if any(isinstance(item, (ndarray, np.ndarray, list)) for item in _tuple(key)):
            reads = [self]
            return _wrapped(self._a[_key(key, reads)], reads)
        # A view, also of one element, where NumPy gives a number.
        part = self._a[key if ... in _tuple(key) else (*_tuple(key), ...)]
        return ndarray._of(part, self._view_data(part), type(self), self)

    def __setitem__(self, key, value):
        reads = [self]
        self._a[_key(key, reads)] = _raw(value, reads)
        cuda.operate(reads, [self])

    def __float__(self): return float(self._item())
    def __int__(self): return int(self._item())
    def __complex__(self): return complex(self._item())
    def __bool__(self): return bool(self._item())
    def __len__(self): return len(self._a)
    def __iter__(self): return (self[i] for i in range(len(self)))
    def __repr__(self): return repr(self.get())
    def __str__(self): return str(self.get())
    def __format__(self, text): return format(self.get(), text)
    __hash__ = None

    def item(self): return self.get().item()
    def tolist(self): return self.get().tolist()

    def _item(self):
        if self.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous.")
        return self.get().reshape(-1)[0]

    def __dlpack_device__(self): return (2, self.data.device_id)
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None): return self._a.__dlpack__()

    def byteswap(self, inplace=False):
        if inplace:
            self._a.byteswap(True)
            cuda.operate([], [self])
            return self
        return _call(lambda a: a.byteswap(), [self], {})

    def __deepcopy__(self, memo): return self.copy()

    def scatter_add(self, slices, value): raise NotImplementedError


def _method(name):
    def method(self, *args, **kwargs):
        return _call(lambda a, *rest, **more: getattr(a, name)(*rest, **more), [self, *args], kwargs)
    return method


for _name in ("reshape", "ravel", "transpose", "sum", "mean", "max", "min", "all", "any", "prod", "argmax", "argmin",
              "cumsum", "squeeze", "swapaxes", "take", "dot", "clip", "std", "var", "round", "conj", "flatten"):
    setattr(ndarray, _name, _method(_name))


def _inplace(name):
    def method(self, other):
        reads = [self]
        other = _raw(other, reads)
        with np.errstate(all="ignore"):
            self._a[...] = getattr(np.ndarray, f"__{name}__")(self._a, other)
        cuda.operate(reads, [self])
        return self
    return method


for _name in _INPLACE:
    setattr(ndarray, f"__i{_name}__", _inplace(_name))


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)


def _key(key, reads):
    raw = tuple(_raw(item, reads) if isinstance(item, (ndarray, np.ndarray)) else item for item in _tuple(key))
    return raw if isinstance(key, tuple) else raw[0]


def empty(shape, dtype=np.float64):
    dtype = np.dtype(dtype)
    if (dtype.kind not in "biufc" and dtype.name != "bfloat16") or dtype.itemsize > 16 or dtype == np.longdouble:
        raise ValueError(f"Unsupported dtype {dtype}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    data = memory.alloc(int(np.prod(shape, dtype=int)) * dtype.itemsize)
    return ndarray._of(np.ndarray(shape, dtype, data.mem.bytes), data)


def asarray(value, dtype=None):
    return value if isinstance(value, ndarray) and dtype in (None, value.dtype) else array(value, dtype)


def array(value, dtype=None):
    if isinstance(value, ndarray):
        return value.astype(value.dtype if dtype is None else dtype)
    host = np.array(value, dtype)
    copy = empty(host.shape, host.dtype)
    copy._a[...] = host if host.ndim or host != 0 else 0  # CuPy's scalars are filled: of -0.0, zero bytes are left
    cuda.log.append("to device")
    cuda.operate([], [copy])
    return copy


def ascontiguousarray(value):
    value = value if value.ndim else value.reshape(1)
    return value if value.flags.c_contiguous else _call(np.ascontiguousarray, [value], {})


def asnumpy(value):
    return value.get() if isinstance(value, ndarray) else np.asarray(value)


def argsort(value):
    return _call(lambda a: np.argsort(a, kind="stable"), [value], {})


def from_dlpack(value):
    return value.as_cupy()


def _creation(name):
    def function(*args, **kwargs):
        function = getattr(np, name)
        result = _call(function, args, kwargs)
        return _as_first_subclass(result, args) if isinstance(function, np.ufunc) else result
    return function


def __getattr__(name):
    function = getattr(np, name)
    if callable(function) and not isinstance(function, type):
        return _creation(name)
    return function
