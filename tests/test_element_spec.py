"""What is known of a dataset before it is read, against what TensorFlow 2.21 answers, and whether it holds.

The tables were observed: each row is a program that runs in both, its element_spec and its cardinality in
TensorFlow.  Where a function of the user stands in between, refdist says less (see `LESS`), and never something wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import TensorSpec
from refdist.data import Dataset, DatasetSpec
from refdist.data.spec import common

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)
INT, FLOAT = TensorSpec((), np.int64), TensorSpec((), np.float32)
ROW = TensorSpec((3,), np.float32)
SIGNATURE = TensorSpec((None,), np.int32)


def matrix() -> Dataset:
    return Dataset.from_tensor_slices(MATRIX)


def signed() -> Dataset:
    return Dataset.from_generator(lambda: iter([[1], [2, 3], [4, 5, 6]]), output_signature=SIGNATURE)


def typed() -> Dataset:
    return Dataset.from_generator(lambda: iter([[1], [2, 3], [4, 5, 6]]), output_types=np.int32)


def n(*shape: int | None) -> TensorSpec:
    return TensorSpec(shape, np.int64)


def f(*shape: int | None) -> TensorSpec:
    return TensorSpec(shape, np.float32)


def some(dataset: Dataset) -> Dataset:
    return dataset.filter(lambda *_: True)


# Program, element_spec, cardinality; as TensorFlow 2.21 has them.
KNOWN: list[tuple[Callable[[], Dataset], Any, int]] = [
    (lambda: matrix().enumerate(), (INT, ROW), 4),
    (lambda: matrix().repeat().enumerate(5), (INT, ROW), -1),
    (lambda: some(matrix()).enumerate(), (INT, ROW), -2),
    (lambda: Dataset.range(10).window(3), DatasetSpec(INT), 4),
    (lambda: Dataset.from_tensor_slices({"a": MATRIX, "b": (MATRIX[:, 0], MATRIX)}).window(3),
     {"a": DatasetSpec(ROW), "b": (DatasetSpec(FLOAT), DatasetSpec(ROW))}, 2),
    (lambda: Dataset.range(10).repeat().window(3), DatasetSpec(INT), -1),
    (lambda: some(Dataset.range(10)).window(3), DatasetSpec(INT), -2),
    (lambda: Dataset.range(7).window(3, 2, 2, True), DatasetSpec(INT), 2),
    (lambda: Dataset.from_tensors(MATRIX).concatenate(Dataset.from_tensors(MATRIX[:2])), f(None, 3), 2),
    (lambda: Dataset.from_tensors(MATRIX).concatenate(matrix()), TensorSpec(None), 5),
    (lambda: signed().concatenate(Dataset.from_tensors(np.zeros(3, np.int32))), SIGNATURE, -2),
    (lambda: typed().concatenate(signed()), TensorSpec(None, np.int32), -2),
    (lambda: Dataset.range(3).concatenate(some(Dataset.range(3)).repeat()), INT, -1),
    (lambda: Dataset.range(0).concatenate(Dataset.range(0).repeat()), INT, 0),
    (lambda: signed().padded_batch(2), TensorSpec((None, None), np.int32), -2),
    (lambda: signed().padded_batch(2, drop_remainder=True), TensorSpec((2, None), np.int32), -2),
    (lambda: signed().padded_batch(2, [5], drop_remainder=True), TensorSpec((2, 5), np.int32), -2),
    (lambda: signed().padded_batch(2, [-1], drop_remainder=True), TensorSpec((2, None), np.int32), -2),
    (lambda: typed().padded_batch(2, [None]), TensorSpec((None, None), np.int32), -2),
    (lambda: matrix().padded_batch(3), f(None, 3), 2),
    (lambda: matrix().padded_batch(3, [None]), f(None, None), 2),
    (lambda: matrix().padded_batch(3, [5]), f(None, 5), 2),
    (lambda: Dataset.from_tensor_slices({"a": MATRIX, "b": MATRIX[:, 0]}).padded_batch(2, {"a": [7], "b": []}),
     {"a": f(None, 7), "b": f(None)}, 2),
    (lambda: matrix().repeat().padded_batch(3), f(None, 3), -1),
    (lambda: matrix().unbatch(), FLOAT, 12),
    (lambda: Dataset.from_tensors(MATRIX).unbatch(), ROW, 4),
    (lambda: Dataset.range(10).batch(4).unbatch(), INT, -2),
    (lambda: Dataset.range(10).batch(4, drop_remainder=True).unbatch(), INT, 8),
    (lambda: Dataset.range(10).batch(4).repeat().unbatch(), INT, -1),
    (lambda: some(Dataset.range(10).batch(4, drop_remainder=True)).unbatch(), INT, -2),
    (lambda: Dataset.zip(Dataset.range(4).batch(2), Dataset.range(4).batch(2, True)).unbatch(), (INT, INT), 4),
    (lambda: Dataset.from_tensor_slices(MATRIX[:0]).unbatch(), FLOAT, 0),
    (lambda: Dataset.from_tensor_slices(MATRIX[:, :0]).unbatch(), FLOAT, -2),
    (lambda: Dataset.range(0).batch(2).unbatch(), INT, -2),
    (lambda: typed().unbatch(), TensorSpec(None, np.int32), -2),
    (lambda: Dataset.range(10).batch(4).rebatch(3), n(None), -2),
    (lambda: Dataset.range(10).batch(4).rebatch(3, drop_remainder=True), n(3), -2),
    (lambda: Dataset.range(10).batch(4).rebatch([1, 2], drop_remainder=True), n(None), -2),
    (lambda: Dataset.range(10).batch(4).rebatch([2, 2], drop_remainder=True), n(2), -2),
    (lambda: Dataset.range(10).batch(4, drop_remainder=True).rebatch(3), n(None), -2),
    (lambda: Dataset.range(10).batch(4, drop_remainder=True).rebatch(2), n(2), -2),
    (lambda: Dataset.range(3).batch(2).repeat().rebatch(2), n(None), -2),
    (lambda: typed(), TensorSpec(None, np.int32), -2),
    (lambda: typed().take(1).batch(2), TensorSpec(None, np.int32), -2),
    (lambda: Dataset.from_generator(lambda: iter(()), (np.int32, np.float32), ((), (None,))),
     (TensorSpec((), np.int32), f(None)), -2),
    (lambda: some(matrix()), ROW, -2), (lambda: some(matrix().repeat()), ROW, -2),
    (lambda: matrix().take_while(lambda x: True), ROW, -2),
    (lambda: Dataset.zip({"a": Dataset.range(3), "b": signed()}), {"a": INT, "b": SIGNATURE}, -2),
    (lambda: Dataset.zip(datasets=(Dataset.range(3), Dataset.range(4))), (INT, INT), 3),
    (lambda: Dataset.from_tensors((1.5, None)).batch(2).unbatch(), (FLOAT, None), -2),
    (lambda: Dataset.range(3, output_type=np.int8), TensorSpec((), np.int8), 3),
    (lambda: Dataset.range(3).skip(-1), INT, 0), (lambda: Dataset.range(3).take(-1), INT, 3),
    (lambda: Dataset.range(3).repeat(-2), INT, -1), (lambda: Dataset.range(3).shuffle(-2), INT, 3),
    (lambda: some(matrix()).take(0), ROW, -2), (lambda: some(matrix()).skip(-1), ROW, -2),
    (lambda: matrix().repeat().shard(2, 1), ROW, -1), (lambda: some(matrix()).repeat(0), ROW, 0),
    (lambda: some(matrix()).repeat(2), ROW, -2), (lambda: matrix().repeat().repeat(0), ROW, 0),
    (lambda: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4)], seed=1), INT, -2),
    (lambda: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4).repeat()], seed=1), INT, -1),
    (lambda: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4)], [0.0, 1.0]), INT, 4),
    (lambda: Dataset.sample_from_datasets([Dataset.range(3)]), INT, 3),
    (lambda: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4)], [0.0, 0.0]), INT, 0),
    (lambda: Dataset.sample_from_datasets([Dataset.from_tensors([1, 2]), Dataset.from_tensors([1])]), SIGNATURE, -2),
    (lambda: Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(4)], Dataset.range(2)), INT, -2),
    (lambda: Dataset.choose_from_datasets([Dataset.range(3)], Dataset.range(1)), INT, -2),
    (lambda: Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(4).repeat()], Dataset.range(2)), INT, -1),
    (lambda: Dataset.range(3).map(lambda x: x * 2), INT, 3),
    (lambda: Dataset.range(3).flat_map(Dataset.range), INT, -2),
    (lambda: Dataset.range(0).flat_map(Dataset.range), INT, -2), (lambda: Dataset.range(0).map(lambda x: x), INT, 0),
    (lambda: Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)), n(None), -2),
    (lambda: Dataset.range(3).batch(2).flat_map(Dataset.from_tensor_slices), INT, -2),
    (lambda: Dataset.range(3).map(lambda x: (x, Dataset.range(x))), (INT, DatasetSpec(INT)), 3),
    (lambda: Dataset.range(3).map(lambda x: "a"), TensorSpec((), object), 3),
    (lambda: Dataset.range(3).map(lambda x: (x, None)), (INT, None), 3),
    (lambda: Dataset.range(3).map(lambda x: [1.5, True]), (FLOAT, TensorSpec((), np.bool_)), 3),
    (lambda: Dataset.range(5).scan(0, lambda s, x: (s + 1, {"s": s, "x": x})),
     {"s": TensorSpec((), np.int32), "x": INT}, 5),
    (lambda: typed().map(lambda x: x * 2), TensorSpec(None, np.int32), -2),
]
# Program, refdist's element_spec, TensorFlow's: what only calling a function tells has its rank and dtype.
LESS: list[tuple[Callable[[], Dataset], Any, Any]] = [
    (lambda: Dataset.range(3).map(lambda x: np.zeros((2, 3))), TensorSpec((None, None), np.float64),
     TensorSpec((2, 3), np.float64)),
    (lambda: Dataset.range(9).batch(3, True).map(lambda x: x + 1), n(None), n(3)),
    (lambda: Dataset.range(3).map(lambda x: ([1, 2], x)), (TensorSpec((None,), np.int32), INT),
     (TensorSpec((2,), np.int32), INT)),
    (lambda: Dataset.range(9).window(3).flat_map(lambda w: w.batch(3, True)), n(None), n(3)),
]
# What is known of these TensorFlow cannot say, or it has no such program; that it holds is what counts.
OTHERS: list[Callable[[], Dataset]] = [
    lambda: Dataset.range(5).map(lambda x: np.arange(x)),
    lambda: Dataset.range(12).batch(4).map(lambda x: x[x > 5]),
    lambda: Dataset.range(5).flat_map(lambda x: Dataset.from_tensors(np.zeros(int(x)))),
    lambda: Dataset.range(5).scan([0], lambda s, x: (np.append(s, np.int32(x)), s)),
    lambda: typed().map(np.squeeze),
    lambda: Dataset.from_generator(lambda: iter([[1], 2, [[3]]])),
    lambda: Dataset.from_tensor_slices([b"a", b"abc"]).map(lambda x: x),
    lambda: Dataset.from_tensor_slices([b"a", b"abc"]).concatenate(Dataset.from_tensor_slices([b"abcdef"])),
    lambda: Dataset.from_generator(lambda: iter([b"a", b"abc"])).batch(2),
    lambda: ragged().batch(2), lambda: ragged().filter(lambda x: True), lambda: ragged().batch(2).unbatch(),
    lambda: ragged().batch(2).unbatch().take(1).repeat(2).batch(2),
]


def ragged() -> Dataset:
    rows = np.empty(3, object)
    rows[:] = [np.arange(n) for n in (1, 2, 3)]
    return Dataset.from_tensor_slices(rows)


def holds(spec: Any, element: Any) -> bool:
    if spec is None:
        return element is None
    return bool(spec.is_compatible_with(element))


def check(dataset: Dataset) -> None:
    spec = dataset.element_spec
    for element in dataset.take(5):
        assert refdist.nest.compare([spec, element]) is None
        pairs = zip(refdist.nest.flatten(spec), refdist.nest.flatten(element), strict=True)
        assert all(holds(part_spec, leaf) for part_spec, leaf in pairs), (spec, element)


@pytest.mark.parametrize("i", range(len(KNOWN)))
def test_what_is_known_is_what_tensorflow_knows_and_holds(i: int) -> None:
    program, spec, cardinality = KNOWN[i]
    dataset = program()
    assert dataset.element_spec == spec
    assert dataset.cardinality() == cardinality
    check(dataset)
    if cardinality >= 0:
        assert len(list(dataset)) == cardinality


@pytest.mark.parametrize("i", range(len(LESS)))
def test_what_a_function_makes_is_known_by_rank_and_dtype(i: int) -> None:
    program, spec_here, spec_there = LESS[i]
    assert program().element_spec == spec_here == common([spec_here, spec_there])
    check(program())


@pytest.mark.parametrize("i", range(len(OTHERS)))
def test_a_spec_holds_for_every_element(i: int) -> None:
    check(OTHERS[i]())


def test_asking_for_what_is_known_reads_nothing() -> None:
    def never() -> Iterator[Any]:
        raise AssertionError("read")
        yield

    source = Dataset.from_generator(never, output_signature=INT)
    for dataset in (source.enumerate(), source.window(2), source.concatenate(source), source.batch(2).padded_batch(2),
                    Dataset.sample_from_datasets([source, source]), source.batch(2).unbatch(),
                    source.take(2).shuffle(2)):
        assert dataset.element_spec is not None


def test_a_function_is_called_once_for_the_spec_of_all_that_comes_after_it() -> None:
    calls: list[int] = []
    mapped = Dataset.range(3).map(lambda x: calls.append(int(x)) or x)
    for dataset in (mapped, mapped.batch(2), mapped.take(1).enumerate(), mapped.window(2)):
        assert dataset.element_spec is not None
    assert calls == [0]


@pytest.mark.parametrize(("results", "message"), [
    ([1, 1.5], "dtype int32, this one float32"), ([[1], ([1], 2)], "this one has a tuple of length 2"),
    ([{"a": 1}, {"b": 1}], "keys"), ([(1,), (1, 2)], ""), ([np.zeros(2), np.zeros((2, 2))], "rank 1, this one 2"),
    ([1, None], "this one None"), ([Dataset.range(1), 1], "has DatasetSpec"),
    ([Dataset.range(1), Dataset.from_tensors(1.5)], "this one DatasetSpec")])
def test_results_of_another_kind_are_named_with_the_element(results: list[Any], message: str) -> None:
    numbers, following = Dataset.range(3), [results[0], results[0], results[1]]
    for made in (numbers.map(lambda i: following[int(i)]), numbers.scan(0, lambda s, i: (s, following[int(i)])),
                 numbers.map(lambda i: following[int(i)], num_parallel_calls=2)):
        with pytest.raises(ValueError, match=rf"RD26.*element 2 .*{message}"):
            list(made)
        assert made.element_spec is not None
    if not isinstance(results[0], Dataset) and results[1] is not None:
        parts = [Dataset.from_tensors(results[0]), Dataset.from_tensors(results[1])]
        for dataset in (Dataset.range(2).flat_map(lambda i: parts[int(i)]), Dataset.range(2).interleave(
                lambda i: parts[int(i)])):
            with pytest.raises(ValueError, match=r"RD26.*element 1 "):
                list(dataset)


def test_ranks_may_differ_where_those_of_the_arguments_do() -> None:
    assert [np.ndim(x) for x in typed().map(lambda x: x if len(x) > 1 else x[0])] == [0, 1, 1]


def test_an_empty_dataset_calls_its_function_with_zeros() -> None:
    seen: list[Any] = []

    def note(*parts: Any) -> Any:
        seen.extend(parts)
        return 1.5

    numbers, text = Dataset.range(0), Dataset.from_generator(lambda: iter(()), output_signature=TensorSpec((), object))
    spec = Dataset.zip(numbers.batch(2), text, Dataset.from_tensors((1, None)).take(0), numbers.window(2)).map(note)
    assert spec.element_spec == FLOAT
    assert seen[0].tolist() == [0]
    assert [seen[1], seen[2][1], *seen[3]] == [b"", None]
    with pytest.raises(IndexError, match=r"RD29.*with zeros the function of map raises ZeroDivisionError"):
        _ = numbers.map(lambda x: 1 // int(x)).element_spec
    with pytest.raises(IndexError, match=r"RD29.*no elements to find it from"):
        _ = Dataset.from_generator(lambda: iter(())).map(lambda x: x).element_spec


def test_datasets_of_different_kinds_are_not_put_together() -> None:
    numbers, pairs = Dataset.range(3), Dataset.range(3).enumerate()
    for other in (Dataset.from_tensors(1.5), pairs, numbers.window(2), Dataset.from_tensors(None)):
        for put in (lambda a, b: a.concatenate(b), lambda a, b: Dataset.sample_from_datasets([a, b]),
                    lambda a, b: Dataset.choose_from_datasets([a, b], numbers)):
            with pytest.raises(TypeError, match="RD26"):
                put(numbers, other)
    late = numbers.concatenate(Dataset.from_generator(lambda: iter([1.5])))
    with pytest.raises(TypeError, match="RD26"):
        _ = late.element_spec


def test_scalars_and_components_of_different_lengths_are_not_taken_apart() -> None:
    with pytest.raises(ValueError, match="RD15"):
        Dataset.range(3).unbatch()
    with pytest.raises(ValueError, match="RD15"):
        Dataset.range(3).rebatch(2)
    with pytest.raises(ValueError, match=r"RD26.*2 and 3 rows"):
        Dataset.from_tensors((np.zeros(2), np.zeros(3))).unbatch()


def test_specs_of_datasets_compare() -> None:
    spec = Dataset.range(5).window(2).element_spec
    assert spec == DatasetSpec(INT) != DatasetSpec(FLOAT)
    assert len({spec, DatasetSpec(INT), DatasetSpec((INT, INT))}) == 2
    assert spec.is_compatible_with(Dataset.range(3))
    assert not spec.is_compatible_with(5)
    assert not DatasetSpec(n(2)).is_compatible_with(Dataset.from_tensors(np.zeros(3, np.int64)))
    assert not INT.is_compatible_with(Dataset.range(3))
    assert next(iter(Dataset.range(3).map(lambda x: Dataset.range(3)))).element_spec == INT
