"""Each transformation of a dataset against the same thing written as a list, and what is known before reading."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import HANG

import refdist
from refdist.data import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset
from refdist.data.threads import ReadAhead


def rows(dataset: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in dataset]


def ragged() -> Dataset:
    return Dataset.from_generator(lambda: iter([[1], [2, 3], [4, 5, 6]]))


def test_zip_concatenate_and_enumerate() -> None:
    a, b = Dataset.range(3), Dataset.range(10, 14)
    assert [(int(x), int(y)) for x, y in Dataset.zip(a, b)] == [(0, 10), (1, 11), (2, 12)]
    assert [(int(e["x"]), int(e["y"][0])) for e in Dataset.zip({"x": a, "y": (b,)})] == [(0, 10), (1, 11), (2, 12)]
    assert rows(a.concatenate(b)) == [0, 1, 2, 10, 11, 12, 13]
    assert [(int(i), int(x)) for i, x in b.take(2).enumerate(start=5)] == [(5, 10), (6, 11)]
    with pytest.raises(TypeError, match="RD26"):
        a.concatenate(Dataset.from_tensor_slices([1.0]))
    for bad in (5, [a, 5]):
        with pytest.raises(TypeError, match="RD25"):
            Dataset.zip(bad)
    with pytest.raises(ValueError, match=r"RD34.*no dataset was given"):
        Dataset.zip(())
    with pytest.raises(TypeError, match="RD25"):
        a.concatenate([1])


def test_window_as_tensorflow_has_it() -> None:
    """Observed on TensorFlow 2.21 for three sets of arguments."""
    assert [rows(w) for w in Dataset.range(7).window(3, shift=2)] == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]
    assert [rows(w) for w in Dataset.range(7).window(2, shift=3, stride=2)] == [[0, 2], [3, 5], [6]]
    assert [rows(w) for w in Dataset.range(8).window(2, shift=1, stride=2, drop_remainder=True)] == [
        [i, i + 2] for i in range(6)]
    first, second = next(iter(Dataset.from_tensor_slices((np.arange(4), np.arange(4) * 2)).window(3)))
    assert (rows(first), rows(second)) == ([0, 1, 2], [0, 2, 4])


@given(st.integers(0, 20), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_windows_are_slices(count: int, size: int, shift: int, stride: int, drop: bool) -> None:
    expected = [list(range(start, min(start + size * stride, count), stride)) for start in range(0, count, shift)]
    expected = [window for window in expected if len(window) == size or not drop]
    windows = Dataset.range(count).window(size, shift, stride, drop)
    assert [rows(w) for w in windows] == expected
    assert windows.cardinality() == len(expected)


def test_interleave_as_tensorflow_has_it() -> None:
    """tf.data.Dataset.interleave, the example of the page."""
    taken = Dataset.range(1, 6).interleave(lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4)
    assert rows(taken) == [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2 + [5] * 6
    assert rows(Dataset.range(4).flat_map(Dataset.range)) == [0, 0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match=r"RD25.*int"):
        rows(Dataset.range(3).interleave(int))


@given(st.lists(st.integers(0, 7), max_size=6), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.booleans())
def test_rebatch_keeps_the_stream(lengths: list[int], sizes: list[int], drop: bool) -> None:
    batches = [np.arange(sum(lengths[:i]), sum(lengths[:i + 1])) for i in range(len(lengths))]
    rebatched = rows(Dataset.from_generator(lambda: iter(batches)).rebatch(sizes, drop))
    total = sum(lengths)
    expected, start, turn = [], 0, 0
    while start < total:
        size = sizes[turn % len(sizes)]
        expected.append(list(range(start, min(start + size, total))))
        start, turn = start + size, turn + 1
    if drop and expected and start > total:
        expected.pop()
    assert rebatched == expected


def test_unbatch_and_padded_batch() -> None:
    pairs = Dataset.from_tensor_slices((np.arange(5), np.arange(5) * 2)).batch(2)
    assert [(int(a), int(b)) for a, b in pairs.unbatch()] == [(i, 2 * i) for i in range(5)]
    assert rows(ragged().padded_batch(2)) == [[[1, 0], [2, 3]], [[4, 5, 6]]]
    assert rows(ragged().padded_batch(2, padded_shapes=[4], padding_values=-1, drop_remainder=True)) == [
        [[1, -1, -1, -1], [2, 3, -1, -1]]]
    both = ragged().map(lambda x: {"a": x, "n": np.int64(len(x))})
    batch = next(iter(both.padded_batch(3, padded_shapes={"a": [None], "n": []}, padding_values={"a": 9, "n": 0})))
    assert batch["a"].tolist() == [[1, 9, 9], [2, 3, 9], [4, 5, 6]]
    assert batch["n"].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"RD26.*row 2 has shape \(3,\)"):
        rows(ragged().padded_batch(3, padded_shapes=[2]))
    with pytest.raises(ValueError, match=r"RD26.*row 1 has rank 0"):
        rows(Dataset.from_generator(lambda: iter([[1], 2])).padded_batch(2))
    for shapes in (5, {"a": 5}):
        with pytest.raises(TypeError, match="RD25"):
            ragged().padded_batch(2, padded_shapes=shapes)
    with pytest.raises(TypeError, match=r"RD25.*2 parts"):
        rows(ragged().padded_batch(2, padding_values=(1, 2)))


def test_text_keeps_its_zero_bytes() -> None:
    words = Dataset.from_generator(lambda: iter([b"a\0", b"bc\0"]))
    assert list(words) == [b"a\0", b"bc\0"]
    batch = next(iter(words.batch(2)))
    assert batch.dtype == object
    assert batch.tolist() == [b"a\0", b"bc\0"]
    assert next(iter(words.padded_batch(2))).tolist() == [b"a\0", b"bc\0"]
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    [element] = two.experimental_distribute_dataset(words.batch(2))
    assert [part.tolist() for part in element.values] == [[b"a\0"], [b"bc\0"]]


def test_cache_reads_once_and_only_a_whole_reading_is_kept() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(3):
            read.append(i)
            yield i

    kept = Dataset.from_generator(numbers).cache()
    next(iter(kept))
    assert read == [0]
    assert rows(kept) == rows(kept) == [0, 1, 2]
    assert read == [0, 0, 1, 2]


def test_reduce_runs_from_the_initial_state() -> None:
    assert Dataset.range(5).reduce(np.int64(100), lambda state, x: state + x) == 110
    counted = Dataset.range(5).reduce((0, 0.5), lambda state, x: (state[0] + 1, state[1] + 1.0))
    assert counted == (5, 5.5) and [array.dtype for array in counted] == [np.int32, np.float32]
    for state in (np.float32(1), (0, 0), None):
        with pytest.raises(TypeError, match=r"RD26.*Dataset.reduce: the new state") as caught:
            Dataset.range(5).reduce(0, lambda _, x: state)  # noqa: B023
        assert caught.value.__notes__ == ["raised in Dataset.reduce at element 0"]
    with pytest.raises(TypeError, match=r"RD25.*Dataset.reduce: got 5"):
        Dataset.range(5).reduce(0, 5)  # type: ignore[arg-type]


CARDINALITIES = [
    (Dataset.range(7), 7), (Dataset.range(7).batch(2), 4), (Dataset.range(7).batch(2, drop_remainder=True), 3),
    (Dataset.range(7).repeat(2), 14), (Dataset.range(7).repeat(), INFINITE_CARDINALITY),
    (Dataset.range(0).repeat(), 0), (Dataset.range(7).repeat().take(3), 3), (Dataset.range(7).take(-1), 7),
    (Dataset.range(7).take(9), 7), (Dataset.range(7).take(0), 0), (Dataset.range(7).skip(5), 2),
    (Dataset.range(7).skip(9), 0), (Dataset.range(7).repeat().skip(9), INFINITE_CARDINALITY),
    (Dataset.range(7).shard(3, 1), 2), (Dataset.range(7).filter(bool), UNKNOWN_CARDINALITY),
    (Dataset.range(7).map(bool), 7), (Dataset.range(7).window(3, 2), 4), (Dataset.range(7).enumerate(), 7),
    (Dataset.zip(Dataset.range(7), Dataset.range(5)), 5), (Dataset.zip(Dataset.range(7).repeat(), Dataset.range(5)), 5),
    (Dataset.zip(Dataset.range(7).repeat(), Dataset.range(5).repeat()), INFINITE_CARDINALITY),
    (Dataset.range(7).concatenate(Dataset.range(5)), 12),
    (Dataset.range(7).concatenate(Dataset.range(5).repeat()), INFINITE_CARDINALITY),
    (ragged().concatenate(ragged()), UNKNOWN_CARDINALITY), (ragged().take(2), UNKNOWN_CARDINALITY),
    (ragged().take(0), UNKNOWN_CARDINALITY), (Dataset.range(10).batch(4).unbatch(), UNKNOWN_CARDINALITY),
    (Dataset.range(10).batch(5, drop_remainder=True).unbatch(), 10),
    (Dataset.range(10).batch(4).rebatch(3), UNKNOWN_CARDINALITY),
    (Dataset.from_tensor_slices(np.zeros((4, 2))).unbatch(), 8),
    (Dataset.range(10).batch(5, drop_remainder=True).map(lambda x: x[:3]).unbatch(), -2),
    (Dataset.range(3).flat_map(Dataset.range), -2),
    (Dataset.from_tensors(1).shuffle(3).prefetch(1).cache(), 1), (Dataset.from_tensor_slices(np.zeros((4, 2))), 4),
]


@pytest.mark.parametrize("i", range(len(CARDINALITIES)))
def test_the_number_of_elements_is_known_where_it_can_be(i: int) -> None:
    """Observed on TensorFlow 2.21, tf.data.Dataset.cardinality."""
    dataset, count = CARDINALITIES[i]
    assert dataset.cardinality() == count
    if count >= 0:
        assert len(dataset) == count == len(list(dataset))
    else:
        with pytest.raises(TypeError, match="RD25"):
            len(dataset)
    assert bool(dataset)


SPECS = [
    (Dataset.range(3), (), np.int64), (Dataset.range(3).batch(2), (None,), np.int64),
    (Dataset.range(3).batch(2, drop_remainder=True), (2,), np.int64),
    (Dataset.range(3).batch(2).unbatch(), (), np.int64),
    (Dataset.range(3).batch(2).map(lambda x: x[:, None] / 2), (None, None), np.float64),
    (Dataset.range(3).batch(3, drop_remainder=True).map(lambda x: x / 2), (None,), np.float64),
    (Dataset.range(9).batch(2).rebatch(3, drop_remainder=True), (3,), np.int64),
    (Dataset.from_tensor_slices(np.zeros((4, 2), np.float16)).shuffle(3).repeat(), (2,), np.float16),
    (ragged(), None, np.int32), (ragged().padded_batch(2), None, np.int32),
    (Dataset.range(3).map(lambda n: np.arange(n)).padded_batch(2), (None, None), np.int64),
    (Dataset.from_tensors([b"a"]).unbatch(), (), "S1"),
    (Dataset.from_generator(lambda: [1, 2], output_signature=refdist.TensorSpec((), np.int64)), (), np.int64),
]


@pytest.mark.parametrize("i", range(len(SPECS)))
def test_the_spec_of_an_element_is_known(i: int) -> None:
    dataset, shape, dtype = SPECS[i]
    assert dataset.element_spec == refdist.TensorSpec(shape, dtype)
    for element in dataset.take(3):
        assert dataset.element_spec.is_compatible_with(element)


def test_a_spec_that_only_reading_tells_needs_an_element() -> None:
    with pytest.raises(IndexError, match="RD29"):
        _ = Dataset.from_generator(lambda: iter(())).element_spec
    for bad in (5, "ab"):
        with pytest.raises(TypeError, match="RD25"):
            refdist.TensorSpec(bad)
    assert len({refdist.TensorSpec((1,)), refdist.TensorSpec([1]), refdist.TensorSpec(None)}) == 2


@pytest.mark.parametrize(("yielded", "dtype"), [
    (np.float64(0.1), np.float32), (np.zeros(2), np.float16), (np.int32(1), np.int64), (np.int64(-128), np.int8),
    (np.array([255]), np.uint8), (np.int64(3), np.float32), (np.bool_(True), np.int32), (np.float32(1), np.complex64)])
def test_what_a_generator_yields_has_the_dtype_of_the_signature(yielded: Any, dtype: Any) -> None:
    """Observed, TensorFlow 2.21."""
    [element] = Dataset.from_generator(lambda: [yielded], output_signature=refdist.TensorSpec(np.shape(yielded), dtype))
    assert element.dtype == dtype and np.array_equal(element, yielded.astype(dtype))


@pytest.mark.parametrize(("yielded", "dtype"), [
    (np.float32(1), np.int32), (np.int64(128), np.int8), (np.array([-1]), np.uint8), (np.uint8(200), np.int8),
    (np.int64(1), bool), (np.complex64(1), np.float32)])
def test_what_a_generator_yields_loses_no_value(yielded: Any, dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"RD26.*element 0: it has"):
        list(Dataset.from_generator(lambda: [yielded], output_signature=refdist.TensorSpec(np.shape(yielded), dtype)))


def test_a_generator_that_breaks_its_word_is_named_with_the_element() -> None:
    signature = refdist.TensorSpec((None,), np.int64)

    def signed(*elements: Any) -> list[Any]:
        return rows(Dataset.from_generator(lambda: iter(elements), output_signature=signature))

    assert signed([1, 2], np.array([3])) == [[1, 2], [3]]
    for bad in (5, np.array([1.5]), [1.5], {"a": [1]}):
        with pytest.raises(ValueError, match=r"RD26.*element 1"):
            signed([1], bad)
    with pytest.raises(ValueError, match=r"RD26.*element 2: it is 0.5, expected any shape and dtype int32"):
        rows(Dataset.from_generator(lambda: iter([1, 2, 0.5])))
    assert list(Dataset.from_generator(lambda: [(1, None), (2, None)])) == [(1, None), (2, None)]
    for first, second, fault in ((None, 1, "has shape () and dtype int32, expected None"),
                                 (1, None, "is None, expected any shape and dtype int32"),
                                 (Dataset.range(1), 1, "has shape () and dtype int32, expected DatasetSpec")):
        with pytest.raises(ValueError, match=rf"RD26.*element 1: it {re.escape(fault)}"):
            list(Dataset.from_generator(lambda: iter([first, second])))  # noqa: B023
    with pytest.raises(ValueError, match=r"RD26.*element 1: it is {'a': 1}"):
        rows(Dataset.from_generator(lambda: iter([1, {"a": 1}])))
    wide = refdist.TensorSpec((), np.float64)
    doubles = Dataset.from_generator(lambda n: [0.1] * n, args=(2,), output_signature=wide)
    assert rows(doubles) == [0.1, 0.1]
    for bad in (5, (signature, "x")):
        with pytest.raises(TypeError, match="RD25"):
            Dataset.from_generator(list, output_signature=bad)


def failing() -> Iterator[int]:
    yield 1
    yield 2
    raise OSError("the disk is gone")


FAILING = {
    "from_generator": lambda: Dataset.from_generator(failing),
    "map": lambda: Dataset.range(5).map(lambda x: 1 // (2 - x)),
    "map in threads": lambda: Dataset.range(5).map(lambda x: 1 // (2 - int(x)), num_parallel_calls=2),
    "filter": lambda: Dataset.range(5).filter(lambda x: 1 // (2 - int(x)) >= 0),
    "interleave": lambda: Dataset.range(5).interleave(lambda x: Dataset.range(1 // (2 - int(x)) + 1), 1),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("name", FAILING)
def test_what_a_user_s_function_raises_comes_out_with_the_number_of_the_element(name: str, ahead: int) -> None:
    elements = iter(FAILING[name]().map(np.asarray).prefetch(ahead)) if name == "from_generator" else iter(
        FAILING[name]().prefetch(ahead))
    if name == "map":
        elements = iter(Dataset.range(5).map(lambda x: 1 // (2 - int(x))).prefetch(ahead))
    read = [next(elements), next(elements)]
    assert len(read) == 2
    with pytest.raises((OSError, ZeroDivisionError)) as caught:
        list(elements)
    method = name.split(" ")[0]
    assert caught.value.__notes__ == [f"raised in Dataset.{method} at element 2"]
    assert next(elements, None) is None


def test_a_dataset_that_fails_in_the_middle_fails_there_on_replicas_too() -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    iterator = iter(two.experimental_distribute_dataset(Dataset.from_generator(failing).map(lambda x: np.ones(4) * x)))
    assert [float(next(iterator).values[1][0]) for _ in range(2)] == [1.0, 2.0]
    with pytest.raises(OSError, match="the disk is gone"):
        iterator.get_next()


def test_parallel_map_keeps_the_order_and_uses_threads() -> None:
    together = threading.Barrier(3, timeout=HANG)

    def slow(x: Any) -> Any:
        together.wait()
        return x * 10

    assert rows(Dataset.range(6).map(slow, num_parallel_calls=3)) == [0, 10, 20, 30, 40, 50]
    assert rows(Dataset.range(6).map(lambda x: -x, num_parallel_calls=AUTOTUNE)) == [0, -1, -2, -3, -4, -5]
    assert rows(Dataset.from_tensor_slices(([1, 2], [3, 4])).map(lambda a, b: a + b, num_parallel_calls=2)) == [4, 6]


def test_prefetch_reads_before_it_is_asked() -> None:
    here = threading.get_ident()
    where: list[int] = []
    three = threading.Event()

    def note(x: Any) -> Any:
        where.append(threading.get_ident())
        if len(where) == 3:
            three.set()
        return x

    elements = iter(Dataset.range(10).map(note).prefetch(2))
    assert three.wait(30)  # two in the queue and one in the thread's hand, and none has been asked for
    assert rows(elements) == list(range(10))
    assert here not in where
    assert next(elements, None) is None


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(("refdist prefetch", "refdist map"))]


@pytest.mark.parametrize("dataset", [
    Dataset.range(100).prefetch(1), Dataset.range(100).map(lambda x: x, num_parallel_calls=2)])
def test_a_thousand_iterators_leave_no_thread_behind(dataset: Dataset) -> None:
    before = own_threads()
    for i in range(1000):
        elements = iter(dataset)
        next(elements)
        if i % 10 == 0:
            assert len(list(elements)) == 99
        del elements
    for thread in set(own_threads()).difference(before):
        thread.join(30)
    assert not set(own_threads()).difference(before)


def test_a_forgotten_endless_reader_lets_go_of_its_source() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    reader = ReadAhead(endless, 3)
    assert next(reader) == 1
    del reader
    assert closed.wait(30)


# The main thread ends as soon as `begun` is set, which the threads do when they are at work.
PROGRAM = """
import sys, threading
from refdist.data import Dataset

begun = threading.Event()

def endless():
    try:
        while True:
            yield 1
            begun.set()
    finally:
        sys.stdout.write("endless is closed\\n")  # at once, where print writes the end of a line apart

def summed(dataset):
    def never_yields():
        try:
            for _ in dataset:
                pass
        finally:
            sys.stdout.write("summed is closed\\n")
        yield 1
    return Dataset.from_generator(never_yields)

def stuck():
    begun.set()
    threading.Event().wait()
    yield 1

elements = iter({dataset})
begun.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "closed"), [
    ("Dataset.from_generator(endless).prefetch(1)", ["endless is closed"]),
    ("summed(Dataset.from_generator(endless).prefetch(1)).prefetch(2)", ["endless is closed", "summed is closed"]),
    ("Dataset.from_generator(stuck).prefetch(1)", [])])
def test_a_program_ends_after_the_threads_that_read_ahead_for_it(dataset: str, closed: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(dataset=dataset)], text=True, capture_output=True,
                          timeout=HANG)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == closed


def test_shuffling_rows_moves_numbers_and_gives_what_shuffling_elements_gives() -> None:
    array = np.arange(40.0).reshape(20, 2)
    by_number = Dataset.from_tensor_slices(array).shuffle(7, seed=3).skip(1).take(15).repeat(2).batch(4)
    by_element = Dataset.from_generator(lambda: iter(array)).shuffle(7, seed=3).skip(1).take(15).repeat(2).batch(4)
    assert rows(by_number) == rows(by_element)
    assert by_number.cardinality() == 8


def test_a_memory_map_is_read_where_it_is_needed(tmp_path: Any) -> None:
    path = tmp_path / "rows"
    np.memmap(path, np.int32, "w+", shape=(1 << 16, 4))[:] = np.arange(1 << 16)[:, None]
    mapped = np.memmap(path, np.int32, "r", shape=(1 << 16, 4))
    dataset = Dataset.from_tensor_slices(mapped).batch(1000)
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for step, element in enumerate(two.experimental_distribute_dataset(dataset).__iter__()):
        assert all(np.shares_memory(part, mapped) for part in element.values)
        assert int(element.values[0][0, 0]) == step * 1000


@pytest.mark.parametrize("call", [
    lambda d: d.batch(0), lambda d: d.batch(True), lambda d: d.batch(1.5), lambda d: d.padded_batch("2"),
    lambda d: d.rebatch(0), lambda d: d.rebatch([]), lambda d: d.rebatch([1, 0]), lambda d: d.rebatch(None),
    lambda d: d.window(0), lambda d: d.window(1, shift=0), lambda d: d.window(1, stride=-1), lambda d: d.map(5),
    lambda d: d.map(len, num_parallel_calls=0), lambda d: d.map(len, num_parallel_calls="2"), lambda d: d.filter(None),
    lambda d: d.interleave(5), lambda d: d.interleave(len, 0), lambda d: d.interleave(len, 1, 0),
    lambda d: d.enumerate("x"), lambda d: d.shuffle(0), lambda d: d.shuffle(-1), lambda d: d.repeat(1.5),
    lambda d: d.take(1.5), lambda d: d.skip(None), lambda d: d.shard(0, 0), lambda d: d.shard(2, 2),
    lambda d: d.shard(-1, 0), lambda d: d.shard(2, -1), lambda d: d.map(len, num_parallel_calls=-2),
    lambda d: d.interleave(len, -2), lambda d: d.interleave(len, 1, 1, 0), lambda d: d.take_while(3),
    lambda d: d.scan(0, None), lambda d: d.apply(3), lambda d: d.apply(len), lambda d: Dataset.zip(d, datasets=(d,)),
    lambda d: Dataset.zip(), lambda d: Dataset.zip([d, d]), lambda d: Dataset.sample_from_datasets([]),
    lambda d: Dataset.sample_from_datasets([d, 3]),
    lambda d: Dataset.sample_from_datasets([d, d], [1.0]), lambda d: Dataset.sample_from_datasets([d, d], [1, 1]),
    lambda d: Dataset.choose_from_datasets([d], Dataset.range(1, output_type=np.int32)),
    lambda d: Dataset.choose_from_datasets([d], Dataset.range(1).batch(1)),
    lambda d: Dataset.choose_from_datasets([], Dataset.range(1)), lambda d: Dataset.range(3, output_type=bool),
    lambda d: Dataset.from_generator(list, output_shapes=()),
    lambda d: Dataset.from_generator(list, np.int32, output_signature=refdist.TensorSpec(())),
    lambda d: Dataset.from_generator(list, (np.int32,), ((), ())), lambda d: Dataset.from_generator(list, "no dtype"),
    lambda d: d.prefetch(-2), lambda d: d.with_options(None), lambda d: Dataset.range(),
    lambda d: Dataset.range(1, 2, 0),
    lambda d: Dataset.range("3"), lambda d: Dataset.from_generator(5), lambda d: Dataset.from_tensor_slices([])
    .concatenate(None), lambda d: Dataset.from_tensors({1, 2}), lambda d: Dataset.from_tensor_slices(()),
])
def test_bad_arguments_are_refused_before_anything_is_read(call: Any) -> None:
    def never() -> Iterator[Any]:
        raise AssertionError("read")
        yield

    with pytest.raises((TypeError, ValueError), match=r"RD(25|34)"):
        call(Dataset.from_generator(never))


def padded(element: Any, shapes: Any, values: Any) -> Any:
    return next(iter(Dataset.from_tensors(element).padded_batch(1, shapes, values)))


INTS, FLOATS, TEXT = np.array([1, 2], np.int32), np.array([1], np.float32), np.array([b"x"])


@pytest.mark.parametrize(("element", "shapes", "values", "wanted"), [
    ((INTS, FLOATS), ([3], [2]), (7, None), ([[1, 2, 7]], [[1, 0]])),
    ((INTS, FLOATS), ([3], [2]), (None, None), ([[1, 2, 0]], [[1, 0]])),
    ({"a": INTS, "b": TEXT}, {"a": [3], "b": [2]}, {"a": 7, "b": None}, {"a": [[1, 2, 7]], "b": [[b"x", b""]]}),
    ((INTS, (FLOATS, FLOATS)), ([3], ([2], [2])), (7, None), ([[1, 2, 7]], ([[1, 0]], [[1, 0]]))),
    (INTS, [3], 7, [[1, 2, 7]]),
], ids=["one component", "all components", "text", "a nest", "an array"])
def test_none_is_the_padding_of_zeros_wherever_it_stands(element: Any, shapes: Any, values: Any, wanted: Any) -> None:
    assert refdist.nest.map_structure(lambda array: array.tolist(), padded(element, shapes, values)) == wanted


def test_an_error_about_padding_names_the_call_and_the_component() -> None:
    with pytest.raises(TypeError, match=r"RD25. Dataset.padded_batch: the padding value of component 1 is"):
        padded((INTS, FLOATS), ([3], [2]), (7, print))
    with pytest.raises(TypeError, match=r"RD25.*padding_values has 3 parts, an element has 2"):
        padded((INTS, FLOATS), ([3], [2]), (7, None, None))


def test_a_cardinality_can_be_stated() -> None:
    state = refdist.data.experimental.assert_cardinality
    unknown = Dataset.range(6).filter(lambda n: True)
    stated = unknown.apply(state(6))
    assert (unknown.cardinality(), stated.cardinality(), stated.batch(4).cardinality()) == (UNKNOWN_CARDINALITY, 6, 2)
    assert (rows(stated), rows(stated.repeat(2).skip(7)), stated.element_spec) == (
        [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], unknown.element_spec)
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    assert [rows(step.values) for step in strategy.experimental_distribute_dataset(unknown.batch(4).apply(state(2)))
            ] == [[[0, 1], [2, 3]], [[4], [5]]]
    assert rows(Dataset.range(6).repeat().apply(state(INFINITE_CARDINALITY)).take(8))[-2:] == [0, 1]


@pytest.mark.parametrize(("number", "read", "text"), [
    (4, 4, "stated to have 4 elements, and has more"), (1, 1, "stated to have 1 element, and has more"),
    (8, 6, "stated to have 8 elements, and has only 6"), (-1, 6, "stated to have no end, and has only 6")])
def test_a_cardinality_that_is_wrong_is_an_error_where_elements_are_read(number: int, read: int, text: str) -> None:
    elements = iter(Dataset.range(6).apply(refdist.data.experimental.assert_cardinality(number)))
    assert [int(next(elements)) for _ in range(read)] == list(range(read))
    with pytest.raises(ValueError, match=rf"RD34\] assert_cardinality: the dataset was {text}\."):
        next(elements)


@pytest.mark.parametrize(("number", "code"), [(-2, "RD34"), ("a", "RD25"), (True, "RD25"), (1.5, "RD25")])
def test_what_is_no_cardinality_is_refused_before_anything_is_read(number: Any, code: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"{code}\] assert_cardinality: expected_cardinality is"):
        refdist.data.experimental.assert_cardinality(number)
