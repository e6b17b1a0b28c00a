"""Containers: what a person reads, in text and in a notebook, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import refdist

STRATEGY = refdist.MirroredStrategy([f"GPU:{i}" for i in range(12)])


def test_many_replicas_are_shortened_and_equal_copies_are_one_line() -> None:
    value = STRATEGY.run(lambda: np.arange(100) + refdist.get_replica_context().replica_id_in_sync_group)
    lines = repr(value).splitlines()
    assert lines[0] == "PerReplica:{"
    assert lines[1] == "  0 GPU:0: int64 100 [ 0,  1, ..., 98, 99]"
    assert lines[5] == "  ...: 6 more"
    assert len(lines) == 9
    equal = STRATEGY.extended.broadcast_to(np.float32(2), value)
    assert repr(equal) == "Mirrored:{\n  0..11 GPU:0 .. GPU:11: float32 scalar 2.\n}"
    with STRATEGY.scope():
        v = refdist.Variable([1.0, 2.0], name="v")
    assert repr(v) == ("MirroredVariable 'v:0' shape=(2,) dtype=float32: {\n"
                       "  0..11 GPU:0 .. GPU:11: float32 2 [1., 2.]\n}")


def test_a_notebook_shows_a_table() -> None:
    value = refdist.PerReplica(["<b>", 2], ["GPU:0", "GPU:1"])
    html = value._repr_html_()
    assert html.count("<tr>") == 2
    assert "<th>0 GPU:0</th>" in html and "&lt;b&gt;" in html and "<b>" not in html


def test_a_per_replica_value_is_no_array_outside_replicas_and_the_own_part_inside() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    value = strategy.run(lambda: np.ones(2) * refdist.get_replica_context().replica_id_in_sync_group)
    with pytest.raises(ValueError, match=r"RD19.*2 values.*outside every scope"):
        np.asarray(value)
    inside = strategy.run(lambda: np.asarray(value) + 1)
    assert [part.tolist() for part in inside.values] == [[1.0, 1.0], [2.0, 2.0]]


def test_results_of_collectives_and_reads_are_read_only() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable([1.0])
    reduced = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(2)))
    gathered = strategy.run(lambda: refdist.get_replica_context().all_gather(np.ones(2), axis=0))
    for array in (*reduced.values, *gathered.values, v.read_value(), strategy.reduce("MEAN", reduced, axis=0)):
        assert not array.flags.writeable


def test_arguments_of_a_reduction_are_not_frozen_or_shared() -> None:
    mine = np.ones(2)
    for count in (1, 2):
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
        result = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", mine))
        mine[0] = 5.0
        assert all(part[0] == count for part in strategy.experimental_local_results(result))
        mine[0] = 1.0


def test_a_value_needs_a_component() -> None:
    with pytest.raises(ValueError, match="RD25"):
        refdist.PerReplica([])


def test_constants_are_narrowed_as_tensorflow_does_and_arrays_keep_their_dtype() -> None:
    for value, dtype in ((1, "int32"), (1.5, "float32"), (True, "bool"), (1j, "complex128")):
        assert refdist.constant(value).dtype == dtype
    assert refdist.constant([1, 2]).dtype == "int32"
    assert refdist.constant([np.float64(1), 2]).dtype == "float64"
    assert refdist.constant(np.int64(1)).dtype == "int64"
    assert refdist.constant([1, 2], np.float16).dtype == "float16"
    for bad in (2**40, [2**40], None, {1: 2}, [[1], [1, 2]], len):
        with pytest.raises((ValueError, TypeError), match="RD25"):
            refdist.constant(bad)
