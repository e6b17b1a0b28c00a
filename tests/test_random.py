"""Generators: TensorFlow 2.21's numbers, and a stream for each replica wherever it runs.

Golden numbers were printed by TensorFlow 2.21 on a CPU: `f(tf.random.Generator.from_state([2**64 - 2, 2**64 - 1, -7],
"philox"))` for each `f` of NUMBERS, and by the same programs for the streams of replicas.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist
from refdist.array import philox
from refdist.random import Algorithm, Generator, create_rng_state, get_global_generator, set_global_generator
from refdist.train import Checkpoint, list_variables

ONE = refdist.OneDeviceStrategy("CPU:0")
TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
THREE = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"])
CENTRAL = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0")


def seeded(strategy: Any, seed: int = 42) -> Generator:
    with strategy.scope():
        return Generator.from_seed(seed)


def words(generator: Generator, count: int = 1) -> Any:
    return generator.uniform_full_int([count], "uint32")


def lists(value: Any) -> Any:
    return [part.tolist() for part in value.values]


def replica() -> int:
    context = refdist.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


# Counter, key and what the paper's authors print for them (Random123, kat_vectors, philox4x32 with 10 rounds).
KNOWN = [
    (0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (2**128 - 1, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (0x0370734413198A2E85A308D3243F6A88, 0x299F31D0A4093822, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_the_bits_are_those_of_the_paper(counter: int, key: int, expected: list[int]) -> None:
    assert philox.blocks(key, counter, 1).tolist() == [expected]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**128 - 1), st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_a_stream_needs_nothing_before_it(key: int, counter: int, before: int, count: int) -> None:
    whole = philox.blocks(key, counter, before + count)
    assert philox.blocks(key, counter + before, count).tolist() == whole[before:].tolist()
    assert philox.blocks(key, counter, count, 3).tolist() == philox.blocks(key, counter, 3 * count)[::3].tolist()


EXACT: dict[str, tuple[Any, Any]] = {
    "uniform float16": (lambda g: g.uniform([5], dtype=np.float16),
                        [0.8076171875, 0.9970703125, 0.20703125, 0.6708984375, 0.3818359375]),
    "uniform float32": (lambda g: g.uniform([5]), [0.8305429220199585, 0.7569576501846313, 0.34499597549438477,
                                                   0.5995692014694214, 0.34501731395721436]),
    "uniform float64": (lambda g: g.uniform((3,), dtype="float64"),
                        [0.6443438301923827, 0.7599684998385035, 0.760139263140122]),
    "uniform bounds": (lambda g: g.uniform([2, 2], [-1.0, 10.0], [1.0, 20.0]),
                       [[0.661085844039917, 17.569576263427734], [-0.31000804901123047, 15.995692253112793]]),
    "uniform int32": (lambda g: g.uniform([5], -5, 12, np.int32), [0, 4, -2, 2, 2]),
    "uniform int64": (lambda g: g.uniform([3], np.int64(-2**63 + 5), np.int64(2**63 - 9), np.int64),
                      [-441102085158973632, 4236971011635685593, 5312411727188208012]),
    "all int32": (lambda g: g.uniform(np.array([3]), None, None, np.int32), [-1737863365, 2044781565, -936630060]),
    "all uint32": (lambda g: g.uniform_full_int([3], np.uint32), [2557103931, 2044781565, 3358337236]),
    "all int64": (lambda g: g.uniform_full_int([3], np.int64),
                  [8782269951695802171, -4986401025219090220, -3910960309666567801]),
    "all uint64": (lambda g: g.uniform_full_int([3]),
                   [8782269951695802171, 13460343048490461396, 14535783764042983815]),
    "seeds": (lambda g: g.make_seeds(2), [[8782269951695802171, -4986401025219090220], [0, 0]]),
    "normal float16": (lambda g: g.normal([5], dtype=np.float16),
                       [-0.60888671875, 0.0266265869140625, -0.8544921875, -1.1826171875, 0.459228515625]),
    "normal float32": (lambda g: g.normal([5]), [-0.6088038086891174, 0.026631705462932587, -0.8543331027030945,
                                                 -1.1826072931289673, 0.45913252234458923]),
    "normal scaled": (lambda g: g.normal([2], [1.0, 100.0], [2.0, 3.0]), [-0.21760761737823486, 100.07989501953125]),
    "truncated float32": (lambda g: g.truncated_normal([6]),
                          [-0.6088038086891174, 0.026631705462932587, -0.8543331027030945, -1.1826072931289673,
                           -0.2177397757768631, -1.0831445455551147]),
}
CLOSE: dict[str, tuple[Any, Any]] = {
    "normal float64": (lambda g: g.normal([3], dtype=np.float64),
                       [-0.9357358591420131, 0.058685577344584065, 0.43243369444150465]),
    "truncated float64": (lambda g: g.truncated_normal([5], dtype=np.float64),
                          [-0.9357358591420131, 0.058685577344584065, -0.5023159885267711, 0.13450391126400266,
                           1.271025307046413]),
}
NUMBERS = {**EXACT, **CLOSE}


def at_the_end() -> Generator:
    """The counter passes 2**64 and 2**128 while numbers are drawn."""
    return Generator.from_state([2**64 - 2, 2**64 - 1, -7], "philox")


@pytest.mark.parametrize("name", EXACT)
def test_numbers_are_tensorflow_s_to_the_bit(name: str) -> None:
    draw, expected = EXACT[name]
    assert draw(at_the_end()).tolist() == expected


def test_many_normal_numbers_are_tensorflow_s_to_the_bit() -> None:
    generator = Generator.from_seed(7)
    assert sha256(generator.normal([300_000]).tobytes()).hexdigest()[:16] == "860278cfae9e0169"
    generator.normal([200_000])  # TensorFlow drew others in between
    assert sha256(generator.truncated_normal([100_000]).tobytes()).hexdigest()[:16] == "08561903fc49b9ae"


@pytest.mark.parametrize("name", CLOSE)
def test_normal_numbers_of_float64_are_tensorflow_s_but_for_the_last_bits(name: str) -> None:
    """NumPy's sine, cosine and logarithm are those of the C library on some processors only."""
    draw, expected = CLOSE[name]
    assert np.allclose(draw(at_the_end()), expected, rtol=4 * float(np.finfo(np.float64).eps), atol=0)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_draw_advances_the_state_by_what_it_returns(name: str) -> None:
    generator, other = at_the_end(), at_the_end()
    drawn = NUMBERS[name][0](generator)
    before = other.skip(2 if name == "seeds" else drawn.size)
    assert before.tolist() == [-2, -1, -7] and generator.state.numpy().tolist() == other.state.numpy().tolist()
    assert NUMBERS[name][0](generator).tolist() != drawn.tolist()


def test_truncated_numbers_stay_within_their_bounds() -> None:
    for dtype in ("float16", "float32", "float64"):
        drawn = Generator.from_seed(1).truncated_normal([3, 4000], mean=10, stddev=3, dtype=dtype)
        assert drawn.shape == (3, 4000) and drawn.dtype == dtype
        assert float(np.abs(drawn.astype(float) - 10).max()) < 6.01


def test_states_are_made_as_tensorflow_makes_them() -> None:
    for seed, state in ((1234, [1234, 0, 0]), (2**70 + 3, [3, 64, 0]), (-1, [-1, -1, -1]), ([1, 2], [0, 1, 2]),
                        ([1, 2, 3, 4], [1, 2, 3]), (np.int64(5), [0, 0, 5]), (np.array([1, 2], np.uint64), [0, 1, 2])):
        assert create_rng_state(seed, "philox").tolist() == state
        assert Generator.from_seed(seed).state.numpy().tolist() == state
    generator = Generator.from_key_counter(7, [1, 2**64 - 1], "Philox")
    assert generator.state.numpy().tolist() == [1, -1, 7] and int(generator.key) == 7 and generator.algorithm == 1
    assert Generator(copy_from=generator).state.numpy().tolist() == [1, -1, 7]
    generator.reset([4, 5, 6])
    assert generator.state.numpy().tolist() == [4, 5, 6]
    generator.reset_from_key_counter(4, [5, 6])
    assert generator.skip(-1).tolist() == [5, 6, 4] and generator.state.numpy().tolist() == [-251, 5, 4]
    generator.reset_from_seed(9)
    assert generator.state.numpy().tolist() == [9, 0, 0] and generator.state.dtype == np.int64
    assert not generator.state.trainable and generator.state.name == "StateVar:0"
    for alg in ("auto_select", "AutoSelect", Algorithm.AUTO_SELECT, 3):
        generator = Generator.from_seed(11, alg)
        assert generator.algorithm == 3 and float(generator.uniform([])) == np.float32(0.9212191104888916)
    first, second = (Generator.from_non_deterministic_state().state.numpy().tolist() for _ in range(2))
    assert first != second


def test_a_variable_as_the_state_is_used_as_it_is() -> None:
    state = refdist.Variable(np.array([1, 2, 3], np.int64))
    generator = Generator.from_state(state, "philox")
    generator.uniform([1])
    assert generator.state is state and state.numpy().tolist() == [257, 2, 3]


def test_a_variable_from_elsewhere_is_shared_as_it_was_and_the_generator_has_its_own_streams() -> None:
    alone, plain = refdist.OneDeviceStrategy("CPU:0"), Generator.from_seed(42)
    with alone.scope():
        generator = Generator.from_state(plain.state, "philox")
    assert alone.run(lambda: words(generator, 2)).tolist() == [3621202046, 3406854068]
    with THREE.scope():
        generator = Generator.from_state(plain.state, "philox")
    assert lists(THREE.run(lambda: words(generator, 2))) == [
        [1351651700, 3439177961], [2614285735, 1142340123], [1304524594, 1928047318]]
    assert generator.skip(1).tolist() == [42 + 4 * 512, 0, 0]
    assert plain.state.numpy().tolist() == [42 + 4 * 512 + 256, 0, 0]
    with pytest.raises(RuntimeError, match=r"RD10.*belongs to a MirroredStrategy, and the code runs in replica 0 of 1"):
        alone.run(lambda: words(generator, 1))
    assert plain.state.numpy().tolist() == [42 + 4 * 512 + 256, 0, 0]
    generator = Generator.from_state(seeded(THREE).state, "philox")
    assert len({str(drawn) for drawn in lists(THREE.run(lambda: words(generator, 2)))}) == 1
    assert [copy.numpy().tolist() for copy in generator.state.values] == [[42 + 512, 0, 0]] * 3
    with pytest.raises(RuntimeError, match=r"RD10.*belongs to a MirroredStrategy, and the code runs in replica 0 of 1"):
        alone.run(lambda: words(generator, 1))


def test_replicas_of_central_storage_advance_a_state_from_elsewhere_together() -> None:
    central, plain = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0"), Generator.from_seed(42)
    with central.scope():
        generator = Generator.from_state(plain.state, "philox")
    assert lists(central.run(lambda: words(generator, 2))) == [[3621202046, 3406854068], [3706008806, 2106100093]]
    central.run(lambda: words(generator, [1, 3][refdist.get_replica_context().replica_id_in_sync_group]))
    assert plain.state.numpy().tolist() == [42 + 3 * 256, 0, 0]
    assert generator.skip(1).tolist() == [42 + 3 * 256, 0, 0] and plain.state.numpy().tolist() == [42 + 4 * 256, 0, 0]
    with central.scope():
        state = Generator.from_seed(42).state
    in_turn, alone = Generator.from_state(state, "philox"), Generator.from_seed(42)
    assert lists(central.run(lambda: words(in_turn, 2))) == [words(alone, 2).tolist(), words(alone, 2).tolist()]
    assert state.numpy().tolist() == alone.state.numpy().tolist() == [42 + 1024, 0, 0]


def test_split_generators_are_tensorflow_s() -> None:
    generator = Generator.from_seed(5)
    first, second = generator.split(2)
    assert [first.state.numpy().tolist(), second.state.numpy().tolist()] == [
        [0, 0, 511886651086640123], [0, 0, 6557199171514225562]]
    assert first.uniform([2]).tolist() == [0.8270258903503418, 0.5236260890960693]
    assert generator.state.numpy().tolist() == [517, 0, 0] and generator.split(0) == []


def test_replicas_have_streams_of_their_own() -> None:
    generator = seeded(THREE)
    draw = lambda count: lists(THREE.run(lambda: words(generator, count)))  # noqa: E731
    assert draw(2) == [[3621202046, 3406854068], [3706008806, 2106100093], [2888757876, 345991552]]
    assert draw(1) == [[1351651700], [3788817837], [4102467239]]
    assert words(generator, 2).tolist() == [724584371, 2615771955]
    assert [copy.numpy().tolist() for copy in generator.state.values] == [[1322, 0, 0]] * 3


def test_a_replica_that_draws_alone_is_ahead_alone() -> None:
    generator = seeded(TWO)
    TWO.run(lambda: words(generator) if replica() == 1 else None)
    assert words(generator).tolist() == [576711303]
    assert [copy.numpy().tolist() for copy in generator.state.values] == [[298, 0, 0], [554, 0, 0]]
    assert lists(TWO.run(lambda: words(generator))) == [[875199760], [3788817837]]
    with TWO.scope():
        assert lists(generator.skip(1)) == [[554, 0, 0], [810, 0, 0]]
    TWO.run(lambda: generator.reset([0, 0, replica()]))
    assert [copy.numpy().tolist() for copy in generator.state.values] == [[0, 0, 0], [0, 0, 1]]


def test_one_replica_draws_what_the_first_of_several_draws() -> None:
    generator = seeded(ONE)
    assert ONE.run(lambda: words(generator)).tolist() == [3621202046]
    assert words(generator).tolist() == [2763054278]


def test_under_central_storage_replicas_share_one_state() -> None:
    """Replica 0 says how far it goes; all draw from the state of before."""
    generator = seeded(CENTRAL)
    assert lists(CENTRAL.run(lambda: words(generator, 1 + replica()))) == [[3621202046], [3706008806, 2106100093]]
    assert generator.state.numpy().tolist() == [298, 0, 0]
    with pytest.raises(RuntimeError, match=r"RD01.*replica 1 at drawing random numbers"):
        CENTRAL.run(lambda: words(generator) if replica() == 1 else None)


def test_a_generator_from_outside_is_one_stream() -> None:
    generator = Generator.from_seed(42)
    assert lists(TWO.run(lambda: words(generator))) == [[576711303], [2763054278]]
    with TWO.scope():
        words(generator)
    assert generator.state.numpy().tolist() == [42 + 3 * 256, 0, 0]


def test_a_generator_made_in_replicas_is_the_strategy_s() -> None:
    assert lists(TWO.run(lambda: words(Generator.from_seed(42)))) == [[3621202046], [3706008806]]
    made = TWO.run(lambda: Generator.from_seed(42).state)
    assert isinstance(made, refdist.SyncOnReadVariable) and made.distribute_strategy is TWO


def test_other_strategies_are_refused() -> None:
    generator = seeded(TWO)
    for call in (lambda: ONE.run(lambda: words(generator)), lambda: THREE.run(lambda: generator.skip(1))):
        with pytest.raises(RuntimeError, match=r"RD10.*drawing random numbers: the generator belongs to a Mirrored"):
            call()
    with ONE.scope(), pytest.raises(RuntimeError, match="RD10"):
        words(generator)
    assert generator.state.numpy().tolist() == [42, 0, 0]


def test_a_checkpoint_goes_on_where_a_stream_was(tmp_path: Path) -> None:
    generator = seeded(THREE)
    THREE.run(lambda: generator.normal([7]))
    path = Checkpoint(g=generator).write(tmp_path / "g")
    assert list_variables(path) == [("g/_state_var", [3])]
    expected = lists(THREE.run(lambda: words(generator)))
    for strategy in (TWO, CENTRAL):
        again = seeded(strategy, 1)
        Checkpoint(g=again).read(path).assert_consumed()
        assert lists(strategy.run(lambda again=again: words(again))) == expected[:2]
    alone = Generator.from_seed(1)
    Checkpoint(g=alone).read(path).assert_consumed()
    assert alone.state.numpy().tolist() == [42 + 7 * 256, 0, 0]


def drawn() -> Any:
    strategy = refdist.MultiWorkerMirroredStrategy()
    generator = seeded(strategy)
    first = strategy.run(lambda: words(generator)).tolist()
    strategy.run(lambda: words(generator) if replica() == 1 else None)
    set_global_generator(Generator.from_seed(7))
    common = get_global_generator().uniform_full_int([1], "uint32").tolist()
    return first, words(generator).tolist(), generator.state.numpy().tolist(), common


def test_workers_have_the_streams_of_their_replicas() -> None:
    """As replicas of one worker have them; test_workers.py compares more with processes."""
    results = refdist.simulate_workers(drawn, 2)
    ahead = 42 + 3 * 256
    assert [part[0] for part in results] == [[3621202046], [3706008806]]
    assert [part[2] for part in results] == [[ahead - 256, 0, 0]] * 2, "the first copy is the first worker's"
    assert results[0][3] == results[1][3], "each worker has a global generator of its own"


def test_the_global_generator_can_be_replaced() -> None:
    before = get_global_generator()
    assert before is get_global_generator()
    try:
        set_global_generator(Generator.from_seed(3))
        assert get_global_generator().state.numpy().tolist() == [3, 0, 0]
        with pytest.raises(TypeError, match="RD25"):
            set_global_generator(5)  # type: ignore[arg-type]
    finally:
        set_global_generator(before)


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "threefry": (NotImplementedError, "RD20.*ThreeFry", lambda g: Generator.from_seed(1, "threefry")),
    "algorithm": (ValueError, "RD34.*alg is 'x'", lambda g: Generator.from_seed(1, "x")),
    "number": (ValueError, "RD34.*alg is 7", lambda g: create_rng_state(1, 7)),
    "kind of algorithm": (TypeError, "RD25.*alg is 1.5", lambda g: Generator.from_seed(1, 1.5)),
    "no algorithm": (TypeError, "RD25.*alg is None", lambda g: Generator(state=[1, 2, 3])),
    "two sources": (ValueError, "RD34.*copy_from", lambda g: Generator(copy_from=g, alg=1)),
    "float seed": (TypeError, "RD25.*got 1.5", lambda g: Generator.from_seed(1.5)),
    "text": (TypeError, "RD25.*got 'a'", lambda g: Generator.from_seed("a")),
    "no seed": (TypeError, "RD25.*got None", lambda g: Generator.from_seed(None)),
    "wide": (TypeError, "RD25.*Pass 64-bit ints", lambda g: Generator.from_seed([2**64])),
    "short state": (ValueError, r"RD34.*shape \(2,\)", lambda g: Generator.from_state([1, 2], 1)),
    "variable": (ValueError, "RD34.*dtype float32", lambda g: Generator.from_state(refdist.Variable([1.0, 2, 3]), 1)),
    "reset": (ValueError, r"RD34.*shape \(4,\)", lambda g: g.reset([1, 2, 3, 4])),
    "key": (ValueError, r"RD34.*the key \(1,\)", lambda g: Generator.from_key_counter([7], [1, 2], 1)),
    "delta": (TypeError, "RD25.*delta is 1.5", lambda g: g.skip(1.5)),
    "shape": (ValueError, "RD34.*shape is 3", lambda g: g.uniform(3)),
    "negative": (ValueError, "RD34.*shape is", lambda g: g.normal([2, -1])),
    "float shape": (ValueError, "RD34.*shape is", lambda g: g.uniform_full_int([2.0])),
    "bool": (TypeError, "RD25.*dtype is.*Pass one of float16", lambda g: g.uniform([1], dtype=bool)),
    "int8": (TypeError, "RD25.*dtype is", lambda g: g.uniform_full_int([1], np.int8)),
    "unsigned": (TypeError, "RD25.*Pass one of int32, int64", lambda g: g.uniform([1], 0, 5, np.uint32)),
    "normal ints": (TypeError, "RD25.*dtype is", lambda g: g.normal([1], dtype=np.int32)),
    "no maxval": (ValueError, "RD34.*is None", lambda g: g.uniform([1], dtype=np.int32)),
    "array": (ValueError, "RD34.*Pass two ints", lambda g: g.uniform([2], [0, 1], 5, np.int32)),
    "empty": (ValueError, "RD34.*minval is 5 and maxval 5", lambda g: g.uniform([1], 5, 5, np.int32)),
    "too large": (ValueError, "RD34.*for int32", lambda g: g.uniform([1], 0, np.int64(2**31), np.int32)),
    "mean": (ValueError, "RD04.*cannot be broadcast", lambda g: g.normal([2], mean=[1.0, 2.0, 3.0])),
    "larger mean": (ValueError, "RD04.*cannot be broadcast", lambda g: g.normal([2], mean=[[1.0], [2.0]])),
    "split": (ValueError, "RD34.*shape is", lambda g: g.split(-1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_changes_nothing(name: str) -> None:
    kind, message, call = WRONG[name]
    generator = Generator.from_seed(5)
    with pytest.raises(kind, match=message):
        call(generator)
    assert generator.state.numpy().tolist() == [5, 0, 0]


def test_numbers_lie_on_the_replica_s_gpu(two: Any) -> None:
    """On the stand-in for CuPy; the state lies there too."""
    generator = seeded(refdist.MirroredStrategy(["GPU:0", "GPU:1"]))
    strategy = generator.state.distribute_strategy
    parts = strategy.run(lambda: words(generator)).values
    assert [part.get().tolist() for part in parts] == [[3621202046], [3706008806]]
    assert [part.device.id for part in parts] == [0, 1]
    assert words(generator).tolist() == [2763054278]
    losses = strategy.run(lambda: refdist.nn.compute_average_loss(generator.uniform([4]), sample_weight=2.0)).values
    assert all(isinstance(loss, two.ndarray) for loss in losses) and [loss.device.id for loss in losses] == [0, 1]


def test_a_part_of_a_long_stream_is_what_it_is_alone() -> None:
    # Long streams are computed in parts.
    key, counter = 5, 2**64 - 100
    for every in (1, 3):
        long = philox.blocks(key, counter, 40_000, every)
        for start in (0, 98, 102, 16_383, 16_384, 39_999):
            assert long[start].tolist() == philox.blocks(key, counter + start * every, 1)[0].tolist()
