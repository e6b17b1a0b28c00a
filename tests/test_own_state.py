"""Whatever runs owns its state: in each world, of each kind, what one sets its neighbours do not find."""

from __future__ import annotations

import contextvars
import decimal
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.coordinator import ClusterCoordinator, interleaving
from refdist.experimental import rpc

COLOR: ContextVar[str] = ContextVar("color of a test", default="none")


class StandIn(ModuleType):
    """What PyTorch keeps for each thread, and its generator, for machines without PyTorch."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.here, self.state = threading.local(), 0
        self.amp = SimpleNamespace(is_autocast_available=lambda device: True)

    def __getattr__(self, name: str) -> Any:
        # All that a test does not set is constant.
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: False

    def is_grad_enabled(self) -> bool:
        return getattr(self.here, "grad", True)

    def set_grad_enabled(self, enabled: bool) -> None:
        self.here.grad = enabled

    def get_rng_state(self) -> int:
        return self.state

    def set_rng_state(self, state: int) -> None:
        self.state = state

    def draw(self) -> int:
        self.state = self.state * 5 % 7919 + 1
        return self.state


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    # As with PyTorch, there are hundreds of modules more, and not as many as before another one was removed.
    for i in range(500):
        monkeypatch.setitem(sys.modules, f"torch.part_{i}", ModuleType(f"torch.part_{i}"))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture(autouse=True)
def around() -> Iterator[None]:
    """Something is set around the programs, which they find."""
    token = COLOR.set("red")
    with decimal.localcontext() as context, np.errstate(divide="ignore"):
        context.prec = 7
        yield
    COLOR.reset(token)


def rank() -> int:
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return int(config["task"]["index"]) if config else -1


# Kinds of state: what one finds there, after which it sets something else.

def color() -> object:
    before = COLOR.get()
    COLOR.set("blue")
    return before


def precision() -> object:
    before, decimal.getcontext().prec = decimal.getcontext().prec, 50
    return before


def division() -> object:
    before = np.geterr()["divide"]
    np.seterr(divide="raise")
    return before


def gradients() -> object:
    module: Any = sys.modules["torch"]
    before = module.is_grad_enabled()
    module.set_grad_enabled(False)
    return before


KINDS = {color: "red", precision: 7, division: "ignore", gradients: True}


# Worlds: what a function returns there that calls `change` twice, with a chance for neighbours between the calls.

Change = Callable[[], object]


def replicas(count: int) -> Callable[[Change], list[Any]]:
    def world(change: Change) -> list[Any]:
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])

        def step() -> tuple[object, object]:
            context = refdist.get_replica_context()
            assert context is not None
            before = change()
            context.all_reduce("SUM", 1.0)
            return before, change()

        return [result for _ in range(2) for result in strategy.experimental_local_results(strategy.run(step))]

    return world


def workers(change: Change) -> list[Any]:
    def program() -> tuple[object, object]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        before = change()
        strategy.reduce("SUM", 1.0, axis=None)
        return before, change()

    return refdist.simulate_workers(program, 3)


def functions_of_a_coordinator(change: Change) -> list[Any]:
    cluster = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(cluster))
    with strategy.scope():
        v = refdist.Variable(0)
    coordinator = ClusterCoordinator(strategy)

    def function() -> tuple[object, object]:
        before = change()
        for _ in range(3):
            v.assign_add(1)
        return before, change()

    done = []
    for seed in range(3):
        with interleaving(seed):
            scheduled = [coordinator.schedule(function) for _ in range(4)]
            coordinator.join()
        done += [result.fetch() for result in scheduled]
    return done


def functions_of_a_dataset(ahead: bool) -> Callable[[Change], list[Any]]:
    def world(change: Change) -> list[Any]:
        states: list[tuple[object, object]] = []

        def function(number: Any) -> Any:
            states.append((change(), change()))
            return number

        dataset = refdist.data.Dataset.range(6)
        list(dataset.map(function).take(1).prefetch(1) if ahead else dataset.map(function, num_parallel_calls=2))
        return states

    return world


def functions_of_a_server(change: Change) -> list[Any]:
    server = rpc.Server.create("grpc", "localhost:2222")
    states: list[tuple[object, object]] = []
    server.register("call", lambda: states.append((change(), change())))
    server.start()
    client = rpc.Client.create("grpc", "localhost:2222")
    for _ in range(2):
        client.call("call")
    return states


WORLDS = {"one replica": replicas(1), "three replicas": replicas(3), "simulated workers": workers,
          "functions of a coordinator": functions_of_a_coordinator,
          "functions of a dataset": functions_of_a_dataset(False), "a dataset read ahead": functions_of_a_dataset(True),
          "functions of a server": functions_of_a_server}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("world", WORLDS)
def test_each_finds_what_holds_around_it_and_then_what_it_has_set_itself(world: str, kind: Change) -> None:
    outcomes = WORLDS[world](kind)
    own = {second for _, second in outcomes}
    assert outcomes and {first for first, _ in outcomes} == {KINDS[kind]}
    assert len(own) == 1 and own != {KINDS[kind]}
    assert kind() == KINDS[kind], "nothing is left behind"


# What simulated workers have of their own because they stand in for processes.

def draws(draw: Callable[[], object], seed: Callable[[int], object]) -> None:
    def program() -> list[object]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        seed(rank())
        drawn = []
        for _ in range(3):
            drawn.append(draw())
            strategy.reduce("SUM", 1.0, axis=None)
        return drawn

    def alone(number: int) -> list[object]:
        seed(number)
        return [draw() for _ in range(3)]

    assert refdist.simulate_workers(program, 3) == [alone(number) for number in range(3)]


def test_generators_of_a_worker_are_its_own(torch: StandIn) -> None:
    draws(random.random, random.seed)
    draws(np.random.random, np.random.seed)
    draws(torch.draw, torch.set_rng_state)
    draws(lambda: float(refdist.random.get_global_generator().uniform([])),
          lambda number: refdist.random.set_global_generator(refdist.random.Generator.from_seed(number)))


def test_workers_draw_on_where_other_code_has_stopped() -> None:
    """Not all the same numbers: programs that set no seed count on that."""
    random.seed(1)
    expected = [random.random() for _ in range(4)]
    random.seed(1)
    assert [*refdist.simulate_workers(random.random, 3), random.random()] == expected


def test_a_worker_s_environment_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")

    def program() -> tuple[int, str]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        number = rank()
        os.environ["TF_CONFIG"] = f'"set by {number}"'
        strategy.reduce("SUM", 1.0, axis=None)
        return number, os.environ["TF_CONFIG"]

    assert refdist.simulate_workers(program, 2) == [(0, '"set by 0"'), (1, '"set by 1"')]
    assert os.environ["TF_CONFIG"] == "{}"


# Copies of a replica's context.

def test_threads_of_datasets_are_outside_every_scope() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    inside: list[bool] = []

    def function(number: Any) -> Any:
        inside.append(refdist.has_strategy())
        return number

    with strategy.scope():
        list(refdist.data.Dataset.range(2).map(function, num_parallel_calls=2))
    strategy.run(lambda: list(refdist.data.Dataset.range(1).map(function, num_parallel_calls=2)))
    assert inside == [False] * 4


def test_another_thread_with_a_copy_of_a_replica_s_context_is_not_that_replica() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    raised: list[BaseException] = []

    def step() -> Any:
        context = refdist.get_replica_context()
        assert context is not None

        def call() -> None:
            try:
                context.all_reduce("SUM", 1.0)
            except RuntimeError as error:
                raised.append(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(call,))
        thread.start()
        thread.join()
        return context.all_reduce("SUM", 1.0)

    assert [float(part) for part in strategy.run(step).values] == [2.0, 2.0]
    assert len(raised) == 2 and all("RD09" in str(error) and "another thread" in str(error) for error in raised)


def test_a_copy_of_a_replica_s_context_ends_with_the_run() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    copies: list[contextvars.Context] = []

    def step() -> None:
        copies.append(contextvars.copy_context())

    def meet() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        return context.all_reduce("SUM", 1.0)

    strategy.run(step)
    for copy in copies:
        with pytest.raises(RuntimeError, match="RD22"):
            copy.run(meet)
    assert float(strategy.run(meet).values[0]) == 2.0
