"""ClusterCoordinator, simulated: datasets, values and variables of each worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_coordinator import coordinator, index, variable

import refdist
from refdist.data import Dataset
from refdist.errors import OutOfRangeError


def batches() -> Any:
    return Dataset.range(4).batch(2)


@pytest.mark.parametrize("form", ["fn", "dataset", "distributed", "from function", "fn from function"])
def test_every_form_of_dataset(form: str) -> None:
    c = coordinator()
    s = c.strategy
    from_function = lambda: s.distribute_datasets_from_function(lambda ctx: batches())  # noqa: E731
    given = {"fn": batches, "dataset": batches(), "distributed": s.experimental_distribute_dataset(batches()),
             "from function": from_function(), "fn from function": from_function}[form]
    dataset = c.create_per_worker_dataset(given)
    iterator = iter(dataset)
    assert [element.tolist() for element in c.fetch([c.schedule(next, args=(iterator,)) for _ in range(4)])] == [
        [0, 1], [0, 1], [2, 3], [2, 3]]
    assert dataset.element_spec.dtype == np.int64
    assert isinstance(iterator, refdist.coordinator.PerWorkerValue)


def test_every_worker_has_its_own_copy_and_iter_begins_again() -> None:
    c, called = coordinator(2), []
    dataset = c.create_per_worker_dataset(lambda: called.append(int(index())) or Dataset.range(9).shard(2, index()))
    assert called == [0, 1]
    a, b = iter(dataset), iter(dataset)
    f = lambda i: (int(index()), int(next(i)))  # noqa: E731
    assert c.fetch([c.schedule(f, args=(a,)) for _ in range(4)]) == [(0, 0), (1, 1), (0, 2), (1, 3)]
    assert c.fetch([c.schedule(f, args=(b,)) for _ in range(2)]) == [(0, 0), (1, 1)]
    assert c.schedule(lambda p, q, k: int(next(p) + next(q["z"]) + k), args=(a, {"z": b}),
                      kwargs={"k": 100}).fetch() == 106 and called == [0, 1]


@pytest.mark.parametrize("inside", [False, True])
def test_a_function_of_the_strategy_is_called_on_each_worker(inside: bool) -> None:
    c, called = coordinator(2), []

    def dataset_fn(ctx: Any) -> Any:
        called.append((int(index()), ctx.num_input_pipelines, ctx.input_pipeline_id))
        return Dataset.range(9).shard(2, index())

    made = lambda: c.strategy.distribute_datasets_from_function(dataset_fn)  # noqa: E731
    dataset = made if inside else made()
    assert called == []
    iterator = iter(c.create_per_worker_dataset(dataset))
    assert called == [(0, 1, 0), (1, 1, 0)]
    assert c.fetch([c.schedule(lambda i: (int(index()), int(next(i))), args=(iterator,)) for _ in range(4)]) == [
        (0, 0), (1, 1), (0, 2), (1, 3)]


def test_a_dataset_from_a_function_of_the_strategy_is_a_distributed_dataset() -> None:
    c, called = coordinator(2), []
    dataset = c.strategy.distribute_datasets_from_function(lambda ctx: called.append(ctx) or batches())
    assert isinstance(dataset, refdist.DistributedDataset) and called == []
    assert dataset.element_spec.dtype == np.int64 and dataset.cardinality == 2 and len(called) == 1
    with pytest.raises(ValueError, match=r"RD20.*create_per_worker_dataset"):
        iter(dataset)
    assert c.schedule(lambda: [element.tolist() for element in dataset]).fetch() == [[0, 1], [2, 3]]
    assert len(called) == 2
    with pytest.raises(TypeError, match=r"RD25.*dataset_fn is 5"):
        c.strategy.distribute_datasets_from_function(5)


def test_a_function_may_read_a_whole_dataset() -> None:
    c = coordinator(1)
    dataset = c.create_per_worker_dataset(lambda: Dataset.range(4))
    assert c.schedule(lambda d: int(sum(d)), args=(dataset,)).fetch() == 6
    assert c.schedule(lambda i: int(sum(i)), args=(iter(dataset),)).fetch() == 6
    iterator = iter(c.create_per_worker_dataset(lambda: Dataset.range(1)))
    values = [c.schedule(lambda i: bool(i.get_next_as_optional().has_value()), args=(iterator,)) for _ in range(2)]
    assert c.fetch(values) == [True, False]


def test_the_end_of_a_dataset_is_an_error() -> None:
    c = coordinator(1)
    iterator = iter(c.create_per_worker_dataset(lambda: Dataset.range(2)))
    values = [c.schedule(next, args=(iterator,)) for _ in range(2)]
    c.schedule(next, args=(iterator,))
    with pytest.raises(OutOfRangeError, match=r"RD29.*worker 0"):
        c.join()
    assert c.fetch(values) == [0, 1]

    def odd(i: Any) -> int:
        x = int(next(i))
        if x == 1:
            raise KeyError(x)
        return x

    iterator = iter(c.create_per_worker_dataset(lambda: Dataset.range(9)))
    first = [c.schedule(odd, args=(iterator,)) for _ in range(2)]
    with pytest.raises(KeyError):
        c.join()
    assert first[0].fetch() == 0 and c.schedule(odd, args=(iterator,)).fetch() == 2, "the failed function has used one"


def test_a_dataset_of_workers_is_not_made_into_another_one() -> None:
    c = coordinator()
    dataset = c.create_per_worker_dataset(batches())
    for given in (dataset, lambda: dataset, dataset.build()):
        with pytest.raises(ValueError, match=r"RD34.*create_per_worker_dataset: got a PerWorkerDataset"):
            c.create_per_worker_dataset(given)


@pytest.mark.parametrize("given", [[1, 2], None, lambda: [1, 2], lambda: None, iter([1]), lambda: iter(batches())])
def test_what_is_not_a_dataset(given: Any) -> None:
    with pytest.raises(ValueError, match=r"RD34.*create_per_worker_dataset"):
        coordinator().create_per_worker_dataset(given)


def test_errors_of_datasets() -> None:
    c = coordinator()

    def broken() -> Any:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        c.create_per_worker_dataset(broken)
    with pytest.raises(TypeError, match="ctx"):
        c.create_per_worker_dataset(lambda ctx: batches())

    class Broken:
        element_spec = None

        def __iter__(self) -> Any:
            raise KeyError("no iterator")

    made_once = iter(c.create_per_worker_dataset(Broken()))
    for _ in range(2):
        c.schedule(next, args=(made_once,))
        with pytest.raises(KeyError, match="no iterator") as caught:
            c.join()
        assert any("iterator of worker" in note for note in caught.value.__notes__)
    iterator = iter(c.create_per_worker_dataset(batches))
    for call in (lambda: next(iterator), iterator.get_next):
        with pytest.raises(NotImplementedError, match=r"RD20.*argument"):
            call()
    with pytest.raises(TypeError):
        iter(iterator)
    c.schedule(lambda: next(iterator))
    with pytest.raises(NotImplementedError, match="RD20"):
        c.join()


def test_values_of_workers_by_hand() -> None:
    c = coordinator()
    for wrong in ([1, 2], 3):
        with pytest.raises(TypeError, match="RD25"):
            refdist.coordinator.PerWorkerValue(wrong)  # type: ignore[arg-type]
    parts = refdist.coordinator.PerWorkerValue([c.schedule(lambda i=i: i) for i in range(2)])
    c.join()
    assert c.fetch([c.schedule(lambda x: int(x) + 10, args=(parts,)) for _ in range(2)]) == [10, 11]
    c.schedule(lambda x: x, args=(refdist.coordinator.PerWorkerValue([]),))
    with pytest.raises(TypeError, match=r"RD25.*no value for worker"):
        c.join()


def test_the_number_of_the_worker_is_known_on_workers_only() -> None:
    c = coordinator()
    assert c.schedule(lambda: c.strategy.run(index)).fetch().dtype == np.int64
    for call in (index, lambda: c.strategy.run(index)):
        with pytest.raises(RuntimeError, match="RD09"):
            call()


def test_variables_of_each_worker_count_what_it_did() -> None:
    c = coordinator(3)
    v = variable(c, per_worker_variable=True)
    for _ in range(7):
        c.schedule(lambda: v.assign_add(1.0, read_value=False))
    c.join()
    assert [float(own) for own in v.read_all()] == [3.0, 2.0, 2.0] and float(v) == 0.0
    c.schedule(v.read_all)
    with pytest.raises(RuntimeError, match="RD09"):
        c.join()
