"""What `extended.update` promises: copies come out equal, or nothing has changed; and values keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])


def mirrored(value: Any, **kwargs: Any) -> Any:
    with TWO.scope():
        return refdist.Variable(value, **kwargs)


def copies(v: Any) -> list[Any]:
    return [copy.numpy().tolist() for copy in v.values]


def test_another_mirrored_variable_does_not_drift_in_an_update() -> None:
    v, other = mirrored(1.0), mirrored(0.0)
    with pytest.raises(ValueError, match="RD12"):
        TWO.extended.update(v, lambda x, y: [x.assign(2.0), other.assign(y)], args=(refdist.PerReplica([5.0, 6.0]),))
    assert copies(other) == [0.0, 0.0] and copies(v) == [1.0, 1.0]
    TWO.extended.update(v, lambda x: other.assign(7.0))
    assert copies(other) == [7.0, 7.0]


def test_a_failed_update_restores_every_variable_it_wrote() -> None:
    v, other = mirrored(1.0), mirrored(0.0)
    own = mirrored(0.0, synchronization=refdist.VariableSynchronization.ON_READ,
                   aggregation=refdist.VariableAggregation.SUM)

    def half(x: Any) -> None:
        if x is v.values[1]:
            raise KeyError("half")
        other.assign(4.0)
        own.assign(3.0)

    with pytest.raises(KeyError, match="half"):
        TWO.extended.update(v, half)
    assert copies(other) == [0.0, 0.0] == copies(own)


def test_update_non_slot_leaves_copies_equal_too() -> None:
    v = mirrored(0.0)
    with pytest.raises(ValueError, match="RD12"):
        TWO.extended.update_non_slot("CPU:1", lambda: v.assign(3.0))
    assert copies(v) == [0.0, 0.0]
    for bad in ((), 5, None):
        with pytest.raises(ValueError, match="RD25"):
            TWO.extended.update_non_slot(bad, lambda: 1)
        with pytest.raises(ValueError, match="RD25"):
            TWO.extended.batch_reduce_to("SUM", 5 if bad == () else bad)  # type: ignore[arg-type]


def test_python_numbers_have_no_width_of_their_own() -> None:
    v = mirrored(np.float64(0))
    v.assign(0.1)
    assert float(v) == 0.1
    assert float(mirrored(0.1, dtype=np.float64)) == 0.1
    assert refdist.constant([0.1], np.float64)[0] == 0.1
    wide = mirrored(np.int64(0))
    wide.assign(2**40)
    assert int(wide) == 2**40
    small = mirrored(np.uint8(1))
    small.assign(3)
    assert int(small) == 3
    for bad in (-1, 256):
        with pytest.raises(ValueError, match="RD05"):
            small.assign(bad)
    with pytest.raises(ValueError, match="RD05"):
        mirrored(1).assign(np.int64(2**40))


def test_strings_are_not_cut() -> None:
    v = mirrored("x")
    v.assign("yyy")
    assert str(v.numpy()) == "yyy"


def test_slices_are_dense_before_an_axis_is_reduced() -> None:
    value = TWO.run(lambda: refdist.IndexedSlices(np.float32([[1, 2]]), [1], [3, 2]))
    assert TWO.reduce("SUM", value, axis=1).tolist() == [0.0, 6.0, 0.0]
    assert TWO.reduce("MEAN", value, axis=1).tolist() == [0.0, 1.5, 0.0]
    assert np.allclose(TWO.reduce("MEAN", value, axis=0), [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="RD25"):
        TWO.reduce("SUM", TWO.run(lambda: refdist.IndexedSlices([1.0], [0])), axis=0)
    with pytest.raises(ValueError, match="RD04"):
        TWO.reduce("SUM", refdist.PerReplica([refdist.IndexedSlices([1.0], [0], [n]) for n in (3, 4)]), axis=None)


def test_a_scalar_variable_cannot_be_iterated() -> None:
    with pytest.raises(TypeError):
        list(mirrored(1.0))
    assert [float(x) for x in mirrored([1.0, 2.0])] == [1.0, 2.0]


def test_a_replica_context_entered_in_an_update_is_alone_and_can_be_undone() -> None:
    v, other = mirrored(1.0), mirrored(0.0, aggregation=refdist.VariableAggregation.SUM)

    def across(strategy: Any) -> None:
        other.assign_add(2.0)

    def alone(x: Any) -> None:
        with refdist.ReplicaContext(TWO, 0):
            other.assign_add(2.0)
            refdist.get_replica_context().merge_call(across)

    TWO.extended.update(v, alone)
    assert copies(other) == [8.0, 8.0]

    def half(x: Any) -> None:
        alone(x)
        if x is v.values[1]:
            raise KeyError("half")

    with pytest.raises(KeyError, match="half"):
        TWO.extended.update(v, half)
    assert copies(other) == [8.0, 8.0]
