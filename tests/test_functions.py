"""What functions of elements may return, and datasets made of several; as TensorFlow 2.21 has them."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import TensorSpec
from refdist.data import AutoShardPolicy, Dataset, Options


def rows(dataset: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in dataset]


def first(dataset: Dataset) -> Any:
    return next(iter(dataset))


@pytest.mark.parametrize(("returned", "dtype", "shape"), [
    (1.5, np.float32, ()), (3, np.int32, ()), (True, np.bool_, ()), (1j, np.complex128, ()), ([1, 2], np.int32, (2,)),
    ([[1.0], [2.0]], np.float32, (2, 1)), ([True], np.bool_, (1,)), (np.float64(2), np.float64, ()),
    (np.ones(2), np.float64, (2,)), ([np.int64(1), np.int64(2)], np.int64, (2,))])
def test_numbers_and_lists_become_arrays(returned: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    programs = {
        "map": Dataset.range(2).map(lambda x: (x, returned)),
        "dict": Dataset.range(2).map(lambda x: {0: x, 1: returned}),
        "threads": Dataset.range(2).map(lambda x: (x, returned), num_parallel_calls=2),
        "scan": Dataset.range(2).scan(0, lambda s, x: (s, (x, returned))),
        "state": Dataset.range(2).scan(returned, lambda s, x: [returned, (x, s)]),
        "flat_map": Dataset.range(2).flat_map(lambda x: Dataset.from_tensors((x, returned)))}
    for name, dataset in programs.items():
        for element in dataset:
            result = element[1]
            assert (result.dtype, result.shape) == (dtype, shape), name
            assert np.array_equal(result, returned), name


@pytest.mark.parametrize("method", ["generator", "signature", "view", "list", "map", "threads", "scan", "state"])
def test_one_array_may_be_used_for_every_element(method: str) -> None:
    buffer = np.zeros(2)

    def filled(x: Any) -> Any:
        buffer[:] = x
        return buffer

    def generator() -> Any:
        return map(filled, range(3))

    numbers = Dataset.range(3)
    dataset = {
        "generator": lambda: Dataset.from_generator(generator),
        "signature": lambda: Dataset.from_generator(generator, output_signature=TensorSpec((2,), np.float64)),
        "view": lambda: Dataset.from_generator(lambda: ({"a": x.view(np.ndarray)[:]} for x in generator())).map(
            lambda element: element["a"]),
        "list": lambda: Dataset.from_generator(lambda: (memoryview(x) for x in generator()),
                                               output_signature=TensorSpec((2,), np.float64)),
        "map": lambda: numbers.map(filled), "threads": lambda: numbers.map(filled, num_parallel_calls=1),
        "scan": lambda: numbers.scan(0, lambda s, x: (s, filled(x))),
        "state": lambda: numbers.scan(np.zeros(2), lambda s, x: (filled(x), s)).skip(1).concatenate(
            Dataset.from_tensors(np.full(2, 2.0)))}[method]()
    wanted = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert [element.tolist() for element in list(dataset)] == wanted
    assert rows(dataset.batch(3)) == [wanted]
    assert buffer.flags.writeable


def test_what_nobody_can_write_to_is_not_copied() -> None:
    whole = np.ones((4, 2))
    halves = Dataset.from_tensor_slices(whole).batch(2).map(lambda x: (x, x[:1]))
    assert all(np.shares_memory(part, whole) for element in halves for part in element)


def test_an_outermost_list_is_a_tuple_and_other_values_stay() -> None:
    """Observed: `map(lambda x: [x, x])` has two components; a list within is one."""
    pair = first(Dataset.range(2).map(lambda x: [x, [x, x]]))
    assert type(pair) is tuple
    assert (pair[0], pair[1].tolist()) == (0, [0, 0])
    assert Dataset.range(2).map(lambda x: [x, 1.5]).map(lambda x, y: x + y).element_spec == TensorSpec((), np.float64)
    assert first(Dataset.range(1).map(lambda x: (x, None, "a", b"b\0"))) == (0, None, "a", b"b\0")
    nested = first(Dataset.range(1).map(lambda x: ((x, (x, 1.0)), {"z": x, "a": 2})))
    assert refdist.nest.flatten(nested) == [0, 0, 1.0, 2, 0]
    inner = first(Dataset.range(1).map(lambda x: (x, Dataset.range(3))))[1]
    assert rows(inner) == [0, 1, 2]
    for bad in ({1, 2}, object(), lambda: 1, [[1], [1, 2]]):
        with pytest.raises(TypeError, match="RD25") as caught:
            first(Dataset.range(1).map(lambda x, bad=bad: (x, bad)))
        assert caught.value.__notes__ == ["raised in Dataset.map at element 0"]


def test_none_is_a_component() -> None:
    """Observed: batches, rows and new batches of None are None."""
    dataset = Dataset.from_tensor_slices(([1, 2, 3], None))
    for step in (dataset, dataset.batch(2), dataset.batch(2).unbatch(), dataset.batch(2).rebatch(3),
                 dataset.batch(3).rebatch(2), dataset.window(2).flat_map(lambda x, _: x).map(lambda x: (x, None))):
        assert all(element[1] is None for element in step)
        assert step.element_spec[1] is None
    assert [x.tolist() for x, _ in dataset.batch(2).rebatch(3)] == [[1, 2, 3]]
    with pytest.raises(TypeError, match=r"RD25.*component 1 is None"):
        list(dataset.padded_batch(2))
    with pytest.raises(TypeError, match=r"RD25.*flat_map"):
        list(Dataset.range(3).window(2).batch(2))


def test_numbers_below_zero_mean_what_they_mean_in_tensorflow() -> None:
    numbers = Dataset.range(3)
    for below in (-1, -2, -3):
        assert rows(numbers.take(below)) == [0, 1, 2]
        assert rows(numbers.skip(below)) == rows(numbers.map(lambda x: x).skip(below)) == []
        assert rows(numbers.repeat(below).take(5)) == [0, 1, 2, 0, 1]
    assert sorted(rows(numbers.shuffle(refdist.data.UNKNOWN_CARDINALITY))) == [0, 1, 2]
    assert rows(numbers.enumerate(-2).map(lambda i, x: i)) == [-2, -1, 0]


def test_a_range_has_the_dtype_wanted() -> None:
    for dtype in (np.int8, np.int32, np.uint16, np.float32, np.float64):
        for dataset in (Dataset.range(5, 0, -2, output_type=dtype), Dataset.range(1, output_type=dtype).repeat(3),
                        Dataset.range(3, output_type=dtype).shuffle(3, seed=1)):
            assert all(x.dtype == dtype for x in [*dataset, *dataset.batch(2)])
            assert dataset.element_spec == TensorSpec((), dtype)
    assert rows(Dataset.range(5, 0, -2, output_type=np.float32).batch(2)) == [[5.0, 3.0], [1.0]]


def test_scan_takes_its_state_along() -> None:
    assert rows(Dataset.range(5).scan(np.int64(0), lambda s, x: (s + x, s + x))) == [0, 1, 3, 6, 10]
    pairs = Dataset.zip(Dataset.range(3), Dataset.range(5, 8))
    assert [tuple(map(int, x)) for x in pairs.scan((0, np.int64(1)), lambda s, x: ((s[0] + 1, s[1] * 2), (s[1], x[1])))
            ] == [(1, 5), (2, 6), (4, 7)]
    growing = Dataset.range(3).scan([9], lambda s, x: (np.append(s, np.int32(x)), s))
    assert rows(growing) == rows(growing) == [[9], [9, 0], [9, 0, 1]]
    for bad in (lambda s, x: x, lambda s, x: (s, x, x), lambda s, x: None):
        with pytest.raises(TypeError, match=r"RD25.*Return a pair") as caught:
            list(Dataset.range(3).scan(0, bad))
        assert caught.value.__notes__ == ["raised in Dataset.scan at element 0"]
    with pytest.raises(TypeError, match=r"RD26.*new state differs .*the first has dtype int32, this one int64"):
        list(Dataset.range(3).scan(0, lambda s, x: (x, x)))
    with pytest.raises(ZeroDivisionError) as raised:
        list(Dataset.range(3).scan(0, lambda s, x: (s, 1 // (1 - int(x)))))
    assert raised.value.__notes__ == ["raised in Dataset.scan at element 1"]


def test_take_while_ends_at_the_first_that_is_not() -> None:
    seen: list[int] = []
    assert rows(Dataset.range(9).take_while(lambda x: seen.append(int(x)) or x < 3)) == [0, 1, 2]
    assert seen == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError) as caught:
        list(Dataset.range(3).take_while(lambda x: 1 // int(x)))
    assert caught.value.__notes__ == ["raised in Dataset.take_while at element 0"]


@pytest.mark.parametrize("returned", [1, 0, None, "a", np.int64(1), 1.0, np.array([True]), [True, False],
                                      [[True], [True, False]], {}])
@pytest.mark.parametrize("method", [Dataset.filter, Dataset.take_while])
def test_only_one_bool_says_whether_an_element_is_kept(method: Any, returned: Any) -> None:
    with pytest.raises(ValueError, match=r"\[RD34\] Dataset\.\w+: the function returned .*Return one bool") as caught:
        list(method(Dataset.range(2), lambda x: returned))
    assert caught.value.__notes__ == [f"raised in Dataset.{method.__name__} at element 0"]
    for kept in (True, np.bool_(True), np.array(True)):
        assert rows(method(Dataset.range(2), lambda x, kept=kept: kept)) == [0, 1]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(TypeError, match=r"RD25\] Dataset\.range\(3\): output_type is 'foo'"):
        Dataset.range(3, output_type="foo")
    for made_of in (Dataset.sample_from_datasets, lambda none: Dataset.choose_from_datasets(none, Dataset.range(2))):
        with pytest.raises(ValueError, match=r"RD34.*no dataset was given"):
            made_of([])


def test_apply_and_the_single_element() -> None:
    assert rows(Dataset.range(3).apply(lambda d: d.batch(2))) == [[0, 1], [2]]
    assert Dataset.range(1).get_single_element() == 0
    for count, text in ((0, "dataset is empty"), (2, "more than one")):
        with pytest.raises(ValueError, match=f"RD29.*{text}"):
            Dataset.range(count).repeat().get_single_element()


def test_choices_name_the_dataset_that_gives_the_next_element() -> None:
    """Observed, TensorFlow 2.21."""
    a, b, turns = Dataset.range(3), Dataset.range(10, 14), Dataset.range(2)
    choose = Dataset.choose_from_datasets
    assert rows(choose([a, b], turns.repeat(6))) == [0, 10, 1, 11, 2, 12]
    assert rows(choose([a, b], turns.repeat(6), stop_on_empty_dataset=False)) == [0, 10, 1, 11, 2, 12, 13]
    assert rows(choose([a, b], turns.repeat(), False)) == [0, 10, 1, 11, 2, 12, 13]
    assert rows(choose([a, b], turns)) == [0, 10]
    assert rows(choose([a.repeat(), b], turns.repeat()).take(10)) == [0, 10, 1, 11, 2, 12, 0, 13, 1]
    for numbers in (Dataset.range(3), Dataset.range(-1, 1)):
        with pytest.raises(ValueError, match=r"RD34.*was chosen, and the datasets are 0 to 1"):
            list(choose([a, b], numbers))


def test_samples_are_drawn_by_weight_and_fixed_by_the_seed() -> None:
    a, b = Dataset.range(3), Dataset.range(10, 14)
    sample = Dataset.sample_from_datasets

    def orders(**options: Any) -> tuple[list[int], list[int]]:
        dataset = sample([a.repeat(), b.repeat()], **options).take(40)
        return rows(dataset), rows(dataset)

    both = orders(seed=1)
    assert both == orders(seed=1)
    assert both[0] == both[1]
    again = orders(seed=1, rerandomize_each_iteration=True)
    assert again == orders(seed=1, rerandomize_each_iteration=True)
    assert again[0] != again[1]
    assert orders()[0] != orders()[0]
    free, kept = orders(), orders(rerandomize_each_iteration=False)
    assert free[0] != free[1]
    assert kept[0] == kept[1]
    mixed = rows(sample([a, b], seed=1))
    assert sorted(mixed) == [0, 1, 2, 10, 11, 12, 13]
    assert [x for x in mixed if x < 3] == [0, 1, 2]
    assert rows(sample([a, b], weights=[0.0, 1.0])) == rows(sample([a, b], weights=[-1.0, 2.0])) == [10, 11, 12, 13]
    assert rows(sample([a, b], weights=[0.0, 0.0])) == []
    stopped = rows(sample([a, b], seed=1, stop_on_empty_dataset=True))
    assert len(stopped) < 7
    assert stopped == mixed[:len(stopped)]
    drawn = Counter(x < 3 for x in sample([a.repeat(), b.repeat()], weights=[0.9, 0.1], seed=3).take(1000))
    assert 850 < drawn[True] < 950


def test_weights_of_a_sample_are_float32() -> None:
    a, b = Dataset.range(3), Dataset.range(10, 13)
    assert [int(x) for x in Dataset.sample_from_datasets([a, b], weights=[1e-50, 1.0])] == [10, 11, 12]
    for weights in ([1e300, 1.0], [np.inf, 1.0]):
        with pytest.raises(refdist.errors.InvalidValueError, match=r"RD34.*weights is \["):
            Dataset.sample_from_datasets([a, b], weights=weights)


def test_looking_at_a_sample_does_not_change_the_next_order() -> None:
    def mixed() -> Dataset:
        return Dataset.sample_from_datasets([Dataset.range(9)] * 2, seed=1, rerandomize_each_iteration=True)

    looked = mixed().map(lambda x: x)
    assert looked.element_spec == TensorSpec((), np.int64)
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    two.experimental_distribute_dataset(looked.batch(4)).explain()
    assert rows(looked) == rows(mixed())


def test_options_that_datasets_have_are_kept_when_they_are_put_together() -> None:
    """Observed, TensorFlow 2.21."""
    def having(policy: AutoShardPolicy) -> Dataset:
        options = Options()
        options.experimental_distribute.auto_shard_policy = policy
        return Dataset.range(3).with_options(options)

    plain, off, data = Dataset.range(3), having(AutoShardPolicy.OFF), having(AutoShardPolicy.DATA)
    for dataset, policy in ((Dataset.zip(off, plain), "OFF"), (Dataset.zip(plain, off), "OFF"),
                            (Dataset.zip(off, data), "DATA"), (plain.concatenate(off), "OFF"),
                            (off.concatenate(data), "DATA"), (off.with_options(Options()), "OFF"),
                            (plain.flat_map(lambda x: off), "AUTO"),
                            (Dataset.sample_from_datasets([plain, off]), "OFF"),
                            (Dataset.choose_from_datasets([off, plain], plain), "OFF")):
        assert dataset.options().experimental_distribute.auto_shard_policy.name == policy


def test_options_that_do_not_exist_are_refused() -> None:
    options = Options()
    for there, name in ((options, "auto_shard_policy"), (options.experimental_distribute, "autoshard_policy")):
        with pytest.raises(AttributeError, match=rf"RD20.*setting \w*Options.{name}: there is no such option"):
            setattr(there, name, AutoShardPolicy.OFF)
    with pytest.raises(AttributeError, match=r"RD20.*Options.treading: .*those that make TensorFlow faster are taken"):
        options.treading.private_threadpool_size = 2
    with pytest.raises(AttributeError, match=r"RD20.*setting \w*Threading.threads: there is no such option"):
        options.threading.threads = 2
    for there, name, bad in ((options.experimental_distribute, "auto_shard_policy", "OFF"),
                             (options.experimental_distribute, "auto_shard_policy", -1),
                             (options, "experimental_distribute", AutoShardPolicy.OFF), (options, "deterministic", 1)):
        with pytest.raises(TypeError, match=rf"RD25.*Options.{name}: got {bad!r}"):
            setattr(there, name, bad)
    assert options == Options()


def test_options_for_speed_are_taken_and_kept() -> None:
    options = Options()
    options.threading.private_threadpool_size = 2
    options.autotune.enabled = options.experimental_slack = True
    options.experimental_optimization.map_fusion = False
    options.experimental_deterministic = False
    dataset = Dataset.range(3).with_options(options).with_options(Options()).batch(2)
    there = dataset.options()
    assert there == options != Options() and there.deterministic is there.experimental_deterministic is False
    assert there.experimental_optimization.map_fusion is False and there.threading.private_threadpool_size == 2
    assert [x.tolist() for x in dataset] == [[0, 1], [2]]
    with pytest.raises(ValueError, match=r"RD34.*the options of a dataset"):
        there.threading.private_threadpool_size = 3
    with pytest.raises(TypeError, match=r"RD25.*private_threadpool_size: got 'two'"):
        options.threading.private_threadpool_size = "two"


def test_options_of_a_dataset_do_not_change() -> None:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    options.deterministic = False
    changed = options.merge(Options(deterministic=True))
    assert changed == Options(options.experimental_distribute, True)
    dataset = Dataset.range(3).with_options(options)
    for fixed in (dataset.options(), dataset.batch(2).options(), Dataset.range(3).options()):
        for there, name, value in ((fixed, "deterministic", True),
                                   (fixed.experimental_distribute, "auto_shard_policy", AutoShardPolicy.DATA)):
            with pytest.raises(ValueError, match=r"RD34.*the options of a dataset"):
                setattr(there, name, value)
    changed.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    before = dataset.options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    assert dataset.options() == before != options == pickle.loads(pickle.dumps(options)) == copy.deepcopy(options)


def test_arguments_without_effect_are_taken() -> None:
    numbers = Dataset.range(4, name="a")
    dataset = numbers.map(lambda x: x, deterministic=False, name="b").filter(lambda x: True, name="c").cache(name="d")
    dataset = dataset.shuffle(1, name="e").repeat(1, name="f").take(9, name="g").skip(0, name="h").shard(1, 0, name="i")
    dataset = dataset.batch(2, num_parallel_calls=2, deterministic=False, name="j").prefetch(None, name="k")
    dataset = dataset.unbatch(name="l").enumerate(name="m").map(lambda i, x: x).window(2, name="n")
    dataset = dataset.flat_map(lambda w: w, name="o").interleave(
        Dataset.from_tensors, None, None, num_parallel_calls=2, deterministic=True, name="p")
    assert rows(dataset.with_options(Options(), name="q")) == [0, 1, 2, 3]
    with pytest.raises(NotImplementedError, match=r"RD20.*'/tmp/x'"):
        numbers.cache("/tmp/x")


def test_types_and_shapes_of_a_generator_are_a_signature() -> None:
    pairs = Dataset.from_generator(lambda n, x: iter([(n, x)]), (np.int64, np.float32), ((), (None,)), args=[1, [2]])
    assert pairs.element_spec == (TensorSpec((), np.int64), TensorSpec((None,), np.float32))
    [(n, x)] = pairs
    assert (n.dtype, x.dtype, n.tolist(), x.tolist()) == (np.int64, np.float32, 1, [2.0])
    named = Dataset.from_generator(lambda: iter([{"a": 1}]), output_types={"a": np.int8})
    assert named.element_spec == {"a": TensorSpec(None, np.int8)}


def test_padding_is_of_the_kind_of_the_rows() -> None:
    counts = Dataset.from_generator(lambda: iter([[1], [2, 3]]))
    with pytest.raises(ValueError, match="RD05"):
        list(counts.padded_batch(2, padding_values=1.5))
    pairs = Dataset.zip(counts, counts.map(lambda x: x / 2))
    both = first(pairs.padded_batch(2, padding_values=9))
    assert [x.tolist() for x in both] == [[[1, 9], [2, 3]], [[0.5, 9], [1, 1.5]]]
    words = Dataset.from_tensor_slices([b"a", b"abc"])
    assert rows(words.padded_batch(2)) == rows(words.batch(2)) == [[b"a", b"abc"]]


def ragged() -> np.ndarray[Any, Any]:
    rows = np.empty(4, object)
    rows[:] = [np.arange(i) for i in (1, 2, 3, 4)]
    return rows


def test_rows_of_different_lengths_are_an_array_of_arrays() -> None:
    dataset = Dataset.from_tensor_slices({"x": ragged(), "y": np.arange(4)})
    assert [len(element["x"]) for element in dataset] == [1, 2, 3, 4]
    for batches in (dataset.batch(2), dataset.batch(4).rebatch(2), dataset.shuffle(1).batch(2)):
        assert [[len(row) for row in batch["x"]] for batch in batches] == [[1, 2], [3, 4]]
        assert batches.element_spec["x"].dtype == object
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for policy in (AutoShardPolicy.DATA, AutoShardPolicy.OFF):
        options = Options()
        options.experimental_distribute.auto_shard_policy = policy
        steps = list(two.experimental_distribute_dataset(dataset.batch(3).with_options(options)))
        lengths = [[[len(row) for row in part["x"]] for part in two.experimental_local_results(step)] for step in steps]
        assert lengths == [[[1, 2], [3]], [[4], []]]
        counts = two.run(lambda batch: np.asarray(sum(map(len, batch["x"]))), args=(steps[1],))
        assert two.experimental_local_results(counts) == (4, 0)
    with pytest.raises(ValueError, match=r"RD26.*padded_batch"):
        list(dataset.map(lambda row: row["x"]).batch(2))
    assert rows(dataset.map(lambda row: row["x"]).padded_batch(2)) == [
        [[0, 0], [0, 1]], [[0, 1, 2, 0], [0, 1, 2, 3]]]


def test_only_arrays_are_distributed() -> None:
    known = (Dataset.from_tensor_slices(([1, 2], None)).batch(2), Dataset.range(5).window(2))
    made = (lambda: Dataset.range(4).batch(2).map(lambda x: (x, None)), lambda: Dataset.range(4).map(Dataset.range))
    for strategy in (refdist.MirroredStrategy(["GPU:0", "GPU:1"]), refdist.OneDeviceStrategy("GPU:0")):
        for dataset in known:
            for distribute in (strategy.experimental_distribute_dataset,
                               lambda d, strategy=strategy: strategy.distribute_datasets_from_function(lambda _: d)):
                with pytest.raises(TypeError, match=r"RD25.*a component of the elements is (None|a dataset)"):
                    distribute(dataset)
        for make in made:
            distributed = strategy.experimental_distribute_dataset(make())
            with pytest.raises(TypeError, match=r"RD25.*a component of the elements is (None|a dataset)"):
                _ = distributed.element_spec
            with pytest.raises(TypeError, match="RD25"):
                next(iter(distributed))


GROUPS: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "of one size": ({"window_size": 3}, [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]),
    "of a size for each key": ({"window_size_func": lambda key: key + 2},
                               [[0, 2], [1, 3, 5], [4, 6], [8], [7, 9]])}


@pytest.mark.parametrize("sizes", GROUPS)
def test_elements_with_one_key_are_grouped_as_on_tensorflow(sizes: str) -> None:
    # TensorFlow 2.21 gives these batches.
    given, expected = GROUPS[sizes]
    groups = Dataset.range(10).group_by_window(lambda n: n % 2, lambda key, rows: rows.batch(3), **given)
    assert [batch.tolist() for batch in groups] == expected
    assert groups.element_spec == refdist.TensorSpec((None,), np.int64)
    pairs = Dataset.range(4).map(lambda n: (n, n * 2)).group_by_window(
        lambda n, double: n // 2, lambda key, rows: rows.map(lambda n, double: (key, double)), window_size=2)
    assert [(int(key), int(double)) for key, double in pairs] == [(0, 0), (0, 2), (1, 4), (1, 6)]


def test_the_size_of_groups_is_asked_once_for_each_key() -> None:
    # As TensorFlow 2.21 does.
    keys: list[int] = []

    def size_of(key: Any) -> int:
        keys.append(int(key))
        return 2
    assert len(list(Dataset.range(10).group_by_window(lambda n: n % 2, lambda key, rows: rows.batch(2),
                                                      window_size_func=size_of))) == 6
    assert keys == [0, 1]


@pytest.mark.parametrize(("arguments", "text"), [
    ({}, "RD34.*of window_size and window_size_func, neither was passed"),
    ({"window_size": 1, "window_size_func": len}, "RD34.*of window_size and window_size_func, both were passed"),
    ({"window_size": 0}, "RD34.*window_size is 0. Pass 1 or more"),
    ({"window_size_func": 3}, "RD25.*got 3. Pass a function"),
    ({"window_size_func": lambda key: 0}, "RD34.*what window_size_func returned is 0. Pass 1 or more"),
    ({"window_size_func": lambda key: 2.0}, "RD34.*window_size_func returned an array of .*float32. Return an int"),
    ({"window_size": 2, "key_func": lambda n: n / 2}, "RD34.*key_func returned an array of .*float64. Return an int"),
    ({"window_size": 2, "key_func": lambda n: [[1], [1, 2]]}, "RD25.*what key_func returned is .*a list"),
    ({"window_size": 2, "reduce_func": lambda key, rows: 3}, "RD25.*the function returned an int. Return a Dataset")])
def test_bad_arguments_of_groups_are_named(arguments: dict[str, Any], text: str) -> None:
    functions: dict[str, Any] = {"key_func": lambda n: n % 2, "reduce_func": lambda key, rows: rows}
    with pytest.raises(refdist.errors.RefdistError, match=text):
        next(iter(Dataset.range(4).group_by_window(**functions | arguments)))


ROWS = [[1], [2, 3, 4, 5], [6, 7, 8], [9, 10, 11, 12, 13], [14, 15]]


def of_rows(**signature: Any) -> Dataset:
    return Dataset.from_generator(lambda: iter(ROWS), **signature)


@pytest.mark.parametrize(("arguments", "expected"), [
    ({}, [[[2, 3, 4, 5], [6, 7, 8, 0]], [[1, 0], [14, 15]], [[9, 10, 11, 12, 13]]]),
    ({"padding_values": np.int32(-1), "drop_remainder": True}, [[[2, 3, 4, 5], [6, 7, 8, -1]], [[1, -1], [14, 15]]]),
    ({"padded_shapes": [5]}, [[[2, 3, 4, 5, 0], [6, 7, 8, 0, 0]], [[1, 0, 0, 0, 0], [14, 15, 0, 0, 0]],
                              [[9, 10, 11, 12, 13]]]),
    ({"bucket_boundaries": [5, 9], "pad_to_bucket_boundary": True},
     [[[1, 0, 0, 0], [2, 3, 4, 5]], [[6, 7, 8, 0], [14, 15, 0, 0]], [[9, 10, 11, 12, 13, 0, 0, 0]]]),
    ({"bucket_boundaries": [5, 3]}, [[[1, 0, 0, 0], [2, 3, 4, 5]], [[6, 7, 8], [14, 15, 0]], [[9, 10, 11, 12, 13]]])])
def test_elements_of_similar_length_are_batched_as_on_tensorflow(arguments: dict[str, Any], expected: Any) -> None:
    # TensorFlow 2.21 gives these batches.
    given = {"bucket_boundaries": [3, 5], "bucket_batch_sizes": [2, 2, 2]} | arguments
    batches = of_rows(output_signature=refdist.TensorSpec([None], np.int32)).bucket_by_sequence_length(len, **given)
    assert [batch.tolist() for batch in batches] == expected
    assert batches.element_spec == refdist.TensorSpec((None, None), np.int32)


def test_lengths_of_several_components_are_padded_by_their_shapes() -> None:
    pairs = of_rows(output_signature=refdist.TensorSpec([None], np.int32)).map(lambda row: (row, row[:1]))
    given: dict[str, Any] = {"pad_to_bucket_boundary": True, "padded_shapes": ([None], [1])}
    batches = pairs.bucket_by_sequence_length(lambda row, first: len(row), [6], [5, 1], **given)
    assert [(row.shape, first.shape) for row, first in batches] == [((5, 5), (5, 1))]
    same = Dataset.from_tensor_slices([[1, 2], [3, 4]]).apply(
        refdist.data.experimental.bucket_by_sequence_length(len, [3], [2, 2], no_padding=True))
    assert [batch.tolist() for batch in same] == [[[1, 2], [3, 4]]]
    with pytest.raises(ValueError, match=r"RD34.*several lengths are open. Pass padded_shapes"):
        list(pairs.bucket_by_sequence_length(lambda row, first: len(row), [6], [5, 1], pad_to_bucket_boundary=True))


@pytest.mark.parametrize(("arguments", "text"), [
    ({"element_length_func": 3}, "RD25.*got 3. Pass a function"),
    ({"element_length_func": lambda row: 1.5}, "RD34.*element_length_func returned an array of .*float32"),
    ({"element_length_func": lambda row: [[1], [1, 2]]}, "RD25.*what element_length_func returned is"),
    ({"bucket_batch_sizes": [2, 2]}, "RD34.*2 boundaries and 2 sizes"),
    ({"bucket_batch_sizes": [2, 0, 2]}, "RD34.*bucket_batch_sizes is 0"),
    ({"bucket_boundaries": [3, 4.5]}, "RD25.*bucket_boundaries is"),
    ({"pad_to_bucket_boundary": True}, "RD34.*in the last bucket")])
def test_bad_arguments_of_buckets_are_named(arguments: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"element_length_func": len, "bucket_boundaries": [3, 5], "bucket_batch_sizes": [2, 2, 2]}
    with pytest.raises(refdist.errors.RefdistError, match=text):
        list(of_rows().bucket_by_sequence_length(**given | arguments))


def test_an_element_comes_once() -> None:
    assert rows(Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()) == [1, 37, 2]
    pairs = Dataset.from_tensor_slices({"a": [[1, 2], [2, 1], [1, 2]]}).apply(refdist.data.experimental.unique())
    assert [pair["a"].tolist() for pair in pairs] == [[1, 2], [2, 1]]
    assert [*Dataset.from_tensor_slices(["a", b"a", "", "b"]).unique()] == ["a", "", "b"]
    assert Dataset.range(3).unique().cardinality() == refdist.data.UNKNOWN_CARDINALITY
    several, floats = Dataset.from_tensor_slices(([1], [2])), Dataset.from_tensor_slices([1.5])
    for make in (several.unique, floats.unique, lambda: list(Dataset.range(2).map(lambda n: n / 2).unique())):
        with pytest.raises(TypeError, match=r"RD25.*Let each be one array of int32, int64 or text"):
            make()


@pytest.mark.parametrize(("arguments", "text"), [
    ({"class_func": 3}, "RD25.*got 3. Pass a function"), ({"class_func": lambda n: n / 2}, "RD34.*class_func returned"),
    ({"class_func": lambda n: n + 2}, "RD34.*class_func returned 2, and target_dist has 2 classes"),
    ({"target_dist": [1.0, 2.0]}, "RD34.*target_dist is .*together are 1"), ({"target_dist": 0.5}, "RD34.*target_dist"),
    ({"target_dist": [2.0, -1.0]}, "RD34.*target_dist"), ({"initial_dist": [0.2, 0.2, 0.6]}, "RD34.*2 classes.* 3"),
    ({"seed": "a"}, "RD25.*seed")])
def test_bad_arguments_of_resampling_are_named(arguments: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"class_func": lambda n: n % 2, "target_dist": [0.0, 1.0], "initial_dist": [0.5, 0.5]}
    with pytest.raises(refdist.errors.RefdistError, match=text):
        list(Dataset.range(4).rejection_resample(**given | arguments))


def test_classes_are_resampled_until_they_have_their_shares() -> None:
    resampled = Dataset.range(6000).apply(refdist.data.experimental.rejection_resample(
        lambda n: n % 3 // 2, [0.5, 0.5], seed=1))
    kinds = [int(kind) for kind, _ in resampled]
    assert abs(np.mean(kinds) - 0.5) < 0.05
    assert resampled.element_spec == (refdist.TensorSpec((), np.int64),) * 2
