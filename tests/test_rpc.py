"""Remote calls, as far as the chapter remote_calls does not say it: errors, contexts, and what happens to arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import errors
from refdist.experimental import rpc
from refdist.runtime import process
from refdist.tf import TensorSpec

ADDRESS = "localhost:2222"


@pytest.fixture(autouse=True)
def no_servers() -> Iterator[None]:
    # Else one that a failed test still holds would be there.
    with process.fresh():
        yield


def served(**functions: Any) -> tuple[rpc.Server, Any]:
    server = rpc.Server.create("grpc", ADDRESS)
    for name, function in functions.items():
        server.register(name, function)
    server.start()
    return server, rpc.Client.create("grpc", ADDRESS)


@pytest.mark.parametrize("create", [rpc.Server.create, rpc.Client.create])
@pytest.mark.parametrize("address", [None, 2222, "", "localhost", "localhost:", "localhost:http", b"localhost:1"])
def test_addresses_have_a_port(create: Any, address: Any) -> None:
    with pytest.raises(ValueError, match=r"\[RD34\] \w+\.create\('grpc', .*\): address is .*localhost:2222"):
        create("grpc", address)


def test_an_address_has_one_server_as_long_as_it_is_kept() -> None:
    server, client = served(one=lambda: 1)
    with pytest.raises(ValueError, match="there is a server at this address"):
        rpc.Server.create("grpc", ADDRESS)
    assert client.one_blocking() == 1
    del server
    with pytest.raises(ConnectionError, match=r"\[RD33\] Client.call\('one'\): no server was started at localhost"):
        client.one_blocking()
    rpc.Server.create("grpc", ADDRESS)


def fails() -> None:
    raise KeyError("no such row")


@pytest.mark.parametrize("method", ["bad", "not_registered"])
def test_the_error_of_a_call_does_not_keep_its_server(method: str) -> None:
    server, client = served(bad=fails, two=lambda: 2)
    result = client.call(method)
    assert not result.is_ok()
    del server
    with pytest.raises(ConnectionError, match="RD33"):
        client.two_blocking()
    rpc.Server.create("grpc", ADDRESS)
    with pytest.raises((KeyError, ValueError)) as caught:
        result.get_value()
    if method == "bad":
        assert caught.traceback[-1].name == "fails", "where the function failed is known"


def test_an_error_that_there_is_no_server_keeps_none() -> None:
    server = rpc.Server.create("grpc", ADDRESS)
    with pytest.raises(ConnectionError, match="RD33") as caught:
        rpc.Client.create("grpc", ADDRESS)
    del server
    rpc.Server.create("grpc", ADDRESS)
    assert caught.value.__traceback__ is not None


def test_a_name_that_is_taken_is_an_error_by_tensorflow_s_name() -> None:
    server = rpc.Server.create("grpc", ADDRESS)
    server.register("one", lambda: 1)
    with pytest.raises(refdist.errors.InvalidArgumentError, match=r"RD34.*'one'.*this name is taken"):
        server.register("one", lambda: 2)


def test_the_methods_of_a_client_say_what_they_call() -> None:
    _server, client = served(power=lambda base, exponent=2: base ** exponent)
    assert client.power.__name__ == "power" and client.power_blocking.__name__ == "power_blocking"
    for method in (client.power, client.power_blocking):
        assert method.__doc__.startswith(f"Calls power(base, exponent=2) of the server at {ADDRESS}; ")


def test_a_server_that_nothing_refers_to_is_gone_though_it_is_in_a_circle() -> None:
    circle: list[Any] = [rpc.Server.create("grpc", ADDRESS)]
    circle.append(circle)
    del circle
    rpc.Server.create("grpc", ADDRESS)


def test_a_client_needs_a_server_that_has_started() -> None:
    with pytest.raises(errors.UnavailableError, match=r"no server was started .* Call `start`"):
        rpc.Client.create("grpc", ADDRESS)
    server = rpc.Server.create("grpc", ADDRESS)
    with pytest.raises(errors.UnavailableError):
        rpc.Client.create("grpc", ADDRESS, timeout_in_ms=1)
    server.start()
    rpc.Client.create("grpc", ADDRESS, timeout_in_ms=1)


@pytest.mark.parametrize("timeout", [-1, 0.5, "1", True, None])
def test_time_limits_are_milliseconds(timeout: Any) -> None:
    _server, client = served(one=lambda: 1)
    for call in (lambda: rpc.Client.create("grpc", ADDRESS, timeout_in_ms=timeout),
                 lambda: client.call("one", timeout_in_ms=timeout), lambda: client.one(timeout_in_ms=timeout),
                 lambda: client.one_blocking(timeout_in_ms=timeout)):
        with pytest.raises(ValueError, match=r"timeout_in_ms is .* Pass milliseconds as an int"):
            call()


@pytest.mark.parametrize("name", [None, 1, "", "two words", "a-b", "1st"])
def test_names_can_be_methods(name: Any) -> None:
    with pytest.raises(ValueError, match="Pass a text that can be the name of a method"):
        rpc.Server.create("grpc", ADDRESS).register(name, len)


def test_a_function_named_call_does_not_replace_call() -> None:
    _server, client = served(call=lambda: 1)
    assert client.call("call", output_specs=TensorSpec([], np.int32)).get_value() == 1
    assert client.call_blocking() == 1


@pytest.mark.parametrize(("error", "code"), [
    (errors.CancelledError("x", "RD32"), 1), (TimeoutError("x"), 4), (IndexError("x"), 11), (KeyError("x"), 5),
    (MemoryError("x"), 8), (NotImplementedError("x"), 12), (ConnectionError("x"), 14), (ValueError("x"), 3),
    (TypeError("x"), 3), (AssertionError("x"), 3), (ZeroDivisionError("x"), 2)])
def test_errors_have_the_codes_of_grpc_and_stay_what_they_are(error: Exception, code: int) -> None:
    def fail() -> None:
        raise error

    _server, client = served(fail=fail)
    result = client.fail()
    status, text = result.get_error()
    assert (result.is_ok(), status, status.dtype, text) == (False, code, np.int64, str(error))
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            result.get_value()
        assert raised.value is error
    with pytest.raises(type(error)):
        client.fail_blocking()


def test_what_ends_the_program_is_not_a_result() -> None:
    def leave() -> None:
        raise SystemExit(3)

    _server, client = served(leave=leave)
    with pytest.raises(SystemExit):
        client.leave()


def test_functions_run_outside_of_scopes_and_replicas() -> None:
    def where() -> bool:
        return refdist.has_strategy()

    _server, client = served(where=where, reduce=lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        assert not client.where_blocking()
        assert refdist.has_strategy()
    inside = strategy.run(lambda: (client.where_blocking(), refdist.has_strategy(), client.reduce_blocking()))
    assert strategy.experimental_local_results(inside) == ((False, True, 1.0),) * 2


def test_arguments_and_results_are_copies() -> None:
    kept = np.zeros(2)

    def fill(array: Any) -> Any:
        kept[:] = array
        return kept

    _server, client = served(fill=fill, dtype=lambda number: str(number.dtype))
    assert client.dtype_blocking(2) == "int32"
    given = np.ones(2)
    result = client.fill(given)
    given[:] = 5
    kept[:] = 7
    assert result.get_value().tolist() == [1, 1]


def test_a_builtin_function_that_tells_no_signature() -> None:
    _server, client = served(smallest=min)
    assert client.smallest_blocking(3, 2) == 2


def test_arguments_may_have_names() -> None:
    _server, client = served(power=lambda base, exponent: base**exponent)
    assert client.power_blocking(exponent=3, base=2) == 8
    with pytest.raises(ValueError, match=r"Client.power: missing .*'exponent'; its signature is \(base, exponent\)"):
        client.power(2)
    # `call` finds it out on the server.
    assert client.call("power", [2]).get_error()[0] == 3


@pytest.mark.parametrize(("specs", "message"), [
    (None, "output_specs has 0 specs, and the result 1 arrays"),
    ([TensorSpec([], np.float64)] * 2, "2 specs, and the result 1"),
    (TensorSpec([2], np.int32), r"TensorSpec\(shape=\(2,\), dtype=int32\) for .*5"),
    (np.int64, "int64"),
])
def test_specs_say_what_comes_back(specs: Any, message: str) -> None:
    _server, client = served(five=lambda: 5)
    with pytest.raises(ValueError, match=message):
        client.call("five", output_specs=specs).get_value()


def test_call_wants_a_list_of_arguments() -> None:
    _server, client = served(one=lambda: 1)
    with pytest.raises(TypeError, match=r"args is a dict\. Pass a list"):
        client.call("one", {})
    with pytest.raises(TypeError, match="method_name is a list"):
        client.call(["one"])
    for specs in (None, TensorSpec([], np.int32)):
        text = client.call("two", output_specs=specs).get_error()[1]
        assert "the server at localhost:2222 has only one. Register" in text
