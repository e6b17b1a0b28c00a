"""Who gets which rows: every small case, TensorFlow's own splits, uneven ends, files, and the explanation."""

from __future__ import annotations

import json
import warnings
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import refdist
from refdist.core.interfaces import Layout
from refdist.data import AutoShardPolicy, Dataset, Options, TextLineDataset, UnevenEnd
from refdist.input import sharding
from refdist.input.split import split_batch

SPLITS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "tables" / "splits.json").read_text())
TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
FOUR = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
quiet = pytest.mark.filterwarnings("ignore:.*no row of a full batch")


def worker(index: int, workers: int, local: int) -> Any:
    """What a split has to know of a strategy."""
    return SimpleNamespace(layout=Layout(("GPU:0",) * local, index, workers), agreed_seed=lambda: 7)


def with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def steps_of(dataset: Any, workers: int, local: int) -> list[Any]:
    """For each worker its steps, each a list with an array per replica.  A function makes a dataset for each."""
    steps = []
    for index in range(workers):
        pipeline = dataset() if callable(dataset) else dataset
        split = sharding.of_dataset(worker(index, workers, local), pipeline, UnevenEnd.EMPTY)
        steps.append(list(split.steps(split.open(), index)))
    return steps


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_row_is_seen_once_and_in_order(workers: int) -> None:
    """Up to 40 rows, batches of 12, 8 replicas on each worker, remainder kept and dropped: all cases."""
    for local in range(1, 9):
        count = workers * local
        for batch in range(1, 13):
            for rows in range(41):
                seen: list[list[int]] = [[] for _ in range(count)]
                lengths = []
                batches = [np.arange(start, min(start + batch, rows)) for start in range(0, rows, batch)]
                for position, numbers in enumerate(batches):
                    pieces = split_batch(numbers, count, position)
                    lengths.append([len(piece) for piece in pieces])
                    for index in range(workers):
                        for i, piece in enumerate(pieces[index::workers]):
                            seen[index * local + i] += piece.tolist()
                assert sorted(chain(*seen)) == list(range(rows))
                assert all(rows_seen == sorted(rows_seen) for rows_seen in seen)
                assert all(sum(sizes) == len(numbers) for sizes, numbers in zip(lengths, batches, strict=True))
                if workers == 1:
                    continue
        for drop in (False, True):
            for rows, batch in ((40, 12), (7, 3), (0, 1), (13, 5)):
                dataset = Dataset.range(rows).batch(batch, drop)
                kept = rows - rows % batch if drop else rows
                by_worker = steps_of(dataset, workers, local)
                every = [row for steps in by_worker for step in steps for piece in step for row in piece.tolist()]
                assert sorted(every) == list(range(kept))
                assert len({len(steps) for steps in by_worker}) == 1


@pytest.mark.parametrize("case", SPLITS, ids=lambda case: "-".join(map(str, list(case.values())[:-1])))
def test_the_split_is_tensorflow_s(case: dict[str, Any]) -> None:
    """Made by TensorFlow 2.21 (tables/make_splits.py), on one worker and on real clusters of two and three."""
    dataset = Dataset.range(case["rows"]).batch(case["batch"], case["drop_remainder"]).repeat(case["repeat"])
    dataset = with_policy(dataset, AutoShardPolicy[case["policy"]])
    by_worker = [[[piece.tolist() for piece in step] for step in steps]
                 for steps in steps_of(dataset, case["workers"], case["replicas"] // case["workers"])]
    longest = max(map(len, by_worker))
    for steps in by_worker:  # a worker whose rows have ended gets empty elements until the others' have
        steps += [[[]] * (case["replicas"] // case["workers"])] * (longest - len(steps))
    expected = case["steps"]
    # In TensorFlow one more step, in which nobody has a row, can follow where some pieces are of size 0.
    while longest and not any(row for steps in expected for row in steps[-1]):
        expected, by_worker = [steps[:-1] for steps in expected], [steps[:len(expected[0]) - 1] for steps in by_worker]
        longest -= 1
    assert by_worker == expected


@pytest.mark.parametrize("policy", [AutoShardPolicy.OFF, AutoShardPolicy.HINT])
def test_every_worker_reads_all_rows_where_nothing_is_sharded(policy: AutoShardPolicy) -> None:
    """TensorFlow 2.21; by a map the size of the batches is not certain, so that each is cut by its own."""
    batches = Dataset.range(7).batch(5)
    by_worker = steps_of(with_policy(batches.map(lambda x: x), policy), 2, 1)
    assert [[[*map(list, step)] for step in steps] for steps in by_worker] == [
        [[[0, 1, 2]], [[3, 4]], [[5]], [[6]]]] * 2
    for dataset in (batches, batches.map(lambda x: x), [np.arange(5), np.arange(5, 7)]):
        dataset = with_policy(dataset, policy) if isinstance(dataset, Dataset) else Dataset.from_generator(
            lambda: iter([np.arange(5), np.arange(5, 7)])).with_options(with_policy(batches, policy).options())
        for workers, local in ((2, 1), (2, 2), (3, 2)):
            for steps in steps_of(dataset, workers, local):
                assert [row for step in steps for piece in step for row in piece] == [*range(7)]
                assert all(len(step) == local for step in steps)


def test_workers_that_shuffle_without_a_seed_agree_on_one() -> None:
    by_worker = steps_of(lambda: Dataset.range(24).shuffle(24).batch(6), 3, 2)
    assert sorted(row for steps in by_worker for step in steps for piece in step for row in piece.tolist()) == [
        *range(24)]


def files(folder: Path, count: int, lines: int) -> list[str]:
    names = []
    for i in range(count):
        path = folder / f"part-{i}"
        path.write_text("".join(f"{i}:{line}\n" for line in range(lines)))
        names.append(str(path))
    return names


def text(steps_by_worker: list[Any]) -> list[list[list[bytes]]]:
    return [[[*map(bytes.decode, piece)] for step in steps for piece in step] for steps in steps_by_worker]


def test_files_are_dealt_out_whole(tmp_path: Path) -> None:
    """tf.data.experimental.AutoShardPolicy.FILE."""
    names = files(tmp_path, 3, 2)
    dataset = TextLineDataset(names).batch(2)
    assert text(steps_of(dataset, 2, 1)) == [[["0:0"], ["0:1"], ["2:0"], ["2:1"]], [["1:0"], ["1:1"]]]
    listed = Dataset.list_files(str(tmp_path / "part-*"), shuffle=False).flat_map(TextLineDataset).batch(4)
    assert [sorted(chain(*pieces)) for pieces in text(steps_of(listed, 3, 1))] == [
        ["0:0", "0:1"], ["1:0", "1:1"], ["2:0", "2:1"]]
    shuffled = Dataset.list_files(str(tmp_path / "part-*")).flat_map(TextLineDataset).batch(3)
    every = [line for pieces in text(steps_of(shuffled, 2, 2)) for piece in pieces for line in piece]
    assert sorted(every) == sorted(f"{i}:{line}" for i in range(3) for line in range(2))


def test_too_few_files_are_an_error_with_file_and_shared_by_rows_with_auto(tmp_path: Path) -> None:
    dataset = TextLineDataset(files(tmp_path, 2, 3)).batch(3)
    with pytest.raises(ValueError, match=r"RD18.*3 workers and 2 files"):
        steps_of(with_policy(dataset, AutoShardPolicy.FILE), 3, 1)
    with pytest.raises(ValueError, match=r"RD18.*2 workers and 0 files"):
        steps_of(with_policy(Dataset.range(4).batch(2), AutoShardPolicy.FILE), 2, 1)
    read = text(steps_of(dataset, 3, 1))
    assert sorted(line for pieces in read for piece in pieces for line in piece) == [
        f"{i}:{line}" for i in range(2) for line in range(3)]
    assert "fewer files (2) than workers (3)" in sharding.of_dataset(worker(0, 3, 1), dataset, UnevenEnd.EMPTY).policy


def shown(distributed: Any) -> list[Any]:
    return [[part.tolist() for part in element.values] for element in distributed]


def distributed(uneven: UnevenEnd, dataset: Any, strategy: Any = TWO) -> Any:
    return strategy.experimental_distribute_dataset(dataset, refdist.InputOptions(uneven_end=uneven))


@quiet
def test_an_uneven_end_can_be_dropped() -> None:
    assert shown(distributed(UnevenEnd.DROP, Dataset.range(7).batch(4))) == [[[0, 1], [2, 3]], [[4], [5]]]
    off = with_policy(Dataset.range(11).batch(5), AutoShardPolicy.OFF)
    assert shown(distributed(UnevenEnd.DROP, off)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert shown(distributed(UnevenEnd.DROP, [np.arange(3), np.arange(1)])) == [[[0], [1]], [[], []]]
    with pytest.raises(ValueError, match="RD18"):
        distributed(UnevenEnd.DROP, Dataset.range(3).batch(3), FOUR)


@quiet
def test_an_uneven_end_can_be_padded_and_masked() -> None:
    batches = Dataset.from_tensor_slices({"x": np.arange(1.0, 8), "y": np.ones((7, 2))}).batch(4)
    dataset = distributed(UnevenEnd.PAD, batches)
    *_, (last, mask) = dataset
    assert [part.tolist() for part in last["x"].values] == [[5.0, 6.0], [7.0, 0.0]]
    assert [part.tolist() for part in mask.values] == [[True, True], [True, False]]
    assert [part.shape for part in last["y"].values] == [(2, 2), (2, 2)]
    spec, mask_spec = dataset.element_spec
    assert spec["y"].values[1].shape == (2, 2)
    assert mask_spec.values[0] == refdist.TensorSpec((2,), bool)
    total = 0.0
    for element, real in dataset:
        part = TWO.run(lambda e, m: refdist.get_replica_context().all_reduce("SUM", e["x"][m].sum()), (element, real))
        total += float(part.values[0])
    assert total == sum(range(1, 8))


@quiet
def test_an_uneven_end_can_be_refused() -> None:
    refused = iter(distributed(UnevenEnd.ERROR, Dataset.range(7).batch(4)))
    assert [part.tolist() for part in next(refused).values] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match=r"RD18.*\[2, 1\] rows in step 1"):
        next(refused)
    with pytest.raises(TypeError, match="RD25"):
        distributed("PAD", Dataset.range(4).batch(4))  # type: ignore[arg-type]


def from_function(uneven: UnevenEnd, dataset: Dataset) -> Any:
    return TWO.distribute_datasets_from_function(lambda _: dataset, refdist.InputOptions(uneven_end=uneven))


def test_uneven_ends_of_datasets_that_a_function_made() -> None:
    """A difference for scalars: TensorFlow drops row 2 of range(3) without a word."""
    batches = Dataset.range(6).batch(2)
    assert shown(from_function(UnevenEnd.EMPTY, batches)) == [[[0, 1], [2, 3]], [[4, 5], []]]
    assert shown(from_function(UnevenEnd.EMPTY, Dataset.range(6).batch(2, drop_remainder=True))) == [[[0, 1], [2, 3]]]
    assert shown(from_function(UnevenEnd.DROP, batches)) == [[[0, 1], [2, 3]]]
    assert shown(from_function(UnevenEnd.DROP, Dataset.range(3))) == [[0, 1]]
    (_, first), (rows, mask) = from_function(UnevenEnd.PAD, batches)
    assert [part.tolist() for part in rows.values] == [[4, 5], [0, 0]]
    assert [part.tolist() for part in mask.values] == [[True, True], [False, False]]
    assert first.values[0].all()
    with pytest.raises(ValueError, match="RD18"):
        shown(from_function(UnevenEnd.ERROR, batches))
    with pytest.raises(ValueError, match="RD15"):
        shown(from_function(UnevenEnd.PAD, Dataset.range(4)))


def test_specs_and_cardinalities_of_distributed_datasets() -> None:
    def rows(dataset: Any, strategy: Any = TWO) -> Any:
        spec = strategy.experimental_distribute_dataset(dataset).element_spec
        return [part.shape[0] for part in spec.values] if strategy is TWO else spec.shape[0]

    assert rows(Dataset.range(8).batch(4)) == [None, None]
    assert rows(Dataset.range(8).batch(4, drop_remainder=True)) == [2, 2]
    assert rows(Dataset.range(8).batch(5, drop_remainder=True)) == [None, None]
    assert rows([np.ones(4)]) == [None, None]
    assert rows(Dataset.range(8).batch(4), refdist.OneDeviceStrategy("GPU:0")) is None
    nested = TWO.experimental_distribute_dataset(Dataset.from_tensor_slices({"x": [1.0, 2.0]}).batch(2))
    assert iter(nested).element_spec["x"].values == (refdist.TensorSpec((None,), np.float32),) * 2
    made = TWO.distribute_datasets_from_function(lambda _: Dataset.range(8).batch(2, drop_remainder=True))
    assert made.element_spec.values[1].shape == (2,)
    assert made.cardinality == 4
    assert TWO.experimental_distribute_dataset(Dataset.range(7).batch(4)).cardinality == 2
    assert TWO.experimental_distribute_dataset(Dataset.range(7).batch(4).repeat()).cardinality == -1
    assert TWO.experimental_distribute_dataset([np.ones(2)] * 3).cardinality == 3
    with pytest.raises(IndexError, match="RD29"):
        _ = TWO.experimental_distribute_dataset([]).element_spec


def fits(spec: Any, element: Any) -> bool:
    """Whether every array of an element has the shape and dtype that were promised."""
    parts = [element] if not isinstance(element, refdist.PerReplica) else element.values
    specs = [spec] if not isinstance(spec, refdist.PerReplica) else spec.values
    return all(part_spec.is_compatible_with(part) for part_spec, part in zip(specs, parts, strict=True))


def batches_of_any_size() -> Any:
    return iter([np.zeros((4, 3)), np.zeros((3, 2)), np.zeros((1, 5))])


ROWS = Dataset.range(9)
UNEVEN = [
    ROWS.batch(4), ROWS.batch(4, True), ROWS.batch(4, True).map(lambda x: x[:3]),
    ROWS.batch(4).map(lambda x: x[:, None]),
    Dataset.from_generator(batches_of_any_size), Dataset.from_generator(batches_of_any_size).map(lambda x: x + 1),
    [np.zeros(4), np.zeros(2)], [np.zeros((4, 3)), np.zeros((4, 2))], Dataset.from_tensors(np.zeros(4)).repeat(2),
    Dataset.from_tensors(np.zeros(4)).concatenate(Dataset.from_tensors(np.zeros(3))),
    Dataset.from_tensors(np.zeros(4)).concatenate(Dataset.from_tensors(np.zeros(3))).map(lambda x: x),
    ROWS.map(lambda n: np.zeros(n)).padded_batch(4), Dataset.from_generator(
        batches_of_any_size, output_signature=refdist.TensorSpec([None, None], np.float64)).map(lambda x: x)]


@pytest.mark.parametrize("i", range(len(UNEVEN)))
@pytest.mark.parametrize("policy", list(AutoShardPolicy))
def test_every_element_fits_the_spec(i: int, policy: AutoShardPolicy) -> None:
    """On one replica and on two, split, and made by a function."""
    dataset = UNEVEN[i] if isinstance(UNEVEN[i], list) else with_policy(UNEVEN[i], policy)
    for strategy in (refdist.OneDeviceStrategy("CPU:0"), TWO):
        for distributed in (strategy.experimental_distribute_dataset(dataset),
                            strategy.distribute_datasets_from_function(lambda _: dataset)):
            elements = list(distributed)
            assert elements and all(fits(distributed.element_spec, element) for element in elements)


def test_a_look_at_the_spec_changes_no_split() -> None:
    for policy in AutoShardPolicy:
        dataset = with_policy(Dataset.from_generator(lambda: iter([np.arange(6), np.arange(3)])), policy)
        before = shown(FOUR.experimental_distribute_dataset(dataset))
        assert dataset.element_spec
        assert shown(FOUR.experimental_distribute_dataset(dataset)) == before


def test_the_number_of_rows_is_promised_only_where_no_worker_can_get_empty_elements() -> None:
    """As TensorFlow 2.21; a dataset without an end keeps its spec."""
    full = Dataset.range(8).batch(4, drop_remainder=True)
    for dataset, workers, rows in ((full, 1, 2), (full, 2, None), (full.repeat(), 2, 1), (full.repeat(), 1, 2)):
        split = sharding.of_dataset(worker(0, workers, 2), dataset, UnevenEnd.EMPTY)
        assert split.spec(dataset.element_spec).shape == (rows,)
        made = sharding.of_pipelines(worker(0, workers, 2), [dataset], [0, 0], UnevenEnd.EMPTY)
        assert made.spec(dataset.element_spec).shape == (None if rows is None else 4,)


def test_where_the_shape_of_an_element_is_known_no_empty_array_stands_for_it() -> None:
    """TensorFlow drops the last elements without a word, or, with several workers, gives empty ones."""
    vectors = Dataset.from_tensor_slices(np.arange(9).reshape(3, 3))
    elements = iter(from_function(UnevenEnd.EMPTY, vectors))
    assert next(elements).values[1].tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match=r"RD15.*replica 1 has no element left in step 1.*shape \(3,\)"):
        next(elements)
    assert shown(from_function(UnevenEnd.DROP, vectors)) == [[[0, 1, 2], [3, 4, 5]]]
    for dataset in (vectors, Dataset.range(9).batch(3, drop_remainder=True)):
        split = sharding.of_pipelines(worker(0, 2, 2), [dataset], [0, 0], UnevenEnd.EMPTY)
        assert [[piece.tolist() for piece in step] for step in split.steps(split.open(), 0)][1] == [[6, 7, 8], []]


def test_the_default_strategy_distributes_nothing() -> None:
    dataset = Dataset.range(2)
    assert refdist.get_strategy().experimental_distribute_dataset(dataset) is dataset
    assert refdist.get_strategy().distribute_datasets_from_function(lambda _: dataset) is dataset
    with pytest.raises(TypeError, match="RD25"):
        refdist.get_strategy().experimental_distribute_dataset(5)
    with pytest.raises(TypeError, match="RD25"):
        refdist.get_strategy().distribute_datasets_from_function(5)


@pytest.mark.parametrize("strategy", [refdist.get_strategy(), refdist.OneDeviceStrategy("CPU:0"),
                                      refdist.MirroredStrategy(["CPU:0"])], ids=lambda value: type(value).__name__)
def test_an_iterator_is_asked_in_the_same_words_with_every_strategy(strategy: Any) -> None:
    """Observed on TensorFlow 2.21, tf.data.Iterator; a list of batches is refdist's own."""
    for batches in (Dataset.range(3).batch(2), [np.arange(2), np.arange(2, 3)]):
        for made in (strategy.experimental_distribute_dataset(batches),
                     strategy.distribute_datasets_from_function(lambda _, batches=batches: batches)):
            iterator = iter(made)
            assert iter(iterator) is iterator
            assert iterator.get_next().tolist() == [0, 1]
            assert iterator.element_spec == refdist.TensorSpec((None,), np.int64)
            assert iterator.get_next_as_optional().get_value().tolist() == [2]
            for _ in range(2):
                assert not iterator.get_next_as_optional().has_value()
                with pytest.raises(refdist.errors.OutOfRangeError, match=r"RD29"):
                    iterator.get_next()
                with pytest.raises(StopIteration):
                    next(iterator)
            assert [element.tolist() for element in made] == [[0, 1], [2]]


def test_the_rows_of_an_array_are_not_taken_for_batches() -> None:
    """TensorFlow: AttributeError; a list of batches goes on working, a dict is no dataset."""
    array = np.arange(8).reshape(4, 2)
    for strategy in (TWO, refdist.get_strategy(), refdist.OneDeviceStrategy("CPU:0")):
        for bad in (array, array.astype(np.float32)[0], np.float64(1.0)):
            with pytest.raises(TypeError, match=r"RD25.*from_tensor_slices\(array\).batch\(global_batch_size\)"):
                strategy.experimental_distribute_dataset(bad)
            with pytest.raises(TypeError, match=r"RD25.*from_tensor_slices"):
                strategy.distribute_datasets_from_function(lambda _, bad=bad: bad)
        with pytest.raises(TypeError, match=r"RD25.*got a dict"):
            strategy.experimental_distribute_dataset({"x": array})
    assert shown(TWO.experimental_distribute_dataset(list(array))) == [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]]


def test_rows_of_any_length_are_cut_like_others_when_they_are_objects() -> None:
    """As TensorFlow's ragged batches."""
    rows = np.empty(3, object)
    rows[:] = [np.array([1]), np.array([2, 3]), np.array([4, 5, 6])]
    slices = Dataset.from_tensor_slices(rows)
    for batches, parts in ((Dataset.from_tensors(rows), [[2, 1]]), ([rows], [[2, 1]]),
                           (slices.batch(2), [[1, 1], [1, 0]]),
                           (with_policy(slices.batch(2), AutoShardPolicy.OFF), [[1, 1], [1, 0]])):
        elements = list(TWO.experimental_distribute_dataset(batches))
        assert [[len(part) for part in element.values] for element in elements] == parts
        every = [row.tolist() for element in elements for part in element.values for row in part]
        assert every == [[1], [2, 3], [4, 5, 6]]
    lengths = TWO.run(lambda part: sum(map(len, part)), args=(elements[0],))
    assert lengths.values == (1, 2)
    (last, mask), = [*distributed(UnevenEnd.PAD, slices.batch(3))]
    assert [[row.tolist() for row in part] for part in last.values] == [[[1], [2, 3]], [[4, 5, 6], []]]
    assert mask.values[1].tolist() == [True, False]
    for text, empty in ((b"a", b""), ("a", "")):
        (last, mask), = [*distributed(UnevenEnd.PAD, Dataset.from_tensors(np.array([text], object)))]
        assert last.values[1].tolist() == [empty] and not mask.values[1].any()


def test_the_explanation_says_who_gets_what_and_why() -> None:
    with pytest.warns(UserWarning, match=r"replica 3 gets no row of a full batch: 6 rows on 4 replicas"):
        plan = FOUR.experimental_distribute_dataset(Dataset.range(9).batch(6)).explain()
    assert str(plan).splitlines() == [
        "MirroredStrategy: 4 replicas on 1 worker",
        "AUTO: every batch is cut into pieces of the same rounded-up size, as no files are read",
        "",
        "           step 0  step 1",
        "replica 0  0-1     6",
        "replica 1  2-3     7",
        "replica 2  4-5     8",
        "replica 3  none    none",
        "warning: replica 3 gets no row of a full batch: 6 rows on 4 replicas make pieces of [2, 2, 2, 0]; take a "
        "multiple of 4, or AutoShardPolicy.OFF for pieces that differ by at most one"]
    picture = ElementTree.fromstring(plan._repr_svg_())
    boxes = [element for element in picture.iter() if element.tag.endswith("rect") and element.get("rx")]
    widths = [float(box.get("width", 0)) for box in boxes]
    assert widths == [102.0, 51.0] * 3
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert "4-5" in texts and "replica 3" in texts and "step 1" in texts
    padded = TWO.experimental_distribute_dataset(
        Dataset.range(3).batch(4), refdist.InputOptions(uneven_end=UnevenEnd.PAD))
    assert "replica 1  2" in str(padded.explain())
    with pytest.raises(TypeError, match="RD25"):
        padded.explain(0)


NUMBERS = Dataset.range(12)
FOLLOWED = [
    NUMBERS.shuffle(8, seed=1), NUMBERS.shuffle(12), NUMBERS.filter(lambda n: n % 3 == 1),
    NUMBERS.shuffle(12, seed=1).filter(lambda n: n % 2 == 0).shuffle(3, seed=2).filter(lambda n: n < 9),
    NUMBERS.shard(2, 1).take(5).skip(1), NUMBERS.map(lambda n: n).shuffle(5, seed=3).map(lambda n: n, 2).prefetch(2),
    NUMBERS.with_options(Options()).shuffle(12, seed=4), Dataset.from_tensor_slices(np.arange(12)).shuffle(12, seed=5)]


@pytest.mark.parametrize("i", range(len(FOLLOWED)))
@pytest.mark.parametrize("policy", [AutoShardPolicy.AUTO, AutoShardPolicy.OFF])
def test_the_explanation_gives_the_rows_that_are_read(i: int, policy: AutoShardPolicy) -> None:
    """The values are their own numbers, so what is read says who is right."""
    for batches in (FOLLOWED[i].batch(5), FOLLOWED[i].batch(5, drop_remainder=True), FOLLOWED[i].padded_batch(3)):
        for strategy in (TWO, refdist.OneDeviceStrategy("CPU:0")):
            split = strategy.experimental_distribute_dataset(with_policy(batches, policy))
            for distributed in (split, strategy.distribute_datasets_from_function(lambda _, batches=batches: batches)):
                plan = distributed.explain(9)
                assert plan.numbers == "rows of the source" and "positions" not in str(plan)
                explained = [rows for _, rows in plan.shares]
                read = [strategy.experimental_local_results(element) for element in distributed]
                of_replicas = [[*map(list, rows)] for rows in zip(*read, strict=True)]
                assert [[*map(list, rows)] for rows in explained] == of_replicas or not read


LOST = [
    NUMBERS.batch(4).map(lambda x: x[::-1]), NUMBERS.shuffle(12).repeat(2).batch(4),
    NUMBERS.shuffle(12).cache().batch(4), Dataset.zip(NUMBERS, NUMBERS).shuffle(12).batch(4),
    NUMBERS.flat_map(Dataset.range).batch(4), Dataset.from_tensor_slices(np.zeros((3, 4)))]


@pytest.mark.parametrize("i", range(len(LOST)))
def test_rows_that_cannot_be_followed_are_counted_and_it_is_said(i: int) -> None:
    plan = TWO.experimental_distribute_dataset(LOST[i]).explain()
    assert "numbers are positions in the stream that is shared out" in str(plan).splitlines()[2]
    assert plan.shares[0][1][0].tolist() == [0, 1]
    assert "numbers are positions in the stream" in plan.svg()
    assert "positions" not in str(TWO.experimental_distribute_dataset([np.arange(4)]).explain())


def test_a_dataset_without_a_step_says_why() -> None:
    with pytest.warns(UserWarning, match=r"there is no step: no batch has all of its 4 rows"):
        empty = TWO.experimental_distribute_dataset(Dataset.range(3).batch(4, drop_remainder=True))
    assert "there is no step" in str(empty.explain())


def test_the_picture_of_an_explanation_is_no_wider_than_its_steps() -> None:
    with pytest.warns(UserWarning):
        plan = FOUR.experimental_distribute_dataset(Dataset.range(9).batch(6)).explain()
    picture = ElementTree.fromstring(plan.svg())
    assert int(picture.get("width", 0)) <= 640
    lines = [element.text or "" for element in picture.iter() if element.tag.endswith("text")]
    assert max(map(len, lines)) <= 80
    assert plan.warnings[0] in " ".join(lines)


def test_a_dataset_that_is_sharded_over_the_workers_twice_is_warned_of() -> None:
    task = 0
    sharded = Dataset.range(8).shard(2, task).map(lambda x: x).batch(4)
    split = Dataset.range(8).shard(2, 0).map(lambda x: x).batch(4)
    for policy in (AutoShardPolicy.AUTO, AutoShardPolicy.DATA):
        [warning] = sharding.of_dataset(worker(0, 2, 1), with_policy(sharded, policy), UnevenEnd.EMPTY).problems
        assert "one of 2 shards already" in warning.found
    for dataset, workers in ((with_policy(sharded, AutoShardPolicy.OFF), 2), (sharded, 1), (sharded, 3), (split, 2),
                             (Dataset.range(8).batch(4), 2)):
        problems = sharding.of_dataset(worker(0, workers, 1), dataset, UnevenEnd.EMPTY).problems
        assert not any("shards already" in problem.found for problem in problems)


def test_what_would_be_seen_twice_or_never_is_said_before_the_first_step() -> None:
    options = refdist.InputOptions(experimental_replication_mode=refdist.InputReplicationMode.PER_REPLICA)
    with pytest.warns(UserWarning, match="did not ask for input_pipeline_id, so all 2 pipelines"):
        TWO.distribute_datasets_from_function(lambda context: Dataset.range(4).batch(2), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sharded = TWO.distribute_datasets_from_function(
            lambda c: Dataset.range(4).shard(c.num_input_pipelines, c.input_pipeline_id).batch(2), options)
    assert "replica 1  1, 3" in str(sharded.explain())
    off = with_policy(Dataset.range(4).batch(2), AutoShardPolicy.OFF)
    assert "seen 2 times" in sharding.of_dataset(worker(0, 2, 1), off, UnevenEnd.EMPTY).problems[0].found


def test_only_a_dataset_per_replica_is_placed_on_a_device_and_then_not_fetched_to_it() -> None:
    """With PER_WORKER a ValueError too.  TensorFlow has no such check where a dataset is split."""
    options = refdist.InputOptions(True, refdist.InputReplicationMode.PER_REPLICA, True)
    with pytest.raises(ValueError, match=r"RD34.*experimental_fetch_to_device is True too"):
        TWO.distribute_datasets_from_function(lambda _: Dataset.range(2), options)
    for fetch in (True, False):
        with pytest.raises(ValueError, match=r"RD34.*the replication mode is PER_WORKER"):
            TWO.distribute_datasets_from_function(
                lambda _: Dataset.range(2), refdist.InputOptions(fetch, experimental_place_dataset_on_device=True))
    placed = refdist.InputOptions(False, refdist.InputReplicationMode.PER_REPLICA, True)
    made = TWO.distribute_datasets_from_function(
        lambda c: Dataset.range(2).shard(2, c.input_pipeline_id).batch(1), placed)
    assert shown(made) == [[[0], [1]]]


def test_an_iterator_belongs_to_its_strategy() -> None:
    iterator = iter(TWO.experimental_distribute_dataset(Dataset.range(4).batch(2)))
    with FOUR.scope(), pytest.raises(RuntimeError, match="RD10"):
        next(iterator)
    with pytest.raises(RuntimeError, match=r"RD09.*strategy.run\(fn, args=\(element,\)\)"):
        TWO.run(lambda: next(iterator))
    assert [part.tolist() for part in next(iterator).values] == [[0], [1]]


def test_looking_at_a_dataset_does_not_change_the_order_that_comes_next() -> None:
    def orders(look: bool) -> list[Any]:
        dataset = Dataset.range(20).shuffle(20, seed=1).map(lambda x: x).batch(10)
        distributed = TWO.experimental_distribute_dataset(dataset)
        if look:
            assert distributed.explain().shares and dataset.element_spec
        return [shown(distributed), shown(distributed)]

    assert orders(look=True) == orders(look=False)


def test_the_empty_elements_of_a_worker_are_as_long_as_those_of_others_where_a_function_made_them() -> None:
    def program() -> list[Any]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        distributed = strategy.distribute_datasets_from_function(
            lambda context: Dataset.from_tensor_slices(np.ones((3, 2, 5), np.float32)).shard(
                context.num_input_pipelines, context.input_pipeline_id).map(lambda x: x * 2))
        return [x.shape for x in distributed]

    assert refdist.simulate_workers(program, 2) == [[(2, 5), (2, 5)], [(2, 5), (0, 5)]]


def test_a_worker_without_an_element_has_none_where_others_have_it() -> None:
    def program() -> list[Any]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        distributed = strategy.distribute_datasets_from_function(lambda context: Dataset.range(2).batch(2).map(
            lambda x: {"x": x, "none": None}).shard(context.num_input_pipelines, context.input_pipeline_id))
        return [(x["x"].tolist(), str(x["x"].dtype), x["none"]) for x in distributed]

    assert refdist.simulate_workers(program, 2) == [[([0, 1], "int64", None)], [([], "int64", None)]]
