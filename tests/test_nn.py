"""Losses that are summed over replicas.  Numbers: TensorFlow 2.21, but where a line says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist
from refdist.nn import compute_average_loss, scale_regularization_loss

TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
LOSSES, MATRIX = [1.0, 2.0], [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]
F16, F32, F64 = np.float16, np.float32, np.float64

AVERAGES: list[tuple[Any, dict[str, Any], float, Any]] = [
    (LOSSES, {}, 1.5, F32), ([1, 2], {}, 1.5, F64), (np.array([1, 2], F64), {}, 1.5, F64),
    (np.array([1, 2], F16), {}, 1.5, F16), (np.array([1 + 1j, 2], np.complex64), {}, 1.5 + 0.5j, np.complex64),
    (MATRIX, {}, 9.0, F32), (np.zeros(0, F32), {}, 0.0, F32), (np.zeros((0, 3), F64), {}, 0.0, F64),
    (LOSSES, {"global_batch_size": 0}, 0.0, F32), ([np.inf], {"global_batch_size": 0}, 0.0, F32),
    ([np.nan], {"global_batch_size": 0}, 0.0, F32), (LOSSES, {"global_batch_size": np.int64(4)}, 0.75, F32),
    (LOSSES, {"sample_weight": 3.0}, 4.5, F32), (LOSSES, {"sample_weight": [1.0, 3.0]}, 3.5, F32),
    (LOSSES, {"sample_weight": [[1.0], [3.0]]}, 3.5, F32), (LOSSES, {"sample_weight": [1, 3]}, 3.5, F32),
    (LOSSES, {"sample_weight": [5.0]}, 7.5, F32), (LOSSES, {"sample_weight": np.array([True, False])}, 0.5, F32),
    (LOSSES, {"sample_weight": np.array([1, 3], F64)}, 3.5, F32),
    (MATRIX, {"sample_weight": [1.0, 3.0]}, 21.0, F32), (MATRIX, {"sample_weight": [[1.0], [3.0]]}, 21.0, F32),
    (np.ones((2, 3, 4), F32), {"sample_weight": np.ones((2, 3), F32)}, 12.0, F32),
    ([[1.0], [2.0]], {"sample_weight": [5.0, 6.0]}, 8.5, F32),
    # TensorFlow's sums of 8 bits overflow, and it multiplies by weights in float32.
    (np.array([100, 100], np.int8), {}, 100.0, F32),
    (np.array([1 + 2.0**-40], F64), {"sample_weight": 1.0}, 1 + 2.0**-40, F64),
]


@pytest.mark.parametrize(("losses", "options", "expected", "dtype"), AVERAGES)
def test_losses_are_summed_and_divided(losses: Any, options: Any, expected: Any, dtype: Any) -> None:
    loss = compute_average_loss(losses, **options)
    assert loss.shape == () and loss.dtype == dtype and loss == expected and not loss.flags.writeable
    replicas = TWO.run(lambda: compute_average_loss(losses, **options)).values
    assert [part.dtype for part in replicas] == [dtype] * 2
    assert list(replicas) == [expected if "global_batch_size" in options else expected / 2] * 2


def test_the_sum_over_replicas_is_the_mean_over_the_global_batch() -> None:
    rows = refdist.data.Dataset.from_tensor_slices(np.arange(7.0)).batch(7)
    [batch] = TWO.experimental_distribute_dataset(rows)
    parts = TWO.run(lambda losses: compute_average_loss(losses, global_batch_size=7), args=(batch,))
    assert TWO.reduce("SUM", parts, axis=None) == 3.0
    guessed = TWO.run(lambda losses: compute_average_loss(losses), args=(batch,))
    assert TWO.reduce("SUM", guessed, axis=None) == (6 / 4 + 15 / 3) / 2, "4 rows and 3 are not 7 halves each"


def test_a_regularization_loss_counts_once() -> None:
    cases: list[tuple[Any, float, Any]] = [
        ([2.0, 4.0], 6.0, F32), (5.0, 5.0, F32), ([2, 3], 5.0, F64), ([], 0.0, F32), (np.array([2, 3], F16), 5.0, F16),
        (np.array([2, 3], np.int8), 5.0, F32), (refdist.Variable(LOSSES), 3.0, F32)]
    for loss, total, dtype in cases:
        alone = scale_regularization_loss(loss)
        assert alone == total and alone.dtype == dtype and alone.shape == ()
        parts = TWO.run(lambda loss=loss: scale_regularization_loss(loss))
        assert [(part, part.dtype) for part in parts.values] == [(total / 2, dtype)] * 2


def test_outside_every_scope_there_is_one_replica() -> None:
    assert refdist.get_replica_context().merge_call(lambda strategy: compute_average_loss(LOSSES)) == 1.5
    with refdist.get_strategy().scope():
        assert scale_regularization_loss(2.0) == 2.0


def test_all_replicas_count_not_those_of_this_worker() -> None:
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        return strategy.run(lambda: (compute_average_loss(LOSSES), scale_regularization_loss(6.0)))

    results = refdist.simulate_workers(program, 3)
    assert [(float(average), float(loss)) for average, loss in results] == [(0.5, 2.0)] * 3


def test_across_replicas_there_is_no_batch_of_a_replica() -> None:
    with TWO.scope():
        assert compute_average_loss(LOSSES, global_batch_size=4) == 0.75
        with pytest.raises(RuntimeError, match=r"RD09\] compute_average_loss: .*cross-replica context of Mirrored.*"
                                               r"`strategy.run` or pass `global_batch_size`"):
            compute_average_loss(LOSSES)
        with pytest.raises(RuntimeError, match=r"RD09\] scale_regularization_loss: .*`strategy.run`\.$"):
            scale_regularization_loss(2.0)
    with refdist.OneDeviceStrategy("CPU:0").scope(), pytest.raises(RuntimeError, match="RD09"):
        scale_regularization_loss(2.0)


WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (1.0, {}, ValueError, "RD34.*per_example_loss has rank 0"),
    (LOSSES, {"global_batch_size": -1}, ValueError, "RD34.*global_batch_size is -1"),
    (LOSSES, {"global_batch_size": 4.0}, TypeError, "RD25.*global_batch_size is 4.0"),
    (LOSSES, {"global_batch_size": True}, TypeError, "RD25.*global_batch_size is True"),
    (LOSSES, {"global_batch_size": [4]}, ValueError, "RD34.*one int of 0 or more"),
    (LOSSES, {"sample_weight": [1.0, 3.0, 4.0]}, ValueError, r"RD04.*shape \(2,\) and the weights \(3,\)"),
    ([1, 2], {"sample_weight": [0.5, 0.5]}, TypeError, "RD05.*int32 and sample_weight was passed"),
    (["a"], {}, TypeError, "RD23"), ([True], {}, TypeError, "RD23"), (None, {}, TypeError, "RD25"),
    (LOSSES, {"sample_weight": ["a", "b"]}, TypeError, "RD05"),
    (LOSSES, {"sample_weight": 1j}, TypeError, "RD05.*weights have dtype complex"),
    (refdist.PerReplica([1.0, 2.0]), {}, ValueError, "RD19"),
]


@pytest.mark.parametrize(("losses", "options", "kind", "message"), WRONG)
def test_what_is_wrong_is_said(losses: Any, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        compute_average_loss(losses, **options)
