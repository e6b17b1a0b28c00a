"""What the documents of tf.distribute show, written out again; where a document is wrong the test says so.

Pages are those of TensorFlow 2.21's API reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist

GPUS2 = ["GPU:0", "GPU:1"]
GPUS4 = [f"GPU:{i}" for i in range(4)]


def rank() -> int:
    number: int = refdist.get_replica_context().replica_id_in_sync_group
    return number


def test_central_storage_example_of_the_class() -> None:
    """tf.distribute.experimental.CentralStorageStrategy, "For Example": range(5) in batches of 2."""
    strategy = refdist.experimental.CentralStorageStrategy()
    distributed = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(5).batch(2))
    with strategy.scope():
        results = [strategy.run(lambda x: x + 1, args=(x,)) for x in distributed]
    assert [result.tolist() for result in results] == [[1, 2], [3, 4], [5]]


def test_central_storage_prints_one_element_per_replica_not_two() -> None:
    """CentralStorageStrategy.experimental_distribute_dataset, "For Example".

    The page is wrong: a batch of 2 is split, so that the elements are [0], [1] and [2], [3], not [0, 1] and
    [2, 3].  It takes the class from `tf.distribute`; TensorFlow has it in `experimental`, refdist in both.
    """
    assert refdist.CentralStorageStrategy is refdist.experimental.CentralStorageStrategy
    strategy = refdist.CentralStorageStrategy(["CPU:0", "GPU:0"], "CPU:0")
    elements = list(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(10).batch(2)))
    assert [[part.tolist() for part in element.values] for element in elements] == [
        [[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]], [[8], [9]]]


def test_central_storage_reduce_example_is_wrong_in_three_ways() -> None:
    """CentralStorageStrategy.reduce, "For Example".

    The page says that range(10), unbatched, sums to [4, 6, 8, 10] and then to 28.  It is wrong: (1) unbatched
    elements are scalars and cannot be split; (2) [4, 6, 8, 10] needs one batch of range(8), not a loop over
    batches; (3) the second reduction gets the first one's result, which counts once per replica: 56.
    """
    strategy = refdist.experimental.CentralStorageStrategy(["CPU:0", "GPU:0"], "CPU:0")
    with pytest.raises(ValueError, match="RD15"):
        next(iter(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(10))))
    [batch] = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(8).batch(8))
    per_replica = strategy.run(lambda x: x, args=(batch,))
    result = strategy.reduce(refdist.ReduceOp.SUM, per_replica, axis=None)
    assert result.tolist() == [4, 6, 8, 10]
    assert strategy.reduce(refdist.ReduceOp.SUM, result, axis=0) == 56
    assert strategy.reduce(refdist.ReduceOp.SUM, per_replica, axis=0) == 28


def test_values_from_function() -> None:
    """Strategy.experimental_distribute_values_from_function, examples 1 to 3 (and 4 in place of TPUs)."""
    strategy = refdist.MirroredStrategy(GPUS2)
    make = strategy.experimental_distribute_values_from_function
    array = np.array([3.0, 2.0, 1.0])
    assert [float(x) for x in make(lambda ctx: refdist.constant(1.0)).values] == [1.0, 1.0]
    assert strategy.experimental_local_results(make(lambda ctx: array[ctx.replica_id_in_sync_group])) == (3.0, 2.0)
    assert strategy.experimental_local_results(make(lambda ctx: ctx.num_replicas_in_sync)) == (2, 2)
    placed = []
    for device in strategy.extended.worker_devices:
        with refdist.device(device):
            placed.append(refdist.constant(1.0))
    assert make(lambda ctx: placed[ctx.replica_id_in_sync_group]).values == tuple(placed)


def test_gather_of_two_columns() -> None:
    """Strategy.gather, first example."""
    strategy = refdist.MirroredStrategy(GPUS2)
    value = strategy.experimental_distribute_values_from_function(lambda _: refdist.constant([[1], [2]]))
    gathered = strategy.gather(value, axis=0)
    assert (gathered.dtype, gathered.tolist()) == (np.int32, [[1], [2], [1], [2]])


@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 2, 3)), (1, (1, 8, 3)), (2, (1, 2, 12))])
def test_gather_on_three_axes(axis: int, shape: tuple[int, ...]) -> None:
    """Strategy.gather, second example."""
    strategy = refdist.MirroredStrategy(GPUS4)
    array = np.arange(6, dtype=np.int32).reshape(1, 2, 3)
    value = strategy.experimental_distribute_values_from_function(lambda _: array.copy())
    gathered = strategy.gather(value, axis=axis)
    assert gathered.shape == shape
    for part in np.split(gathered, 4, axis=axis):
        assert part.tolist() == array.tolist()


def test_reduce_counts_the_last_partial_batch_by_its_true_size() -> None:
    """Strategy.reduce: 8 examples on 2 replicas, then 6, on which the denominator of MEAN is 6."""
    strategy = refdist.MirroredStrategy(GPUS2)
    [full] = strategy.experimental_distribute_dataset([np.arange(8.0)])
    assert strategy.reduce("SUM", full, axis=None).tolist() == [4, 6, 8, 10]
    assert strategy.reduce("SUM", full, axis=0) == 28
    partial = refdist.PerReplica([np.arange(4.0), np.array([4.0, 5.0])])
    with pytest.raises(ValueError, match="RD04"):
        strategy.reduce("MEAN", partial, axis=None)
    assert strategy.reduce("MEAN", partial, axis=0) == 15 / 6
    means = strategy.run(lambda x: x.mean(), args=(partial,))
    assert strategy.reduce("MEAN", means, axis=None) == (1.5 + 4.5) / 2


def test_scope_makes_a_mirrored_variable_with_a_copy_on_each_device() -> None:
    """Strategy.scope, first example; MirroredStrategy, "Variables created inside"."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        inside = refdist.Variable(1.0)
    outside = refdist.Variable(1.0)
    assert [copy.name for copy in inside.values] == ["Variable:0", "Variable/replica_1:0"]
    assert [copy.device[-5:] for copy in inside.values] == GPUS2
    assert not isinstance(outside, refdist.DistributedValues)
    assert outside.name == "Variable:0"


def test_cross_device_ops_are_chosen_at_construction() -> None:
    """MirroredStrategy, "Args": cross_device_ops."""
    for ops in (refdist.NcclAllReduce(2), refdist.HierarchicalCopyAllReduce(), refdist.ReductionToOneDevice()):
        strategy = refdist.MirroredStrategy(GPUS4, cross_device_ops=ops)
        result = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.arange(3.0)))
        assert [x.tolist() for x in result.values] == [[0, 4, 8]] * 4


def test_all_reduce_of_one_value_and_of_a_nest() -> None:
    """ReplicaContext.all_reduce, both examples."""
    strategy = refdist.MirroredStrategy(GPUS2)

    def step() -> Any:
        replica = refdist.get_replica_context()
        value = refdist.constant(1.0) + replica.replica_id_in_sync_group
        return replica.all_reduce("SUM", value), replica.all_reduce("SUM", {"a": value, "b": [value]})

    total, nest = strategy.run(step)
    assert [float(x) for x in total.values] == [3.0, 3.0]
    assert [float(x) for x in nest["b"][0].values] == [3.0, 3.0]


def test_all_gather_of_unequal_lengths_and_of_a_nest_whose_printed_result_is_wrong() -> None:
    """ReplicaContext.all_gather, all examples; the page prints [1, 2] where [0] and [1] are gathered."""
    strategy = refdist.MirroredStrategy(GPUS2)

    def step() -> Any:
        replica = refdist.get_replica_context()
        unequal = replica.all_gather(np.full(rank() + 1, rank()), axis=0)
        return unequal, replica.all_gather({"a": np.array([rank()])}, axis=0)

    unequal, nest = strategy.run(step)
    assert unequal.values[0].tolist() == [0, 1, 1]
    assert nest["a"].values[1].tolist() == [0, 1]


def test_merge_call_of_a_reduction_that_updates_a_variable() -> None:
    """ReplicaContext.merge_call; StrategyExtended, "Replica context vs. cross-replica context"."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        v = refdist.Variable(0.0)

    def merge(s: Any, gradient: Any) -> None:
        total = s.extended.reduce_to("SUM", gradient, destinations=v)
        s.extended.update(v, lambda copy, change: copy.assign_sub(change), args=(total,))

    strategy.run(lambda: refdist.get_replica_context().merge_call(merge, args=(refdist.constant(1.0 + rank()),)))
    assert [float(copy.numpy()) for copy in v.values] == [-3.0, -3.0]


def test_reduce_to_and_batch_reduce_to() -> None:
    """StrategyExtended.reduce_to and batch_reduce_to, examples."""
    strategy = refdist.MirroredStrategy(GPUS2)
    x, y = (strategy.run(lambda n=n: refdist.constant(float(n))) for n in (1, 2))  # type: ignore[misc]
    assert [float(v) for v in strategy.extended.reduce_to("SUM", x, destinations=x).values] == [2.0, 2.0]
    both = strategy.extended.batch_reduce_to("MEAN", [(x, x), (y, y)])
    assert [float(value.values[0]) for value in both] == [1.0, 2.0]


def test_values_come_from_run_from_datasets_and_from_functions_and_are_taken_apart_again() -> None:
    """tf.distribute.DistributedValues, the four examples."""
    strategy = refdist.MirroredStrategy(GPUS2)
    from_dataset = next(iter(strategy.experimental_distribute_dataset(
        refdist.data.Dataset.from_tensor_slices([5.0, 6.0, 7.0, 8.0]).batch(2))))
    from_run = strategy.run(lambda: refdist.constant(float(rank())))
    from_function = strategy.experimental_distribute_values_from_function(lambda ctx: refdist.constant(1.0))
    for value in (from_dataset, from_run, from_function):
        assert isinstance(value, refdist.DistributedValues)
    doubled = strategy.run(lambda x: x * 2, args=(from_dataset,))
    assert [x.tolist() for x in doubled.values] == [[10.0], [12.0]]
    assert strategy.reduce("SUM", from_run, axis=None) == 1.0
    assert [float(x) for x in strategy.experimental_local_results(from_function)] == [1.0, 1.0]


def test_variable_aggregation_none_is_an_error_for_updates_that_differ() -> None:
    """tf.VariableAggregation, NONE: the page promises an error; TensorFlow 2.21's MirroredStrategy gives none."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        v = refdist.Variable(0.0)
    with pytest.raises(ValueError, match="RD12"):
        strategy.run(lambda: v.assign(float(rank())))
    assert float(v) == 0.0


def test_each_replica_knows_its_number() -> None:
    """tf.distribute.ReplicaContext, the example of the class."""
    strategy = refdist.MirroredStrategy(GPUS2)
    assert strategy.run(rank).values == (0, 1)


def test_contexts_outside_a_scope_inside_it_and_in_a_replica() -> None:
    """tf.distribute.get_replica_context, in_cross_replica_context and has_strategy, "For example"."""
    strategy = refdist.MirroredStrategy(GPUS2)

    def state() -> tuple[bool, bool, bool]:
        return refdist.get_replica_context() is None, refdist.in_cross_replica_context(), refdist.has_strategy()

    assert state() == (False, False, False)
    with strategy.scope():
        assert state() == (True, True, True)
        in_replicas = strategy.run(lambda: [state(), refdist.get_replica_context().num_replicas_in_sync])
    assert in_replicas == [(False, False, True), 2]


def test_run_with_a_number_and_with_a_value_for_each_replica() -> None:
    """Strategy.run, the three examples."""
    strategy = refdist.MirroredStrategy(GPUS2)
    make = strategy.experimental_distribute_values_from_function
    doubled = strategy.run(lambda x: x * 2.0, args=(refdist.constant(3.0),))
    assert [float(x) for x in doubled.values] == [6.0, 6.0]
    counts = strategy.run(lambda x: refdist.constant(x) * 2, args=(make(lambda ctx: ctx.num_replicas_in_sync),))
    assert [int(x) for x in counts.values] == [4, 4]
    ids = make(lambda ctx: refdist.constant(ctx.replica_id_in_sync_group))
    summed = strategy.run(lambda x: refdist.get_replica_context().all_reduce("sum", x), args=(ids,))
    assert [int(x) for x in summed.values] == [1, 1]


def test_reduce_of_scalars_along_an_axis_is_an_error_although_the_page_shows_it() -> None:
    """Strategy.reduce, the first example, and the two lines with "sum" that follow.

    The page reduces the same scalars with axis=None and with axis=0; scalars have no axis 0.
    """
    strategy = refdist.MirroredStrategy(GPUS2)
    per_replica = strategy.run(lambda: refdist.constant(rank()))
    assert strategy.reduce("SUM", per_replica, axis=None) == 1
    assert strategy.reduce("sum", per_replica, axis=None) == 1
    with pytest.raises(ValueError, match="RD08"):
        strategy.reduce("sum", per_replica, axis=0)


def test_distributed_values_reduced_along_the_batch() -> None:
    """tf.distribute.DistributedValues, the example with `axis = 0`."""
    strategy = refdist.MirroredStrategy(GPUS2)
    dataset = refdist.data.Dataset.from_tensor_slices([5.0, 6.0, 7.0, 8.0]).batch(2)
    first = next(iter(strategy.experimental_distribute_dataset(dataset)))
    assert strategy.reduce(refdist.ReduceOp.SUM, first, axis=0) == 11.0
    assert [part.tolist() for part in strategy.experimental_local_results(first)] == [[5.0], [6.0]]


def test_all_reduce_of_a_list_and_all_gather_of_arrays_of_different_rank() -> None:
    """ReplicaContext.all_reduce, second example; ReplicaContext.all_gather, first and second example."""
    strategy = refdist.MirroredStrategy(GPUS2)

    def step() -> Any:
        replica = refdist.get_replica_context()
        vector, square = refdist.constant([1, 2, 3]), refdist.constant([[1, 2], [3, 4]])
        return (replica.all_reduce(refdist.ReduceOp.SUM, [refdist.constant(1.0), refdist.constant(2.0)]),
                replica.all_gather([vector, square], axis=0))

    sums, gathered = strategy.run(step)
    assert [[float(x) for x in total.values] for total in sums] == [[2.0, 2.0], [4.0, 4.0]]
    for of_replica in range(2):
        assert gathered[0].values[of_replica].tolist() == [1, 2, 3, 1, 2, 3]
        assert gathered[1].values[of_replica].tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]]


def test_update_assigns_to_every_copy_without_the_variable_s_aggregation() -> None:
    """StrategyExtended.update, the example: a SUM variable assigned 1 holds 1, not 2."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        v = refdist.Variable(5.0, aggregation=refdist.VariableAggregation.SUM)
    result = strategy.extended.update(v, lambda copy: copy.assign(1.0))
    assert isinstance(result, refdist.Mirrored)
    assert [float(x) for x in result.values] == [1.0, 1.0]
    assert float(v) == 1.0


def test_colocated_variables_are_updated_together() -> None:
    """StrategyExtended.colocate_vars_with, "Example usage"."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        first = refdist.Variable(1.0)
        with strategy.extended.colocate_vars_with(first):
            second = refdist.Variable(2.0)
    assert [part.device for part in first.values] == [part.device for part in second.values]
    strategy.extended.update(first, lambda copy, other: copy.assign(other + 10.0), args=(second,))
    assert [float(part.numpy()) for part in first.values] == [12.0, 12.0]


def test_a_strategy_knows_the_variables_made_in_its_scope() -> None:
    """StrategyExtended.variable_created_in_scope, both examples."""
    strategy = refdist.MirroredStrategy(GPUS2)
    with strategy.scope():
        inside = refdist.Variable(1.0)
    assert strategy.extended.variable_created_in_scope(inside)
    assert not strategy.extended.variable_created_in_scope(refdist.Variable(1.0))


def test_a_function_called_in_the_scope_makes_mirrored_variables() -> None:
    """tf.distribute.MirroredStrategy, the example of a function that creates its variable once."""
    strategy = refdist.MirroredStrategy(GPUS2)
    kept: list[Any] = []

    def variable_of_the_program() -> Any:
        if not kept:
            kept.append(refdist.Variable(1.0))
        return kept[0]

    with strategy.scope():
        assert variable_of_the_program() is variable_of_the_program()
    assert [part.name for part in kept[0].values] == ["Variable:0", "Variable/replica_1:0"]


def test_strategies_set_one_after_another() -> None:
    """tf.distribute.experimental_set_strategy, the example beside nested scopes."""
    first, second = refdist.OneDeviceStrategy("GPU:0"), refdist.MirroredStrategy(GPUS2)
    seen = []
    try:
        for strategy in (first, second, None):
            refdist.experimental_set_strategy(strategy)
            seen.append(refdist.get_strategy())
    finally:
        refdist.experimental_set_strategy(None)
    assert seen[:2] == [first, second]
    assert not refdist.has_strategy()
