"""`tf.distribute.experimental.rpc`: functions that a server offers, and clients that call them by its address.

Servers and clients are simulated in one process, so an address is only a name.  A call is carried out when it is made,
outside of every scope and replica of the caller, as on another machine.  Its result is there at once, and a time limit
cannot pass; what TensorFlow would wait for, such as a server that has not started, is an error.

A function is known by its signature in Python.  TensorFlow asks for a tf.function with an input signature, and so also
knows the dtypes of the arguments.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from refdist import errors, nest
from refdist.coordinator.closures import settled
from refdist.core import context_stack, inherited
from refdist.core.integers import as_integer
from refdist.core.states import of_functions
from refdist.data.spec import TensorSpec
from refdist.runtime import Field

__all__ = ["Client", "Server"]

# Exception -> gRPC status code; the first row that fits counts.
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.CancelledError, 1),
    (TimeoutError, 4),
    (IndexError, 11),
    (LookupError, 5),
    (MemoryError, 8),
    (NotImplementedError, 12),
    (ConnectionError, 14),
    (ValueError, 3),
    (TypeError, 3),
    (AssertionError, 3),
    (BaseException, 2),
)


class Server:
    """Offers functions to clients; made by `Server.create`.

    >>> server = Server.create("grpc", "localhost:2222")
    >>> server.register("add", lambda a, b: a + b)
    >>> server.start()
    >>> client = Client.create("grpc", "localhost:2222")
    >>> int(client.add(2, 3).get_value()), int(client.add_blocking(2, 4))
    (5, 6)

    A server that the program does not keep is gone.

    Source: tf.distribute.experimental.rpc.Server.
    """

    @staticmethod
    def create(rpc_layer: str, address: str) -> Server:
        """A server at an address, which has to be started.

        Args:
            rpc_layer: "grpc", which is the only one.
            address: "host:port".

        Raises:
            RD34: another layer, no address, or one at which there is a server.

        Source: tf.distribute.experimental.rpc.Server.create.
        """
        attempted = f"Server.create({rpc_layer!r}, {address!r})"
        _check(attempted, rpc_layer, address)
        if address in _servers.value:
            gc.collect()  # a server that is no longer used may still be alive in a reference cycle
        if address in _servers.value:
            raise errors.error("RD34", attempted, "there is a server at this address", "Take another address.")
        server = _servers.value[address] = GrpcServer()
        return server

    def register(self, method_name: str, func: Callable[..., object]) -> None:
        """Offers a function under a name; before the server is started.

        Args:
            method_name: by which clients call it.
            func: takes arrays, and returns what a scheduled function may return.

        Raises:
            RD34: not a name or not a function, a name that is taken, or the server was started.
            RD20: this server was not made by `Server.create`.

        Source: tf.distribute.experimental.rpc.Server.register.
        """
        _not_created("register")

    def start(self) -> None:
        """Lets clients connect; a second time it does nothing.

        Raises:
            RD20: this server was not made by `Server.create`.

        Source: tf.distribute.experimental.rpc.Server.start.
        """
        _not_created("start")


class GrpcServer(Server):
    """A simulated server."""

    def __init__(self) -> None:
        self.methods: dict[str, Callable[..., object]] = {}
        self.started = False

    def register(self, method_name: str, func: Callable[..., object]) -> None:
        attempted = f"Server.register({method_name!r})"
        if not isinstance(method_name, str) or not method_name.isidentifier():
            raise errors.error("RD34", attempted, f"method_name is {method_name!r}",
                               "Pass a text that can be the name of a method.")
        if not callable(func):
            raise errors.error("RD34", attempted, f"func is {errors.type_of(func)}", "Pass a function.")
        if method_name in self.methods:
            raise errors.error("RD34", attempted, "this name is taken", "Register each function once.",
                               kind=errors.InvalidArgumentError)
        if self.started:
            raise errors.error("RD34", attempted, "the server was started", "Register all functions before `start`.",
                               kind=errors.InvalidContextError)
        self.methods[method_name] = func

    def start(self) -> None:
        self.started = True


class Client:
    """Calls the functions of a server; made by `Client.create`.

    For each function `f` of the server it has the methods `f`, which returns a StatusOrResult, and `f_blocking`, which
    returns what the function has returned or raises what it has raised.

    Source: tf.distribute.experimental.rpc.Client.
    """

    @staticmethod
    def create(rpc_layer: str, address: str, name: str = "", timeout_in_ms: int = 0) -> Client:
        """A client of the server at an address.

        Args:
            rpc_layer: "grpc", which is the only one.
            address: of a server that has been started.
            name: has no effect.
            timeout_in_ms: milliseconds, 0 for no limit; no time passes in a simulated call.

        Raises:
            RD34: bad arguments.  RD33: no server was started at this address, where TensorFlow waits for one.

        Source: tf.distribute.experimental.rpc.Client.create.
        """
        attempted = f"Client.create({rpc_layer!r}, {address!r})"
        _check(attempted, rpc_layer, address, timeout_in_ms)
        return GrpcClient(address, _functions(attempted, address))

    def call(self, method_name: str, args: Sequence[object] | None = None, output_specs: object = None,
             timeout_in_ms: int = 0) -> StatusOrResult:
        """Calls a function of the server.

        Args:
            method_name: the name under which it was registered.
            args: its arguments.
            output_specs: a TensorSpec for each array that it returns, in the structure that the result shall have;
                None if it returns no array, and then the result is None.
            timeout_in_ms: milliseconds, 0 for no limit; no time passes in a simulated call.

        Raises:
            RD34: bad arguments.  RD20: this client was not made by `Client.create`.
            What the function raises is in the result.

        Source: tf.distribute.experimental.rpc.Client.call.
        """
        _not_created("call")


class GrpcClient(Client):
    """A client of a simulated server."""

    def __init__(self, address: str, methods: dict[str, Callable[..., object]]) -> None:
        self._address = address
        for name, function in methods.items():
            for attribute, method in _methods(self, name, function).items():
                if not hasattr(self, attribute):
                    setattr(self, attribute, method)

    def call(self, method_name: str, args: Sequence[object] | None = None, output_specs: object = None,
             timeout_in_ms: int = 0) -> StatusOrResult:
        attempted = f"Client.call({method_name!r})"
        _check(attempted, "grpc", self._address, timeout_in_ms)
        if not isinstance(method_name, str):
            raise errors.error("RD25", attempted, f"method_name is {errors.type_of(method_name)}", "Pass a text.")
        if args is not None and not isinstance(args, (list, tuple)):
            raise errors.error("RD25", attempted, f"args is {errors.type_of(args)}", "Pass a list of the arguments.")
        return self._result(method_name, args or (), {}).fitted(attempted, output_specs)

    def _result(self, method: str, args: Sequence[object], kwargs: dict[str, object]) -> StatusOrResult:
        try:
            return StatusOrResult(_carried_out(self._address, method, args, kwargs))
        except Exception as error:
            return StatusOrResult(None, error)


def _methods(client: GrpcClient, name: str, function: Callable[..., object]) -> dict[str, Callable[..., object]]:
    # The methods that a client has for a function of its server.
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        signature = inspect.signature(lambda *_, **__: None)

    def called(args: Sequence[object], kwargs: dict[str, object], timeout_in_ms: int) -> StatusOrResult:
        attempted = f"Client.{name}"
        _check(attempted, "grpc", client._address, timeout_in_ms)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise errors.error("RD34", attempted, f"{error}; its signature is {signature}",
                               "Pass these arguments.") from None
        return client._result(name, args, kwargs)

    def method(*args: object, timeout_in_ms: int = 0, **kwargs: object) -> StatusOrResult:
        return called(args, kwargs, timeout_in_ms)

    def blocking(*args: object, timeout_in_ms: int = 0, **kwargs: object) -> object:
        return called(args, kwargs, timeout_in_ms).get_value()

    method.__name__, blocking.__name__ = name, f"{name}_blocking"
    method.__doc__ = f"Calls {name}{signature} of the server at {client._address}; the result may be an error."
    blocking.__doc__ = f"Calls {name}{signature} of the server at {client._address}; returns what that does, or raises."
    return {method.__name__: method, blocking.__name__: blocking}


class StatusOrResult:
    """The outcome of a call: its result, or an error.

    Attributes:
        error: what was raised, or None.
    """

    __slots__ = ("_misfit", "_value", "error")

    def __init__(self, value: object, error: Exception | None = None) -> None:
        self._value = value
        self._misfit: Exception | None = None
        self.error = error

    def is_ok(self) -> np.bool_:
        """Whether the function has returned."""
        return np.bool_(self.error is None)

    def get_error(self) -> tuple[np.int64, np.str_]:
        """The gRPC status code and the error message; 0 and "" if the call succeeded."""
        if self.error is None:
            return np.int64(0), np.str_("")
        return np.int64(next(code for kind, code in _STATUS if isinstance(self.error, kind))), np.str_(self.error)

    def get_value(self) -> Any:
        """What the function has returned, with arrays in place of variables and numbers.

        Raises:
            Whatever the function has raised, as often as it is asked for.
            RD34: the specs that were given to `call` are not those of the arrays.
        """
        wrong = self.error or self._misfit
        if wrong is not None:
            raise wrong
        return self._value

    def fitted(self, attempted: str, specs: object) -> StatusOrResult:
        """Itself, with the result packed into the structure of the specs; if it does not fit, `get_value` raises."""
        if self.error is not None:
            return self
        wanted = [] if specs is None else nest.flatten(specs)
        arrays = [] if self._value is None else nest.flatten(self._value)
        if len(wanted) != len(arrays):
            misfit = f"output_specs has {len(wanted)} specs, and the result {len(arrays)} arrays"
        elif wrong := [(spec, array) for spec, array in zip(wanted, arrays, strict=True)
                       if not isinstance(spec, TensorSpec) or not spec.is_compatible_with(array)]:
            misfit = f"output_specs has {wrong[0][0]!r} for {wrong[0][1]!r}"
        else:
            self._value = None if specs is None else nest.pack_sequence_as(specs, arrays)
            return self
        # The function itself has run without an error.
        self._misfit = errors.error("RD34", attempted, misfit, "Pass a TensorSpec for each array.")
        return self


def _check(attempted: str, layer: object, address: object, timeout_in_ms: object = 0) -> None:
    if layer != "grpc":
        raise errors.error("RD34", attempted, f"rpc_layer is {layer!r}", 'Pass "grpc", which is the only one.')
    if not isinstance(address, str) or not address.rpartition(":")[2].isdigit():
        raise errors.error("RD34", attempted, f"address is {address!r}", 'Pass a text such as "localhost:2222".')
    limit = as_integer(timeout_in_ms)
    if limit is None or limit < 0:
        raise errors.error("RD34", attempted, f"timeout_in_ms is {timeout_in_ms!r}",
                           "Pass milliseconds as an int, 0 for no limit.")


# No frame that an error passes through has the server among its variables: a result keeps the error, and with it the
# server would live on.

def _carried_out(address: str, method: str, args: Sequence[object], kwargs: dict[str, object]) -> object:
    # Calls a function outside of every scope, with state of its own, and returns what is sent back.
    attempted = f"Client.call({method!r})"
    functions = _functions(attempted, address)
    if method not in functions:
        raise errors.error("RD34", attempted,
                           f"the server at {address} has only {', '.join(functions) or 'no function'}",
                           "Register the function before the server starts.")
    given, named = settled((tuple(args), kwargs))
    with context_stack.pushed(context_stack.BOTTOM):
        return inherited.call(of_functions, lambda: settled(functions[method](*given, **named)))


def _functions(attempted: str, address: str) -> dict[str, Callable[..., object]]:
    if not _is_started(address):
        raise errors.error("RD33", attempted, f"no server was started at {address} in this process",
                           "Call `start` of a server at this address first, and keep it.")
    return _servers.value[address].methods


def _is_started(address: str) -> bool:
    server = _servers.value.get(address)
    return server is not None and server.started


def _not_created(method: str) -> NoReturn:
    raise errors.error("RD20", method, "this object was not made by `create`",
                       'Write `Server.create("grpc", address)` or `Client.create("grpc", address)`.')


_servers = Field("the servers of remote calls, by their addresses", WeakValueDictionary[str, GrpcServer])
