"""Partitioners and sharded variables.  Numbers: TensorFlow 2.21."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import refdist
from refdist.experimental import partitioners
from refdist.train import Checkpoint
from refdist.variables.partitioners import initial_parts, makes_parts, row_counts
from refdist.variables.sharded import ShardedVariable

MinSize, MaxSize, Fixed = (partitioners.MinSizePartitioner, partitioners.MaxSizePartitioner,
                           partitioners.FixedShardsPartitioner)
MIB = [1024, 1024]


def sharded(value: Any, *counts: int) -> ShardedVariable:
    """A variable whose shards have these numbers of rows."""
    whole, start, parts = np.asarray(value), 0, []
    for count in counts:
        parts.append(refdist.Variable(whole[start:start + count], name=f"v/part_{len(parts)}"))
        start += count
    return ShardedVariable(parts)


def dtype(name: str) -> Any:
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return "U8" if name == "string" else name


@pytest.mark.parametrize(("shape", "name", "least", "most", "expected"), [
    (MIB, "float32", 262144, 1, [1, 1]), (MIB, "float32", 262144, 2, [2, 1]), (MIB, "float32", 262144, 100, [16, 1]),
    (MIB, "float64", 262144, 100, [32, 1]), ([1000], "float32", 1000, 100, [4]), ([1000], "float32", 1001, 100, [4]),
    ([1000], "float32", 4000, 100, [1]), ([1000], "float32", 4001, 100, [1]), ([10], "float32", 1, 100, [10]),
    ([10], "float32", 7, 100, [6]), ([10, 3], "int8", 7, 100, [5, 1]), ([10, 3], "bool", 7, 100, [5, 1]),
    ([10], "string", 16, 100, [10]), ([10], "string", 32, 100, [5]), ([10], "string", 33, 100, [5]),
    ([3], "float32", 4, 2, [2]), ([10, 10], "complex64", 100, 100, [8, 1]), ([10, 10], "bfloat16", 50, 100, [4, 1]),
    ([0, 3], "float32", 4, 5, [1, 1])])
def test_min_size(shape: list[int], name: str, least: int, most: int, expected: list[int]) -> None:
    assert MinSize(least, most)(shape, dtype(name)) == expected


@pytest.mark.parametrize(("shape", "name", "size", "most", "expected"), [
    (MIB, "float32", 262144, None, [16, 1]), (MIB, "float32", 262144, 4, [4, 1]),
    (MIB, "float64", 262144, None, [32, 1]), ([1000], "float32", 1000, None, [4]),
    ([1000], "float32", 999, None, [5]), ([1000], "float32", 1001, None, [4]), ([10], "float32", 1, None, [10]),
    ([10], "float32", 3, None, [10]), ([10], "float32", 40, None, [1]), ([10], "float32", 39, None, [2]),
    ([10, 3], "int8", 7, None, [5, 1]), ([10, 3], "bool", 7, None, [5, 1]), ([10], "string", 16, None, [10]),
    ([10], "string", 32, None, [5]), ([10], "string", 33, None, [5]), ([10], "float32", 12, None, [4]),
    ([10], "float32", 13, 2, [2]), ([10, 10], "complex64", 100, 5, [5, 1]),
    ([0, 3], "float32", 4, 5, [1, 1]), ([5, 0], "float32", 4, None, [1, 1])])
def test_max_size(shape: list[int], name: str, size: int, most: int | None, expected: list[int]) -> None:
    """TensorFlow divides by zero where there are no rows."""
    assert MaxSize(size, most)(shape, dtype(name)) == expected


def test_other_axes_and_arguments() -> None:
    assert [Fixed(5)((3, 2), "float32"), Fixed(2)((4, 2), "float32", axis=-1), Fixed(2)((0, 2), "float32")] == [
        [3, 1], [1, 2], [1, 1]]
    assert [MinSize(4, 100)((6, 5), "float32", axis=1), MaxSize(4)((6, 5), "float32", axis=1),
            MaxSize(4)((6, 5), "float32", axis=-1), MaxSize(4, 0)((6,), "float32"),
            MinSize(64, 100, bytes_per_string=64)((5,), "U1"), MinSize()((1024, 1024), "float32")] == [
        [1, 5], [1, 5], [1, 5], [6], [5], [1, 1]]


@pytest.mark.parametrize("call", [
    lambda: Fixed(0), lambda: Fixed(-1), lambda: Fixed(2.5), lambda: Fixed(True), lambda: MinSize("a"),
    lambda: MinSize(4, 0), lambda: MinSize(4, 100, bytes_per_string=0), lambda: MaxSize(4, 100, bytes_per_string=0),
    lambda: MaxSize(0), lambda: MaxSize(4, -1), lambda: Fixed(2)((None, 2), "float32"),
    lambda: Fixed(2)((), "float32"), lambda: Fixed(2)(None, "float32"), lambda: Fixed(2)((4, 2), "float32", axis=2),
    lambda: MinSize(4, 5)((), "float32"), lambda: MaxSize(4)((None, 5), "float32"),
    lambda: MinSize(4, 5)((4, 2), "float32", axis=-3)])
def test_bad_arguments_of_partitioners(call: Any) -> None:
    with pytest.raises((refdist.errors.InvalidValueError, refdist.errors.InvalidTypeError), match=r"RD(25|34)"):
        call()


def test_a_partitioner_defines_a_call() -> None:
    with pytest.raises(NotImplementedError):
        partitioners.Partitioner()((1,), "float32")


@given(st.integers(0, 60), st.integers(1, 70))
def test_rows_are_divided_evenly_and_the_first_shards_have_more(rows: int, count: int) -> None:
    counts = row_counts([count], rows, "")
    assert sum(counts) == rows and counts == sorted(counts, reverse=True) and max(counts) - min(counts) <= 1
    assert len(counts) == max(1, min(count, rows))


def test_shard_sizes() -> None:
    assert [row_counts([k], n, "") for n, k in ((13, 5), (10, 4), (3, 5), (10, 3))] == [
        [3, 3, 3, 2, 2], [3, 3, 2, 2], [1, 1, 1], [4, 3, 3]]


@pytest.mark.parametrize("partitions", [[], None, [0], [0, 1], [2, 2], [1, 2], 2, [-1, 1], [2.0, 1], [True], "2"])
def test_what_a_partitioner_may_not_return(partitions: Any) -> None:
    with pytest.raises(refdist.errors.InvalidValueError, match=r"RD34.*variable_partitioner returned"):
        row_counts(partitions, 4, "Variable")


def test_which_functions_make_parts() -> None:
    def keywords(*, partition_shape: Any, partition_offset: Any) -> None: ...
    def one_of_them(partition_shape: Any = None) -> None: ...
    def any_keyword(**kwargs: Any) -> None: ...
    assert makes_parts(keywords) and makes_parts(any_keyword)
    assert not any(map(makes_parts, (one_of_them, lambda: 1.0, lambda shape: 1.0, min, 1.0, None)))


def test_parts_of_an_initial_value() -> None:
    asked = []

    def rows(partition_shape: tuple[int, ...], partition_offset: tuple[int, ...]) -> Any:
        asked.append((partition_shape, partition_offset))
        return np.full(partition_shape, partition_offset[0])

    parts = initial_parts(rows, (3, 2), "float32", [2, 1], "Variable")
    assert asked == [((2, 2), (0, 0)), ((1, 2), (2, 0))]
    assert [part.tolist() for part in parts] == [[[0.0, 0.0], [0.0, 0.0]], [[2.0, 2.0]]]
    assert {part.dtype for part in parts} == {np.dtype("float32")}
    whole = initial_parts(lambda **_: [1, 2, 3], (3,), "uint8", [2, 1], "Variable")
    assert [part.tolist() for part in whole] == [[1, 2], [3]] and whole[0].dtype == np.uint8

    def too_many_at_the_end(partition_shape: tuple[int, ...], partition_offset: tuple[int, ...]) -> Any:
        return [0.0] * (5 if partition_offset[0] else 2)

    with pytest.raises(refdist.errors.InvalidArgumentError, match=r"RD04.*shape \(5,\) for rows 2 to 3 of"):
        initial_parts(too_many_at_the_end, (4,), "float32", [2, 2], "Variable")
    with pytest.raises(KeyError, match="its own"):
        initial_parts(lambda **_: {}["its own"], (3,), "float32", [2, 1], "Variable")


def test_a_sharded_variable_is_one_array() -> None:
    v = sharded([1.0, 2.0, 3.0], 2, 1)
    assert (v.shape, v.dtype, v.name, len(v.variables), v.is_sharded_variable) == ((3,), np.float64, "v:0", 2, True)
    assert not isinstance(v, refdist.Variable)
    for name in ("read_value", "value", "device", "trainable"):
        assert not hasattr(v, name)
    assert (v + v).tolist() == [2.0, 4.0, 6.0] and (2.0 - v).tolist() == [1.0, 0.0, -1.0]
    assert (v > 1.5).tolist() == [False, True, True] and (v == v).tolist() == [True] * 3
    assert (-v).tolist() == [-1.0, -2.0, -3.0] and np.sum(v) == 6.0 and abs(v).tolist() == [1.0, 2.0, 3.0]
    m = sharded(np.arange(6.0).reshape(3, 2), 2, 1)
    assert (m @ np.ones((2, 1))).tolist() == [[1.0], [5.0], [9.0]]
    assert [shard.numpy().tolist() for shard in v] == [[1.0, 2.0], [3.0]] and list(v)[1] is v.variables[1]
    with pytest.raises(TypeError, match="RD25"):
        len(v)
    with pytest.raises(TypeError, match="does not support item assignment"):
        v[0] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError, match=r"RD25.*hash"):
        hash(v)
    assert "shards=2" in repr(v)


KEYS = st.one_of(st.integers(-7, 6), st.slices(7), st.tuples(st.slices(7), st.integers(0, 1)),
                 st.tuples(st.integers(-7, 6), st.slices(2)), st.just(Ellipsis), st.just(()), st.none(),
                 st.tuples(st.none(), st.integers(0, 6)), st.tuples(st.just(Ellipsis), st.integers(0, 1)))


# NumPy's True is a new axis, and not row 1, although Python calls it an int.
@example(True, [4, 0, 0])
@example((False, 3), [4, 0, 0])
@given(KEYS, st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(lambda counts: sum(counts) <= 7))
def test_indexing_is_that_of_the_whole_array(key: Any, counts: list[int]) -> None:
    whole = np.arange(14.0).reshape(7, 2)
    v = sharded(whole, *counts, 7 - sum(counts))
    np.testing.assert_array_equal(v[key], whole[key])
    assert np.shape(v[key]) == np.shape(whole[key])


@pytest.mark.parametrize("key", [7, -8, (0, 0, 0), "a", (slice(None), 5)])
def test_indices_that_are_not_there(key: Any) -> None:
    v = sharded(np.arange(14.0).reshape(7, 2), 4, 3)
    with pytest.raises((IndexError, TypeError, ValueError)):
        v[key]


def test_a_read_takes_only_the_shards_with_these_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    v, read = sharded(np.arange(9.0), 3, 3, 3), []
    whole = refdist.Variable.read_value

    def noted(shard: Any) -> Any:
        read.append(shard.name)
        return whole(shard)

    monkeypatch.setattr(refdist.Variable, "read_value", noted)
    assert v[4] == 4.0 and v[1:4].tolist() == [1.0, 2.0, 3.0] and v[-1] == 8.0 and v[8:2:-2].tolist() == [8.0, 6.0, 4.0]
    assert read == ["v/part_1:0", "v/part_0:0", "v/part_1:0", "v/part_2:0", "v/part_1:0", "v/part_2:0"]


def test_assign() -> None:
    """A value that does not fit changes nothing; TensorFlow writes the first shards, or cuts the value."""
    v = sharded(np.array([1, 2, 3], np.float32), 2, 1)
    assert v.assign([4.0, 5.0, 6.0]) is v and v.assign_add(np.ones(3, np.float32)) is v
    assert v.assign_sub([1, 1, 1]) is v and v.assign(v, read_value=False) is None
    assert v.numpy().tolist() == [4.0, 5.0, 6.0] and v.numpy().dtype == np.float32
    for wrong in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0], 7.0, [[1.0, 2.0, 3.0]], v.variables[0], np.array(["a", "b", "c"])):
        for name in ("assign", "assign_add", "assign_sub"):
            with pytest.raises(refdist.errors.RefdistError, match=r"RD0[45]"):
                getattr(v, name)(wrong)
    i = sharded([1, 2, 3], 2, 1)
    with pytest.raises(refdist.errors.InvalidArgumentError, match="RD05"):
        i.assign([1.5, 2.0, 3.0])
    assert v.numpy().tolist() == [4.0, 5.0, 6.0] and i.numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(("name", "expected"), [
    ("scatter_add", [3, 2, 3, 4, 18]), ("scatter_sub", [-1, 2, 3, 4, -8]), ("scatter_mul", [2, 2, 3, 4, 150]),
    ("scatter_div", [0.5, 2, 3, 4, np.float32(5 / 30)]), ("scatter_max", [2, 2, 3, 4, 10]),
    ("scatter_min", [1, 2, 3, 4, 3]), ("scatter_update", [2, 2, 3, 4, 3]), ("batch_scatter_update", [2, 2, 3, 4, 3])])
@pytest.mark.parametrize("counts", [(3, 2), (5,), (1, 1, 0, 3)])
def test_scatter(name: str, expected: list[float], counts: tuple[int, ...]) -> None:
    v = sharded(np.arange(1, 6, dtype=np.float32), *counts)
    assert getattr(v, name)(refdist.IndexedSlices([10.0, 2.0, 3.0], [4, 0, 4])) is v
    assert v.numpy().tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "value"), [
    ("scatter_add", refdist.IndexedSlices([1.0, 1.0], [0, 7])), ("scatter_add", refdist.IndexedSlices([1.0], [-1])),
    ("scatter_div", refdist.IndexedSlices([2.0, 0.0], [0, 4])), ("scatter_add", [1.0]),
    ("scatter_add", refdist.IndexedSlices([[1.0], [1.0]], [0, 4]))])
def test_a_scatter_that_fails_changes_nothing(name: str, value: Any) -> None:
    v = sharded(np.arange(1, 6, dtype=np.float32), 3, 2)
    with pytest.raises(refdist.errors.RefdistError, match=r"RD25|RD34|RD04"):
        getattr(v, name)(value)
    assert v.numpy().tolist() == [1, 2, 3, 4, 5]


def test_rows_are_read_in_the_order_of_their_indices() -> None:
    """TensorFlow's sparse_read groups them by shard."""
    v = sharded(np.arange(10.0).reshape(5, 2), 3, 2)
    assert v.sparse_read([4, 0, 4]).tolist() == [[8.0, 9.0], [0.0, 1.0], [8.0, 9.0]]
    lookup = refdist.nn.embedding_lookup
    assert lookup(v, [[4, 0], [2, 2]]).tolist() == [[[8, 9], [0, 1]], [[4, 5], [4, 5]]]
    assert lookup(v.variables, [4, 0]).tolist() == [[8.0, 9.0], [0.0, 1.0]]
    assert lookup(v, np.zeros((0, 3), np.int32)).shape == (0, 3, 2)
    assert lookup(v, 3).tolist() == [6.0, 7.0] and lookup(refdist.Variable([[1.0], [2.0]]), [1]).tolist() == [[2.0]]
    for wrong in ([5], [-1], [0.5]):
        with pytest.raises(refdist.errors.InvalidArgumentError, match="RD34"):
            lookup(v, wrong)
    with pytest.raises(refdist.errors.InvalidTypeError, match="RD25"):
        lookup(np.zeros((2, 2)), [0])


@pytest.mark.parametrize("variables", [
    [], None, refdist.Variable([1.0]), [np.zeros(1)], [refdist.Variable([1.0]), refdist.Variable([1])],
    [refdist.Variable([1.0]), refdist.Variable([[1.0]])], [refdist.Variable(1.0)]])
def test_what_cannot_be_shards(variables: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"RD(25|34)"):
        ShardedVariable(variables)


@pytest.mark.parametrize("counts", [(5,), (3, 2), (2, 2, 1), (1, 1, 1, 1, 1)])
def test_a_checkpoint_fits_any_number_of_shards(tmp_path: Path, counts: tuple[int, ...]) -> None:
    path = Checkpoint(v=sharded(np.arange(5.0), 3, 2)).write(tmp_path / "sharded")
    assert refdist.train.list_variables(path) == [("v", [5])]
    other = sharded(np.zeros(5), *counts)
    Checkpoint(v=other).read(path).assert_consumed()
    assert other.numpy().tolist() == [0, 1, 2, 3, 4] and [len(shard.numpy()) for shard in other] == list(counts)
    plain = refdist.Variable(np.zeros(5))
    Checkpoint(v=plain).read(path).assert_consumed()
    assert plain.numpy().tolist() == [0, 1, 2, 3, 4]
    again = sharded(np.zeros(5), *counts)
    Checkpoint(v=again).read(Checkpoint(v=plain).write(tmp_path / "plain")).assert_consumed()
    assert again.numpy().tolist() == [0, 1, 2, 3, 4]


def test_a_checkpoint_of_another_shape_changes_nothing(tmp_path: Path) -> None:
    path = Checkpoint(v=sharded(np.arange(5.0), 3, 2)).write(tmp_path / "sharded")
    six = sharded(np.zeros(6), 3, 3)
    with pytest.raises(refdist.errors.InvalidValueError, match=r"RD31.*\(5,\)"):
        Checkpoint(v=six).read(path)
    assert not six.numpy().any()
    later = Checkpoint()
    later.read(path)
    later.v = sharded(np.zeros(5), 2, 2, 1)
    assert later.v.numpy().tolist() == [0, 1, 2, 3, 4]


def test_a_function_without_arguments_is_called_once_for_all_parts() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["w0:1"], "ps": ["p0:1", "p1:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec), Fixed(2))
    asked = []
    with strategy.scope():
        v = refdist.Variable(lambda: asked.append(1) or [1.0, 2.0, 3.0], shape=[3], dtype="float32")
    assert len(asked) == 1 and [part.numpy().tolist() for part in v.variables] == [[1.0, 2.0], [3.0]]


def test_a_sharded_variable_is_a_destination() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["w:1"], "ps": ["p0:1", "p1:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec),
                                               partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        v = refdist.Variable([0.0, 0.0])
    extended, number = strategy.extended, np.float32(1)
    for result in (extended.reduce_to("SUM", number, v), extended.broadcast_to(number, v),
                   extended.batch_reduce_to("SUM", [(number, v)])[0]):
        assert float(result) == 1 and len(result.values) == 2
