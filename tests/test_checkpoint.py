"""Checkpoints: every kind of variable, any number of replicas, kills at any moment.  Numbers: TensorFlow 2.21."""

from __future__ import annotations

import builtins
import itertools
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_workers import HERE, mpiexec

import refdist
from refdist.checkpoints import files
from refdist.train import Checkpoint, CheckpointManager, latest_checkpoint, list_variables, load_checkpoint

A, S = refdist.VariableAggregation, refdist.VariableSynchronization
TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
FOUR = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
CENTRAL = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0")


def make(strategy: Any, value: Any, **options: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(value, **options)


def copies(variable: Any) -> list[float]:
    return [float(part.numpy()) for part in variable.values]


def test_one_value_is_saved_and_every_copy_gets_it(tmp_path: Path) -> None:
    path = Checkpoint(v=make(TWO, 3.0)).write(tmp_path / "one")
    assert list_variables(path) == [("v", [])]
    four, plain, central = make(FOUR, 0.0), refdist.Variable(0.0), make(CENTRAL, 0.0)
    for variable in (four, plain, central):
        Checkpoint(v=variable).read(path).assert_consumed()
        assert float(variable) == 3.0
    assert copies(four) == [3.0] * 4
    with FOUR.scope():
        four.assign(1.0)
        Checkpoint(v=four).read(path)
    assert copies(four) == [3.0] * 4


def test_names_of_attributes_may_begin_with_an_underscore(tmp_path: Path) -> None:
    layer = Checkpoint(_bias=refdist.Variable(3.0))
    path = Checkpoint(_kernel=refdist.Variable(2.0), layer=layer).write(str(tmp_path / "saved"))
    assert [name for name, _ in list_variables(path)] == ["_kernel", "layer/_bias"]
    restored: Any = Checkpoint(layer=Checkpoint())
    restored.read(path)
    restored._kernel, restored.layer._bias = refdist.Variable(0.0), refdist.Variable(0.0)
    assert (float(restored._kernel), float(restored.layer._bias)) == (2.0, 3.0)


@pytest.mark.parametrize("name", ["save", "save_counter", "_root", "_pending", "_tracked", "__class__"])
def test_names_that_a_checkpoint_has_itself_are_taken(name: str) -> None:
    other = f"{name.strip('_')}_value"
    with pytest.raises(ValueError, match=rf"\[RD34\] Checkpoint: the name '{name}' is taken .*{other}=...\)`"):
        Checkpoint(**{name: refdist.Variable(1.0)})
    Checkpoint(**{other: refdist.Variable(1.0)})


@pytest.mark.parametrize("name", ["read", "restore", "write", "sync"])
def test_a_keyword_takes_the_place_of_a_method(name: str, tmp_path: Path) -> None:
    path = Checkpoint(**{name: refdist.Variable(2.0)}).save(tmp_path / "ckpt")
    v = refdist.Variable(0.0)
    Checkpoint.restore(Checkpoint(**{name: v}), path).assert_consumed()
    assert float(v) == 2.0


def test_objects_that_all_lead_to_each_other_are_saved_at_once(tmp_path: Path) -> None:
    class Node:
        def __init__(self, before: list[Any], number: int) -> None:
            self.before, self.v = before, refdist.Variable(float(number))

    def last() -> Any:
        nodes: list[Any] = []
        for number in range(18):
            nodes.append(Node(list(nodes), number))
        return nodes[-1]

    # 2**16 paths lead to the first one.
    path = Checkpoint(net=last()).save(tmp_path / "ckpt")
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < 1 << 20
    other = last()
    for node in (*other.before, other):
        node.v.assign(-1.0)
    Checkpoint(net=other).restore(path).assert_consumed()
    assert [float(node.v) for node in (*other.before, other)] == [float(number) for number in range(18)]


def test_variables_synchronized_on_read_are_saved_as_they_are_read(tmp_path: Path) -> None:
    def filled(aggregation: Any) -> Any:
        v = make(TWO, 0.0, synchronization=S.ON_READ, aggregation=aggregation)
        TWO.run(lambda: v.assign(1.0 + 2.0 * refdist.get_replica_context().replica_id_in_sync_group) and None)
        return v

    path = Checkpoint(v=filled(A.SUM)).write(tmp_path / "sum")
    into = make(FOUR, 0.0, synchronization=S.ON_READ, aggregation=A.SUM)
    Checkpoint(v=into).read(path)
    assert copies(into) == [1.0] * 4 and float(into.read_value()) == 4.0
    mean = filled(A.MEAN)
    path = Checkpoint(v=mean).write(tmp_path / "mean")
    Checkpoint(v=mean).read(path)
    assert copies(mean) == [2.0, 2.0]
    with pytest.raises(ValueError, match="RD13"):
        Checkpoint(v=filled(A.NONE)).write(tmp_path / "none")
    assert not (tmp_path / "none.safetensors").exists()


NUMBERS = [np.dtype(name) for name in ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64",
                                       "complex64", "complex128")]
KINDS = [(S.AUTO, A.NONE), (S.AUTO, A.SUM), (S.AUTO, A.MEAN), (S.AUTO, A.ONLY_FIRST_REPLICA), (S.ON_READ, A.SUM),
         (S.ON_READ, A.MEAN), (S.ON_READ, A.ONLY_FIRST_REPLICA)]


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, *, halves: bool) -> Any:
    """Any bits at all, not-a-numbers among them; with `halves` what sums of up to four replicas keep exactly."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "fc" and halves:
        return (12 * rng.integers(-9, 9, shape)).astype(dtype)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


@given(st.data())
def test_what_is_saved_comes_back_on_any_number_of_replicas(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("law")
    synchronization, aggregation = data.draw(st.sampled_from(KINDS))
    dtype = data.draw(st.sampled_from([dtype for dtype in NUMBERS if dtype.kind in "fc" or (
        aggregation is not A.MEAN and (synchronization is S.AUTO or dtype.kind != "b"))]))
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 0), (2, 3)]))
    summed = synchronization is S.ON_READ and aggregation in (A.SUM, A.MEAN)
    value = numbers(dtype, shape, data.draw(st.integers(0, 9999)), halves=summed)
    before, after = (refdist.MirroredStrategy([f"GPU:{i}" for i in range(data.draw(st.integers(1, 4)))])
                     for _ in range(2))
    options = {"synchronization": synchronization, "aggregation": aggregation}
    v, w = (make(strategy, np.zeros(shape, dtype), **options) for strategy in (before, after))
    v.assign(value)
    saved = v.numpy()
    path = Checkpoint(v=v).write(folder / "v")
    Checkpoint(v=w).read(path).assert_consumed()
    assert w.numpy().dtype == dtype and w.numpy().tobytes() == saved.tobytes()


class Layer:
    def __init__(self, value: float) -> None:
        self.kernel = refdist.Variable(value)
        self.others = [refdist.Variable(value + 1), {"deep": (refdist.Variable(value + 2),)}]
        self.itself = self
        self.shared = self.kernel
        self.name = "layer"
        self._hidden = refdist.Variable(0.0)

    def __call__(self, x: Any) -> Any:
        return self.kernel * x


def test_names_are_the_attributes_that_lead_to_a_variable(tmp_path: Path) -> None:
    path = Checkpoint(model=Layer(1.0), step=refdist.Variable(np.int64(5))).write(tmp_path / "tree")
    assert [name for name, _ in list_variables(path)] == [
        "model/kernel", "model/others/0", "model/others/1/deep/0", "step"]
    into = Layer(0.0)
    status = Checkpoint(model=into).read(path)
    assert [float(into.kernel), float(into.others[0]), float(into.others[1]["deep"][0])] == [1.0, 2.0, 3.0]
    status.assert_existing_objects_matched().assert_nontrivial_match().expect_partial()
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*values for step"):
        status.assert_consumed()
    root = Layer(7.0)
    Checkpoint(root).read(Checkpoint(Layer(8.0)).write(tmp_path / "root"))
    assert float(root.kernel) == 8.0
    with pytest.warns(UserWarning, match="for any of other; it has model/kernel"):
        missing = Checkpoint(other=refdist.Variable(0.0)).read(path)
    for question in (missing.assert_existing_objects_matched, missing.assert_nontrivial_match):
        with pytest.raises(refdist.errors.DataLossError, match="RD31"):
            question()
        with pytest.raises(AssertionError, match="RD31"):
            question()


def test_nothing_is_asserted_of_a_checkpoint_that_was_not_found(tmp_path: Path) -> None:
    """As tf.train.Checkpoint.restore(None)."""
    status = Checkpoint(v=refdist.Variable(1.0)).restore(latest_checkpoint(tmp_path))
    for question in (status.assert_consumed, status.assert_existing_objects_matched, status.assert_nontrivial_match):
        with pytest.raises(AssertionError, match=r"RD31.*the path is None, and nothing was restored\. Ask only if"):
            question()
    assert status.expect_partial() is status


def test_what_is_made_later_gets_its_value_then(tmp_path: Path) -> None:
    path = Checkpoint(v=make(TWO, 3.0)).write(tmp_path / "later")
    late = Checkpoint()
    late.read(path)
    late.v = make(FOUR, 0.0)
    assert copies(late.v) == [3.0] * 4


def test_a_variable_with_two_names_is_one_value(tmp_path: Path) -> None:
    w = refdist.Variable(2.0)
    first, second = Checkpoint(w=w), Checkpoint(model=Checkpoint(kernel=w), w=w)
    path, both = first.write(tmp_path / "one"), second.write(tmp_path / "two")
    assert list_variables(both) == list_variables(path) == [("w", [])]
    for checkpoint, file in itertools.product([first, second, Checkpoint(model=Checkpoint(kernel=w))], [path, both]):
        if file == both or checkpoint in (first, second):
            w.assign(9.0)
            checkpoint.read(file).assert_consumed().assert_nontrivial_match()
            assert float(w) == 2.0
    late = Checkpoint()
    status = late.read(both)
    with pytest.raises(AssertionError, match="values for model/kernel, w, which"):
        status.assert_consumed()
    late.w = w  # type: ignore[attr-defined]
    status.assert_consumed()


def test_what_is_below_two_names_is_restored_by_either(tmp_path: Path) -> None:
    class Part:
        def __init__(self, value: float) -> None:
            self.w, self.whole = refdist.Variable(value), None

    class Whole:
        def __init__(self, value: float) -> None:
            self.part = Part(value)
            self.part.whole = self  # type: ignore[assignment]

    whole, part = Whole(2.0), Part(0.0)
    path = Checkpoint(model=whole, encoder=whole.part).write(tmp_path / "saved")
    assert list_variables(path) == [("encoder/w", [])]
    Checkpoint(encoder=part).read(path).assert_consumed()
    late = Checkpoint(encoder=Part(0.0))
    late.model = Whole(0.0)  # type: ignore[attr-defined]
    late.read(path).assert_existing_objects_matched()
    assert float(part.w) == float(late.encoder.w) == float(late.model.part.w) == 2.0  # type: ignore[attr-defined]


def test_of_two_values_for_one_variable_that_of_the_shorter_path_is_taken(tmp_path: Path) -> None:
    """As in TensorFlow, which follows the paths by their length."""
    def read(names: Any, **objects: Any) -> float:
        v = refdist.Variable(0.0)
        Checkpoint(**names(v)).read(Checkpoint(**objects).write(tmp_path / "two")).assert_consumed()
        return float(v)

    first, second, wide = refdist.Variable(1.0), refdist.Variable(2.0), refdist.Variable([3.0, 3.0])
    for short in (first, second):
        assert read(lambda v: {"b": v, "a": v}, b=wide, a=short) == float(short)
        assert read(lambda v: {"a": [v], "b": v}, a=[wide], b=short) == float(short)
    with pytest.raises(ValueError, match=r"RD31.*: a has shape \(2,\)"):
        read(lambda v: {"a": v, "b": v}, a=wide, b=first)


def test_a_variable_with_two_names_and_no_value_is_told_by_both(tmp_path: Path) -> None:
    v = refdist.Variable(1.0)
    with pytest.warns(UserWarning, match="for any of a, b; it has c"):
        status = Checkpoint(a=v, b=v).read(Checkpoint(c=v).write(tmp_path / "c"))
    with pytest.raises(AssertionError, match="no value for a, b"):
        status.assert_existing_objects_matched()
    with pytest.raises(AssertionError, match="no value for any variable"):
        status.assert_nontrivial_match()


def test_what_is_made_later_inside_another_one_gets_its_value_too(tmp_path: Path) -> None:
    path = Checkpoint(m=Checkpoint(v=refdist.Variable(3.0), w=refdist.Variable(4.0))).write(tmp_path / "inner")
    inner = Checkpoint()
    outer = Checkpoint(m=inner)
    status = outer.read(path)
    with pytest.raises(ValueError, match=r"RD31.*m/v has shape"):
        inner.v = refdist.Variable([1.0, 2.0])
    inner.v = refdist.Variable(0.0)
    assert float(inner.v) == 3.0
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*values for m/w,"):
        status.assert_consumed()
    inner.w = refdist.Variable(0.0)
    assert float(inner.w) == 4.0 and status.assert_consumed() is status


def test_a_name_with_a_slash_is_another_name(tmp_path: Path) -> None:
    """The names are TensorFlow's."""
    made = {"a/b": refdist.Variable(1.0), "a": {"b": refdist.Variable(2.0)}, "a.Sb": refdist.Variable(3.0)}
    path = Checkpoint(m=made).write(tmp_path / "names")
    assert [name for name, _ in list_variables(path)] == ["m/a..Sb", "m/a.Sb", "m/a/b"]


class Count:
    def __init__(self, n: Any) -> None:
        self.n = n

    def state_dict(self) -> Any:
        return {"n": self.n}

    def load_state_dict(self, state: Any) -> None:
        if state["n"] == 13:
            raise ArithmeticError
        self.n = state["n"]


def test_objects_with_a_state_are_saved_too(tmp_path: Path) -> None:
    state = [2**80, 0.1, "text", None, {"deep": [True]}]
    shared = Count(5)
    path = Checkpoint(a=Count(state), b=shared, c=shared, v=refdist.Variable(1.0)).write(tmp_path / "states")
    a, b, c = Count(0), Count(0), Count(0)
    Checkpoint(a=a, b=b, c=c, v=refdist.Variable(0.0)).read(path).assert_consumed()
    assert (a.n, b.n, c.n) == (state, 5, 5) and list_variables(path) == [("v", [])]
    late = Checkpoint()
    late.read(path)
    late.a = Count(0)
    assert late.a.n == state
    for wrong in ((1,), {1: 2}, np.float32(1)):
        with pytest.raises(TypeError, match=r"RD31.*JSON cannot hold the state of a"):
            Checkpoint(a=Count(wrong)).write(tmp_path / "wrong")
    with pytest.raises(ValueError, match=r"RD31.*a is a state in the file and a \w+ here"):
        Checkpoint(a=refdist.Variable(0.0)).read(path)


def test_a_state_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    path = Checkpoint(a=Count(1), b=Count(13), v=refdist.Variable(1.0)).write(tmp_path / "refused")
    a, b, v = Count(7), Count(8), refdist.Variable(9.0)
    with pytest.raises(ArithmeticError):
        Checkpoint(a=a, b=b, v=v).read(path)
    assert (a.n, b.n, float(v)) == (7, 8, 9.0)


@pytest.mark.slow
def test_every_bit_of_a_file_matters(tmp_path: Path) -> None:
    w, n = refdist.Variable(np.array([1.0, 2.0], np.float32)), Count(5)
    z = refdist.Variable(np.array([1 + 2j], np.complex64))
    path = Path(Checkpoint(w=w, same=w, z=z, n=n).write(tmp_path / "bits") + ".safetensors")
    whole = path.read_bytes()
    expected = files.read(str(path))
    for place, bit in itertools.product(range(len(whole)), range(8)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1:])
        try:
            values = files.read(str(path))
        except refdist.errors.DataLossError:
            continue
        assert {key: repr(value) for key, value in values.items()} == {
            key: repr(value) for key, value in expected.items()}, (place, bit)
    path.write_bytes(whole[:-1] + b"x")
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*bits.safetensors is damaged: the checksum of"):
        Checkpoint(w=w).read(path)


def test_nothing_changes_unless_everything_fits(tmp_path: Path) -> None:
    path = Checkpoint(a=refdist.Variable(1.0), b=refdist.Variable([1.0, 2.0])).write(tmp_path / "both")
    for wrong in (refdist.Variable([0.0]), refdist.Variable([0, 0])):
        a = refdist.Variable(9.0)
        with pytest.raises(ValueError, match=r"RD31.*b has shape \(2,\) and dtype float32 in the file"):
            Checkpoint(a=a, b=wrong).read(path)
        assert float(a) == 9.0


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    v = refdist.Variable(np.arange(100.0))
    path = Path(Checkpoint(v=v).write(tmp_path / "file") + ".safetensors")
    whole = path.read_bytes()
    for length in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*file.safetensors is damaged"):
            Checkpoint(v=v).read(tmp_path / "file")
    with pytest.raises(LookupError, match=r"RD31.*gone.safetensors cannot be opened"):
        Checkpoint(v=v).read(tmp_path / "gone")
    for call in (Checkpoint(v=v).write, Checkpoint(v=v).save):
        with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*below cannot be created: Not a directory"):
            call(path / "below" / "x")
    with pytest.raises(TypeError, match=r"RD31.*dtype <U1"):
        Checkpoint(v=refdist.Variable("a")).write(tmp_path / "text")
    assert sorted(os.listdir(tmp_path)) == ["file.safetensors"]


@pytest.mark.parametrize("path", [None, 3, b"path", ["path"]])
def test_what_is_not_a_path_is_named(tmp_path: Path, path: Any) -> None:
    checkpoint = Checkpoint(v=refdist.Variable(1.0))
    calls = {"Checkpoint.write": checkpoint.write, "Checkpoint.save": checkpoint.save,
             "Checkpoint.read": checkpoint.read, "Checkpoint.restore": checkpoint.restore,
             "latest_checkpoint": latest_checkpoint, "load_checkpoint": load_checkpoint,
             "CheckpointManager": lambda folder: refdist.train.CheckpointManager(checkpoint, folder, 1)}
    if path is None:  # nothing to restore yet
        calls.pop("Checkpoint.restore")(path)
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"\[RD25\] {name}: the path is .*Pass a str or a pathlib.Path"):
            call(path)
    assert int(checkpoint.save_counter) == 0


def test_a_folder_that_does_not_exist_is_made(tmp_path: Path) -> None:
    """As TensorFlow 2.21 does, for `write` and `save`."""
    v = refdist.Variable(3.0)
    Checkpoint(v=v).write(tmp_path / "a" / "b" / "one")
    path = Checkpoint(v=v).save(tmp_path / "c" / "d" / "two")
    assert path == latest_checkpoint(tmp_path / "c" / "d") == str(tmp_path / "c" / "d" / "two-1")
    for name in (tmp_path / "a" / "b" / "one", path):
        w = refdist.Variable(0.0)
        Checkpoint(v=w).read(name)
        assert float(w) == 3.0


def test_the_number_of_saves_is_a_variable_that_is_restored(tmp_path: Path) -> None:
    checkpoint = Checkpoint(v=refdist.Variable(3.0))
    assert int(checkpoint.save_counter) == 0 and checkpoint.save_counter.dtype == np.int64
    with TWO.scope():
        path = [checkpoint.save(tmp_path / "x") for _ in range(3)][-1]
        assert Checkpoint().save_counter.distribute_strategy is None
    assert int(checkpoint.save_counter) == 3 and path == str(tmp_path / "x-3")
    restored, asked_first = Checkpoint(v=refdist.Variable(0.0)), Checkpoint(v=refdist.Variable(0.0))
    assert int(asked_first.save_counter) == 0
    for checkpoint in (restored, asked_first):
        checkpoint.restore(path).assert_consumed()
        assert int(checkpoint.save_counter) == 3 and os.path.basename(checkpoint.save(tmp_path / "y")) == "y-4"
    late = Checkpoint(v=refdist.Variable(0.0))
    late.read(path)
    assert int(late.save_counter) == 3
    with pytest.raises(AttributeError):
        late.save_counter = refdist.Variable(0)  # type: ignore[misc]
    inner = Checkpoint(v=refdist.Variable(3.0))
    inner.save(tmp_path / "inner")
    path = Checkpoint(m=inner).save(tmp_path / "outer")
    assert [name for name, _ in list_variables(path)] == ["m/save_counter", "m/v", "save_counter"]


def test_a_save_by_the_first_worker_alone_is_named(tmp_path: Path) -> None:
    """The variables are those of `MultiWorkerMirroredStrategy`; nothing is asked of the others before."""
    def program(synchronization: Any) -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        with strategy.scope():
            v = refdist.Variable(0.0, synchronization=synchronization, aggregation=A.SUM)
        if strategy.extended.transport.rank == 0:
            Checkpoint(v=v).save(tmp_path / "chief")
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))

    for synchronization in (S.AUTO, S.ON_READ):
        with pytest.raises(RuntimeError, match=r"worker 0 (is )?at Checkpoint\.save .*test_checkpoint\.py"):
            refdist.simulate_workers(lambda kind=synchronization: program(kind), 2)


def test_the_strategy_of_several_workers_is_found_among_others(tmp_path: Path) -> None:
    """Each worker's own strategy comes first here; only the first worker writes the file of all, all the same."""
    def program() -> Any:
        alone, together = refdist.OneDeviceStrategy("CPU:0"), refdist.MultiWorkerMirroredStrategy()
        rank = together.extended.transport.rank
        a, b = make(alone, float(rank)), make(together, 5.0)
        return Checkpoint(a=a, b=b).save(tmp_path / "of-all")

    assert refdist.simulate_workers(program, 3) == [str(tmp_path / "of-all-1")] * 3
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "of-all-1.safetensors"]
    assert load_checkpoint(tmp_path).get_tensor("a") == 0.0


@pytest.mark.parametrize("saved", ["by write", "by save", "by a manager"])
def test_a_worker_with_a_path_of_its_own_writes_its_own_file(tmp_path: Path, saved: str) -> None:
    """MultiWorkerMirroredStrategy, "Saving": each worker saves the same, to another path than the others."""
    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        v, rank = make(strategy, 5.0), strategy.extended.transport.rank
        checkpoint = Checkpoint(v=v)
        if saved == "by a manager":
            folder = tmp_path / str(rank)
            manager = refdist.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
            return [manager.save(), manager.save()][-1], sorted(os.listdir(folder))
        path = (checkpoint.write if saved == "by write" else checkpoint.save)(tmp_path / f"of-{rank}")
        return path, sorted(os.listdir(tmp_path))

    results = refdist.simulate_workers(program, 2)
    assert [load_checkpoint(path).get_tensor("v") for path, _ in results] == [5.0, 5.0]
    index = [] if saved == "by write" else ["checkpoint"]
    own = [["ckpt-2.safetensors"]] * 2 if saved == "by a manager" else [
        [f"of-{rank}{'-1' if saved == 'by save' else ''}.safetensors" for rank in range(2)]] * 2
    assert [there for _, there in results] == [index + files for files in own]
    if saved == "by save":
        assert latest_checkpoint(tmp_path) == results[0][0]


def test_all_workers_raise_if_one_of_them_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("a file, not a folder")
    messages = []

    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        rank = strategy.extended.transport.rank
        with pytest.raises(refdist.errors.RefdistError, match="RD31") as caught:
            Checkpoint(v=make(strategy, 5.0)).save(tmp_path / str(rank) / "ckpt")
        messages.append(str(caught.value))

    refdist.simulate_workers(program, 3)
    assert sorted("worker 1 could not write" in text for text in messages) == [False, True, True]


def test_a_file_that_fits_nothing_is_warned_of_at_once(tmp_path: Path) -> None:
    """TensorFlow 2.21 warns when the object is deleted, or the program ends."""
    path = Checkpoint(model=Layer(1.0)).save(tmp_path / "model")
    renamed = Checkpoint(net=Layer(0.0), step=refdist.Variable(np.int64(0)))
    with pytest.warns(UserWarning, match=(
            r"model-1\.safetensors has no value for any of net/kernel, net/others/0, net/others/1/deep/0, \.\.\. "
            r"\(5 in all\); it has model/kernel, model/others/0, model/others/1/deep/0, model/shared\. Use")) as caught:
        renamed.restore(path).expect_partial()
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint(model=Layer(0.0), step=refdist.Variable(0)).restore(path)
        Checkpoint().restore(path)
        Checkpoint(other=Checkpoint()).restore(path)
        Checkpoint(v=refdist.Variable(0)).restore(None)
        Checkpoint(v=refdist.Variable(0)).read(Checkpoint().write(tmp_path / "empty"))


def test_a_file_is_read_without_variables(tmp_path: Path) -> None:
    """tf.train.load_checkpoint; names are those of `list_variables`."""
    w = refdist.Variable(np.array([1.0, 2.0], np.float32))
    path = Checkpoint(w=w, same=w, n=Count(5), b=make(TWO, np.int64(7))).save(tmp_path / "x")
    for where in (path, path + ".safetensors", tmp_path):
        reader = load_checkpoint(where)
        assert reader.get_variable_to_shape_map() == {"b": [], "same": [2], "save_counter": []}
        assert reader.get_variable_to_dtype_map() == {"b": np.int64, "same": np.float32, "save_counter": np.int64}
        assert reader.get_tensor("w").tolist() == [1.0, 2.0] and int(reader.get_tensor("b")) == 7
        assert reader.has_tensor("same") and not reader.has_tensor("n") and not reader.has_tensor("other")
    with pytest.raises(LookupError, match=r"RD31.*x-1 has no value for other; it has b, same, save_counter, ..."):
        reader.get_tensor("other")
    (tmp_path / "empty").mkdir()
    for call in (load_checkpoint, list_variables):
        with pytest.raises(ValueError, match=r"RD31.*empty is a folder without a checkpoint"):
            call(tmp_path / "empty")
        with pytest.raises(LookupError, match=r"RD31.*gone.safetensors cannot be opened"):
            call(tmp_path / "gone")


def test_replicas_do_not_save(tmp_path: Path) -> None:
    """In TensorFlow each replica writes the file."""
    checkpoint = Checkpoint(v=make(TWO, 3.0))
    for call in (lambda: checkpoint.write(tmp_path / "x"), lambda: checkpoint.read(tmp_path / "x")):
        with pytest.raises(RuntimeError, match="RD09"):
            TWO.run(call)


def test_without_the_library_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: Any) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(LookupError, match=r"RD27.*pip install safetensors"):
        Checkpoint(v=refdist.Variable(1.0)).write(tmp_path / "x")
    with pytest.raises(LookupError, match=r"RD27.*pip install safetensors"):  # before hours of training
        CheckpointManager(Checkpoint(v=refdist.Variable(1.0)), tmp_path / "folder", max_to_keep=2)
    assert not list(tmp_path.iterdir())


RESUMED = str(HERE / "resumed.py")


def weights(done: Any) -> str:
    assert done.returncode == 0, done.stderr
    [line] = set(re.findall(r"weights .*", done.stdout))
    return str(line)


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: Any) -> str:
    return weights(mpiexec(2, RESUMED, str(tmp_path_factory.mktemp("whole")), "0", "never"))


@pytest.mark.slow
@pytest.mark.parametrize(("kill_at", "where"), list(itertools.product([1, 5], ["before", "written", "promised"])))
def test_a_run_that_was_killed_resumes_and_ends_with_the_same_bits(tmp_path: Path, unkilled: str, kill_at: int,
                                                                   where: str) -> None:
    killed = mpiexec(2, RESUMED, str(tmp_path), str(kill_at), where, REFDIST_TIMEOUT="60")
    assert killed.returncode != 0 and "was killed by SIGKILL" in killed.stderr
    for name in os.listdir(tmp_path):
        assert name.startswith(".") or name == files.INDEX or list_variables(tmp_path / name)
    assert weights(mpiexec(2, RESUMED, str(tmp_path), "0", "never")) == unkilled
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "what the kill left is removed"


@pytest.mark.parametrize("value", [5, 1.5, True, 1j, "a", b"a", np.ones(2), np.float32(1), None, refdist.constant(1.0),
                                   len, np.ones, dict, os, {1}, [].append, iter([refdist.Variable(1.0)]),
                                   (row for row in range(3)), refdist.IndexedSlices(np.ones((1, 2)), np.array([0])),
                                   TWO.run(lambda: refdist.constant(1.0))])
def test_what_would_not_be_saved_is_refused(value: Any) -> None:
    with pytest.raises(refdist.errors.InvalidValueError, match=r"(?s)RD34\] Checkpoint: step is .* would not be saved"):
        Checkpoint(v=refdist.Variable(1.0), step=value)
    if value is not None:
        with pytest.raises(refdist.errors.InvalidValueError, match=r"RD34\] Checkpoint: root is "):
            Checkpoint(value)
    checkpoint = Checkpoint(v=refdist.Variable(1.0))
    checkpoint.step = value  # type: ignore[attr-defined]


DATA = refdist.data.Dataset.from_generator(lambda: iter(range(8)), output_signature=refdist.TensorSpec((), np.int64)
                                           ).batch(2)


@pytest.mark.parametrize("iterator", [iter(DATA), DATA.as_numpy_iterator(),
                                      iter(TWO.experimental_distribute_dataset(DATA))])
def test_an_iterator_is_refused_wherever_it_is_found(tmp_path: Path, iterator: Any) -> None:
    """Where the position cannot be saved, as that of a generator."""
    class Loop:
        pass

    v, loop = refdist.Variable(1.0), Loop()
    path = Checkpoint(v=v).write(tmp_path / "before")
    late = Checkpoint(v=v)
    late.batches = iterator  # type: ignore[attr-defined]
    loop.batches = iterator  # type: ignore[attr-defined]
    refused = r"RD34\] Checkpoint: {}batches is an? \w*Iterator, whose position .* `dataset.skip\(count\)`"
    for where, attempt in (("", lambda: Checkpoint(v=v, batches=iterator)),
                           ("loop/", lambda: Checkpoint(v=v, loop=loop)), ("root/", lambda: Checkpoint(loop)),
                           ("", lambda: late.write(tmp_path / "late")), ("", lambda: late.read(path))):
        v.assign(5.0)
        with pytest.raises(refdist.errors.InvalidValueError, match=refused.format(where)):
            attempt()
        assert float(v) == 5.0
    assert os.listdir(tmp_path) == ["before.safetensors"]


def test_an_iterator_that_leads_to_variables_is_saved(tmp_path: Path) -> None:
    class Steps:
        def __init__(self) -> None:
            self.count = refdist.Variable(0)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return self.count.assign_add(1)

    steps, again = Steps(), Steps()
    next(steps)
    Checkpoint(steps=again).read(Checkpoint(steps=steps).write(tmp_path / "steps")).assert_consumed()
    assert int(next(again)) == 2
