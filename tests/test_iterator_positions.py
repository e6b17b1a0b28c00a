"""A checkpoint holds the position of an iterator: what is read after it was restored is what came after the save."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import refdist
from refdist.data import Dataset, TFRecordWriter
from refdist.errors import InvalidValueError
from refdist.train import Checkpoint

TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
FOUR = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])


def plain(elements: Any) -> list[Any]:
    """The elements, or as many as a test needs of those without end."""
    return [refdist.nest.map_structure(parts, element) for element, _ in zip(elements, range(60), strict=False)]


def parts(leaf: Any) -> list[Any]:
    """What each replica has of a distributed value; else what all of it is."""
    values = leaf.values if isinstance(leaf, refdist.DistributedValues) else (leaf,)
    return [np.asarray(value).tolist() for value in values]


def numbers() -> Dataset:
    return Dataset.range(13)


# Pipelines, each made again as in another process.
PIPELINES: dict[str, Callable[[], Dataset]] = {
    "range": numbers,
    "slices": lambda: Dataset.from_tensor_slices((np.arange(13), np.arange(26.0).reshape(13, 2))).batch(2),
    "shuffle": lambda: numbers().shuffle(4, seed=1),
    "shuffle and repeat": lambda: numbers().shuffle(13, seed=1).repeat(3).batch(4),
    "repeat without end": lambda: numbers().shuffle(13, seed=1).repeat().batch(4, drop_remainder=True),
    "the same order each time": lambda: numbers().shuffle(13, 1, reshuffle_each_iteration=False).repeat(3),
    "no seed": lambda: numbers().shuffle(13).repeat(3),
    "no seed, the same order": lambda: numbers().shuffle(13, reshuffle_each_iteration=False).repeat(3),
    "two shuffles": lambda: numbers().shuffle(5, seed=1).map(lambda n: n + 1).shuffle(5).repeat(2),
    "map": lambda: numbers().shuffle(5, seed=1).map(lambda n: {"a": n, "b": -n}).batch(3).repeat(2),
    "map in threads": lambda: numbers().shuffle(5, seed=1).map(lambda n: n * 2, num_parallel_calls=3).repeat(2),
    "prefetch": lambda: numbers().shuffle(13, seed=1).repeat(4).batch(3).prefetch(9),
    "filter": lambda: numbers().shuffle(5, seed=1).filter(lambda n: n % 3 > 0).repeat(2),
    "scan": lambda: numbers().scan(np.int64(0), lambda total, n: (total + n, total)),
    "cache of a shuffle": lambda: numbers().shuffle(13, seed=1).cache().repeat(3),
    "shuffle of a cache": lambda: numbers().map(lambda n: n * 2).cache().shuffle(13, seed=1).repeat(3),
    "zip": lambda: Dataset.zip(numbers().shuffle(13), numbers().shuffle(13)).repeat(2),
    "one dataset twice": lambda: (lambda same: same.concatenate(same))(numbers().shuffle(13, seed=1)).repeat(2),
    "sample": lambda: Dataset.sample_from_datasets([numbers(), numbers().shuffle(3)], [0.3, 0.7]).repeat(2),
    "choose": lambda: Dataset.choose_from_datasets([numbers(), numbers()], Dataset.range(2).shuffle(2, 7).repeat()),
    "interleave": lambda: Dataset.range(4).shuffle(4).interleave(lambda n: Dataset.range(n, n + 5), cycle_length=2),
    "flat_map": lambda: numbers().flat_map(lambda n: Dataset.range(n).shuffle(9, seed=2)),
    "window": lambda: numbers().shuffle(13, seed=1).window(3).flat_map(lambda window: window.batch(3)),
    "rebatch": lambda: numbers().batch(4).rebatch(3).unbatch(),
    "group_by_window": lambda: numbers().shuffle(13, seed=1).group_by_window(
        lambda n: n % 3, lambda key, rows: rows.batch(2), window_size=2).repeat(2),
    "numbers": lambda: Dataset.random(rerandomize_each_iteration=True).take(5).repeat(2),
    "unique": lambda: numbers().repeat(2).shuffle(26).unique(),
    "resampled": lambda: numbers().shuffle(13, seed=1).rejection_resample(lambda n: n % 2, [0.3, 0.7]).map(
        lambda kind, n: n),
    "take and skip": lambda: numbers().shuffle(13, seed=1).skip(2).take(9).shard(2, 1).repeat(3),
}


@pytest.mark.parametrize("read", [0, 1, 5, "all"])
@pytest.mark.parametrize("name", PIPELINES)
def test_reading_goes_on_where_it_was_saved(name: str, read: int | str, tmp_path: Path) -> None:
    dataset = PIPELINES[name]()
    plain(dataset)  # so that shuffles have drawn before
    iterator = iter(dataset)
    if read == "all":
        plain(iterator)
    else:
        for _ in range(int(read)):
            next(iterator)
    path = Checkpoint(iterator=iterator).write(tmp_path / "position")
    expected, following = plain(iterator), plain(dataset)
    again = PIPELINES[name]()
    restored = iter(again)
    Checkpoint(iterator=restored).read(path).assert_consumed()
    assert plain(restored) == expected
    # The dataset goes on, too: its next iterator draws what it would have drawn.
    assert "prefetch" in name or plain(again) == following
    # And back in the same process.
    Checkpoint(iterator=iterator).read(path)
    assert plain(iterator) == expected


def test_iterators_that_read_in_turn_have_their_own_orders(tmp_path: Path) -> None:
    def made() -> Dataset:
        return numbers().shuffle(13, seed=1).repeat(4)
    dataset = made()
    first, second = iter(dataset), iter(dataset)
    for count in (3, 13, 12):
        for iterator in (first, second):
            for _ in range(count):
                next(iterator)
    path = Checkpoint(first=first, second=second).write(tmp_path / "positions")
    expected = plain(first), plain(second)
    again = made()
    restored = Checkpoint(first=iter(again), second=iter(again))
    restored.read(path).assert_consumed()
    assert (plain(restored.first), plain(restored.second)) == expected  # type: ignore[attr-defined]


def test_records_of_files_are_read_on(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    for name in "abc":
        with TFRecordWriter(tmp_path / name) as writer:
            for i in range(3):
                writer.write(f"{name}{i}".encode())

    def made() -> Dataset:
        files = Dataset.list_files(str(tmp_path / "*"))
        return files.interleave(refdist.data.TFRecordDataset).shuffle(4, seed=1).repeat(2)
    iterator, restored = iter(made()), iter(made())
    for _ in range(4):
        next(iterator)
    Checkpoint(i=restored).read(Checkpoint(i=iterator).write(tmp_path / "position"))
    assert list(restored) == list(iterator)


@pytest.mark.parametrize("options", [None, refdist.InputOptions(uneven_end=refdist.data.UnevenEnd.PAD)])
def test_a_distributed_iterator_goes_on(options: Any, tmp_path: Path) -> None:
    def made() -> Any:
        return iter(TWO.experimental_distribute_dataset(numbers().shuffle(13).batch(4).repeat(3), options))
    iterator, restored = made(), made()
    for _ in range(5):
        next(iterator)
    Checkpoint(i=restored).read(Checkpoint(i=iterator).write(tmp_path / "position"))
    rest = plain(iterator)
    assert plain(restored) == rest and len(rest) == 7


def test_a_function_of_pipelines_goes_on(tmp_path: Path) -> None:
    def made() -> Any:
        return iter(TWO.distribute_datasets_from_function(lambda context: numbers().shard(
            context.num_input_pipelines, context.input_pipeline_id).shuffle(9).batch(2)))
    iterator, restored = made(), made()
    next(iterator)
    Checkpoint(i=restored).read(Checkpoint(i=iterator).write(tmp_path / "position"))
    assert plain(restored) == plain(iterator) != []


def distributed(strategy: Any, seed: int | None = 1) -> Any:
    return iter(strategy.experimental_distribute_dataset(numbers().shuffle(13, seed).batch(4).repeat(2)))


def test_another_number_of_replicas_reads_the_rows_that_are_left(tmp_path: Path) -> None:
    two, four = distributed(TWO, None), distributed(FOUR, None)
    for _ in range(3):
        next(two)
    Checkpoint(i=four).read(Checkpoint(i=two).write(tmp_path / "position"))
    assert [sorted(itertools.chain(*step)) for step in plain(four)] == [
        sorted(itertools.chain(*step)) for step in plain(two)]


@pytest.mark.parametrize("fewer", [1, 2, 3])
def test_workers_go_on_and_so_do_fewer(fewer: int, tmp_path: Path) -> None:
    def program(path: Path, read: int) -> tuple[list[int], list[int]]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        iterator = distributed(strategy, None)
        checkpoint = Checkpoint(iterator=iterator)
        if path.with_suffix(".safetensors").exists():
            checkpoint.read(path)

        def take(steps: Iterator[Any]) -> list[int]:
            return [row for step in steps for row in np.asarray(step).tolist()]
        before = take(next(iterator) for _ in range(read))
        if read:
            checkpoint.write(path)
        return before, take(iterator)

    three = refdist.simulate_workers(lambda: program(tmp_path / "position", 3), 3)
    after = refdist.simulate_workers(lambda: program(tmp_path / "position", 0), fewer)
    rest = [row for _, rows in three for row in rows]
    assert sorted(row for _, rows in after for row in rows) == sorted(rest)
    assert sorted(rest + [row for rows, _ in three for row in rows]) == sorted([*range(13)] * 2)
    if fewer == 3:
        assert [rows for _, rows in after] == [rows for _, rows in three]


def test_workers_with_pipelines_of_their_own_go_on(tmp_path: Path) -> None:
    def program(reads: bool) -> list[int]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        iterator = iter(strategy.distribute_datasets_from_function(
            lambda context: numbers().shard(2, context.input_pipeline_id).shuffle(7).batch(2)))
        checkpoint = Checkpoint(iterator=iterator)
        if reads:
            checkpoint.read(tmp_path / "position")
        else:
            next(iterator)
            checkpoint.write(tmp_path / "position")
        return [row for step in iterator for row in np.asarray(step).tolist()]
    expected = refdist.simulate_workers(lambda: program(False), 2)
    assert refdist.simulate_workers(lambda: program(True), 2) == expected


class Batches:
    """Iterable, and nobody knows whether twice the same."""

    def __iter__(self) -> Iterator[Any]:
        return iter([np.ones(2)])


GENERATED = Dataset.from_generator(lambda: iter([1, 2]))
UNSAVED: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: iter(GENERATED.batch(2).repeat()), "Dataset.from_generator, whose position"),
    "as NumPy's": (lambda: GENERATED.as_numpy_iterator(), "Dataset.from_generator"),
    "beside": (lambda: iter(Dataset.zip(numbers(), GENERATED)), "Dataset.from_generator"),
    "after": (lambda: iter(Dataset.range(2).map(np.int32).concatenate(GENERATED)), "Dataset.from_generator"),
    "distributed": (lambda: iter(TWO.experimental_distribute_dataset(GENERATED.batch(2))), "Dataset.from_generator"),
    "iterable": (lambda: iter(TWO.experimental_distribute_dataset(Batches())), "a Batches, of which nobody knows"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_what_cannot_be_read_again_is_refused_at_once(name: str) -> None:
    made, why = UNSAVED[name]
    with pytest.raises(InvalidValueError, match=rf"RD34\] Checkpoint: batches is an? \w*Iterator, .*{why}.*skip"):
        Checkpoint(batches=made())


@pytest.mark.parametrize(("function", "why"), [
    (lambda n: GENERATED, "from_generator"), (lambda n: Dataset.range(3).shuffle(3), "shuffled by chance")])
def test_what_a_function_returns_is_refused_when_it_is_known(function: Any, why: str, tmp_path: Path) -> None:
    iterator = iter(Dataset.range(3).flat_map(function))
    checkpoint = Checkpoint(i=iterator)
    next(iterator)
    with pytest.raises(InvalidValueError, match=rf"RD34.*{why}"):
        checkpoint.write(tmp_path / "position")


# What is saved, what it is restored into, and what is said.
MISFITS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "shorter": (lambda: iter(numbers()), lambda: iter(Dataset.range(3)), "4 elements were read, and the dataset has 3"),
    "another seed": (lambda: iter(numbers().shuffle(9, 1)), lambda: iter(numbers().shuffle(9, 2)),
                     "shuffled with seed 2, that of the file with seed 1"),
    "no shuffle": (lambda: iter(numbers().shuffle(9, 1)), lambda: iter(numbers()), "sampled 0 times.* file 1 times"),
    "by files": (lambda: distributed(TWO), lambda: iter(FOUR.distribute_datasets_from_function(
        lambda _: numbers().shuffle(9, 1).batch(1))), "2 replicas on 1 workers have read, here are 4 on 1"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_position_that_does_not_fit_changes_nothing(name: str, tmp_path: Path) -> None:
    saves, reads, why = MISFITS[name]
    saved, iterator, v, w = saves(), reads(), refdist.Variable(1), refdist.Variable(2)
    for _ in range(4):
        next(saved)
    path = Checkpoint(i=saved, v=v).write(tmp_path / "position")
    expected = plain(reads())
    first = plain([next(iterator)])
    with pytest.raises(InvalidValueError, match=rf"RD31\] Checkpoint.read: the position of an? \w*Iterator .*{why}"):
        Checkpoint(i=iterator, v=w).read(path)
    assert first + plain(iterator) == expected and int(w) == 2


@pytest.mark.parametrize("change", [
    lambda place: place.clear(), lambda place: place.update(workers=[]), lambda place: place.update(workers=3),
    lambda place: place["workers"][0].pop("read"), lambda place: place["workers"][0].update(read="4"),
    lambda place: place["workers"][0].update(readings=[{}]),
    lambda place: place["workers"][0]["readings"][0]["streams"][0].update(drawn=[[0, 1 << 60]]),
    lambda place: place["workers"][0]["readings"][0]["streams"][0].update(drawn=[[3, 2]]),
    lambda place: place["workers"][0]["readings"][0]["streams"][0].update(next=-1),
    lambda place: place["workers"][0]["readings"][0]["streams"][0].update(next=1 << 60),
    lambda place: place["workers"][0]["readings"][0]["streams"][0].update(seed="x")])
def test_a_position_that_was_made_to_harm_is_refused(change: Callable[[Any], object], tmp_path: Path) -> None:
    iterator = iter(numbers().shuffle(9, 1).repeat())
    next(iterator)
    place = json.loads(json.dumps(iterator._place()))  # type: ignore[attr-defined]
    change(place)
    with pytest.raises(InvalidValueError, match="RD31"):
        iterator._go_to(place)  # type: ignore[attr-defined]
    assert len(plain(iterator)) == 60


def test_a_position_of_before_shuffles_had_tensorflows_order_fits_where_nothing_was_shuffled() -> None:
    # Their key was "shuffles" then.
    place = {"workers": [{"read": 4, "readings": [{"seed": None, "shuffles": []}]}]}
    iterator = iter(numbers())
    expected = plain(iter(numbers()))[4:]
    iterator._go_to(place)  # type: ignore[attr-defined]
    assert plain(iterator) == expected
    place["workers"][0]["readings"] = [{"seed": None, "shuffles": [{"seed": 1, "next": 1, "drawn": [[0, 0]]}]}]
    with pytest.raises(InvalidValueError, match=r"RD31\].* does not fit: a version of refdist .* in another order"):
        iter(numbers().shuffle(9, 1))._go_to(place)  # type: ignore[attr-defined]


def test_an_iterator_is_found_wherever_it_is(tmp_path: Path) -> None:
    class Loop:
        def __init__(self) -> None:
            self.batches = iter(numbers())

    loop, late = Loop(), Checkpoint()
    next(loop.batches)
    path = Checkpoint(loop=loop, batches=loop.batches).write(tmp_path / "position")
    other = iter(numbers())
    late.read(path)
    late.batches = other  # type: ignore[attr-defined]  # which takes its position then
    assert int(next(other)) == 1
    assert [*safetensors.numpy.load_file(f"{path}.safetensors")] == []


def test_a_recording_tells_the_rows_after_a_restored_position(tmp_path: Path) -> None:
    def made() -> Any:
        rows = Dataset.from_tensor_slices(np.arange(13)).shuffle(13, seed=1).batch(4)
        return iter(TWO.experimental_distribute_dataset(rows))
    saved = made()
    next(saved)
    path = Checkpoint(i=saved).write(tmp_path / "position")
    with refdist.insight.record() as recording:
        restored = made()
        Checkpoint(i=restored).read(path)
        step = next(restored)
    [event] = [event for event in recording.events if event.kind == "step"]
    assert [[row for first, last in spans for row in range(first, last + 1)] for spans in event["rows"]] == parts(step)
