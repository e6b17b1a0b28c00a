"""The orders in which datasets are shuffled and sampled are TensorFlow's.

What is expected was printed by TensorFlow 2.21: the digits of three iterations in a row, with the seed of the process
that it has where a program sets none, and with 5.  Where TensorFlow is installed, it is asked again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.core import seeds
from refdist.runtime import process

DATASETS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda ds: ds.range(8).shuffle(8, seed=1),
    "a small buffer": lambda ds: ds.range(8).shuffle(3, seed=1),
    "a large buffer": lambda ds: ds.range(8).shuffle(100, seed=1),
    "a seed of zero": lambda ds: ds.range(8).shuffle(8, seed=0),
    "a large seed": lambda ds: ds.range(8).shuffle(8, seed=2**40),
    "a negative seed": lambda ds: ds.range(8).shuffle(8, seed=-5),
    "no seed of its own": lambda ds: ds.range(8).shuffle(8),
    "the second without a seed": lambda ds: (ds.range(8).shuffle(8), ds.range(8).shuffle(8))[1],
    "one order": lambda ds: ds.range(8).shuffle(8, seed=1, reshuffle_each_iteration=False),
    "one order without a seed": lambda ds: ds.range(8).shuffle(8, reshuffle_each_iteration=False),
    "after map": lambda ds: ds.range(8).map(lambda x: 7 - x).shuffle(5, seed=1),
    "of batches": lambda ds: ds.range(8).batch(2).shuffle(3, seed=1).unbatch(),
    "before batch": lambda ds: ds.range(8).shuffle(8, seed=1).batch(3).unbatch(),
    "twice": lambda ds: ds.range(8).shuffle(4, seed=1).shuffle(3, seed=2),
    "repeat": lambda ds: ds.range(4).shuffle(4, seed=1).repeat(2),
    "repeat before": lambda ds: ds.range(4).repeat(2).shuffle(6, seed=1),
    "repeat of batches": lambda ds: ds.range(4).shuffle(4, seed=1).batch(2).repeat(2).unbatch(),
    "repeat of a filter": lambda ds: ds.range(6).shuffle(4, seed=1).filter(lambda x: x > 1).repeat(2),
    "repeat without end": lambda ds: ds.range(4).shuffle(4, seed=1).batch(4).repeat().take(2).unbatch(),
    "repeat twice": lambda ds: ds.range(3).shuffle(3, seed=1).repeat(2).repeat(2),
    "repeat of a repeat": lambda ds: ds.range(3).shuffle(3, seed=1).batch(3).repeat(2).repeat(2).unbatch(),
    "cache": lambda ds: ds.range(4).shuffle(4, seed=1).cache().repeat(2),
    "after cache": lambda ds: ds.range(4).cache().shuffle(4, seed=1).repeat(2),
    "prefetch": lambda ds: ds.range(4).shuffle(4, seed=1).prefetch(1).repeat(2),
    "take": lambda ds: ds.range(8).shuffle(8, seed=1).take(6),
    "beside itself": lambda ds: (lambda d: ds.zip((d, d)).map(lambda a, b: a + b))(ds.range(5).shuffle(5, seed=1)),
    "after itself": lambda ds: (lambda d: d.concatenate(d))(ds.range(4).shuffle(4, seed=1)),
    "within flat_map": lambda ds: ds.range(2).flat_map(lambda n: ds.range(4).shuffle(4, seed=1)),
    "within interleave": lambda ds: ds.range(2).interleave(lambda n: ds.range(4).shuffle(4, seed=1), cycle_length=2),
    "windows": lambda ds: ds.range(8).shuffle(8, seed=1).window(2).flat_map(lambda window: window.batch(2)).unbatch(),
    "sampled": lambda ds: ds.sample_from_datasets([ds.range(4), ds.range(5, 9)], [0.3, 0.7], seed=1),
    "sampled alike": lambda ds: ds.sample_from_datasets([ds.range(3), ds.range(3, 6), ds.range(6, 9)], seed=2),
    "sampled anew": lambda ds: ds.sample_from_datasets(
        [ds.range(4), ds.range(5, 9)], seed=1, rerandomize_each_iteration=True),
    "sampled without a seed": lambda ds: ds.sample_from_datasets([ds.range(4), ds.range(5, 9)]),
    "sampled until one ends": lambda ds: ds.sample_from_datasets(
        [ds.range(4), ds.range(5, 9)], seed=1, stop_on_empty_dataset=True, rerandomize_each_iteration=True).repeat(2),
    "numbers": lambda ds: ds.random(seed=4).take(4).map(lambda n: n % 10),
    "numbers anew": lambda ds: ds.random(4, rerandomize_each_iteration=True).take(4).map(lambda n: n % 10),
    "numbers without a seed": lambda ds: ds.random().take(4).map(lambda n: n % 10),
    "resampled": lambda ds: ds.range(10).rejection_resample(
        lambda n: n % 3, [0.2, 0.3, 0.5], [0.4, 0.4, 0.2], seed=7).map(lambda kind, n: n),
    "resampled, one reading": lambda ds: ds.range(10).rejection_resample(
        lambda n: n % 3, [0.4, 0.4, 0.2], [0.4, 0.4, 0.2], seed=7).map(lambda kind, n: n),
    "resampled without a class": lambda ds: ds.range(10).rejection_resample(
        lambda n: n % 2, [0.0, 1.0], [0.4, 0.6], seed=7).map(lambda kind, n: n),
    "resampled, classes counted": lambda ds: ds.range(10).repeat(5).rejection_resample(
        lambda n: n % 3, [0.2, 0.3, 0.5], seed=7).map(lambda kind, n: n).take(40),
    "resampled after a shuffle": lambda ds: ds.range(10).shuffle(10, seed=1).rejection_resample(
        lambda n: n % 3, [0.2, 0.3, 0.5], [0.4, 0.4, 0.2], seed=7).map(lambda kind, n: n),
    "resampled by chance": lambda ds: ds.range(10).rejection_resample(
        lambda n: n % 2, [0.0, 1.0], [0.5, 0.5]).map(lambda kind, n: n),
}
SEEDS = [seeds.UNSET, 5]
ORDERS = {
    "plain": ("01365274 21360475 73156024", "45106237 25617340 52173604"),
    "a small buffer": ("13052674 13054672 03156724", "02153467 21346570 01253647"),
    "a large buffer": ("01365274 21360475 73156024", "45106237 25617340 52173604"),
    "a seed of zero": ("40653172 76210354 53204167", "25137046 03476521 60273451"),
    "a large seed": ("21640753 03457162 13270546", "06157234 51046237 53627104"),
    "a negative seed": ("47361025 13507264 17526430", "10365427 37604215 61734052"),
    "no seed of its own": ("12065734 31057462 47602531", "15203647 72456103 70653421"),
    "the second without a seed": ("24153670 12075463 75364012", "32671540 05427316 63715240"),
    "one order": ("74523061 74523061 74523061", "47120635 47120635 47120635"),
    "one order without a seed": ("26031457 26031457 26031457", "62417530 62417530 62417530"),
    "after map": ("72416503 47316502 72165043", "47531260 56320471 34206157"),
    "of batches": ("23670145 23670145 01672345", "01456723 45230167 01234567"),
    "before batch": ("01365274 21360475 73156024", "45106237 25617340 52173604"),
    "twice": ("51267034 23107546 01674352", "36425017 23754601 31746025"),
    "repeat": ("03122310 30120213 21032103", "02312103 10232310 21303012"),
    "repeat before": ("02311230 03122031 30112320", "02102133 21213300 31230210"),
    "repeat of batches": ("03122310 02132103 02133021", "02312103 23102130 30123012"),
    "repeat of a filter": ("45232354 25342435 43523245", "43522345 25432435 32453254"),
    "repeat without end": ("03122310 30120213 21032103", "02312103 10232310 21303012"),
    "repeat twice": ("120102012021 012102102201 201201120012", "021210012210 120021021102 210102021012"),
    "repeat of a repeat": ("120102021021 102201201201 210210201021", "021210210120 021102210102 120120021021"),
    "cache": ("03120312 03120312 03120312", "02310231 02310231 02310231"),
    "after cache": ("03122310 30120213 21032103", "02312103 10232310 21303012"),
    "prefetch": ("03122310 02132103 02133021", "02312103 23102130 30123012"),
    "take": ("013652 213604 731560", "451062 256173 521736"),
    "beside itself": ("35354 13385 51383", "57314 64604 24734"),
    "after itself": ("03122310 30120213 21032103", "02312103 10232310 21303012"),
    "within flat_map": ("03120312 03120312 03120312", "02310231 02310231 02310231"),
    "within interleave": ("00331122 00331122 00331122", "00223311 00223311 00223311"),
    "windows": ("01365274 21360475 73156024", "45106237 25617340 52173604"),
    "sampled": ("56012378 56012378 56012378", "56701823 56701823 56701823"),
    "sampled alike": ("603145278 603145278 603145278", "061273845 061273845 061273845"),
    "sampled anew": ("56017238 56780123 05167283", "50678123 05126783 05126378"),
    "sampled without a seed": ("50167823 50167823 50167823", "50123678 50123678 50123678"),
    "sampled until one ends": ("56017235678012 560785601237 501230125678", "5067805126783 05167805678 012355601728"),
    "numbers": ("5983 5983 5983", "2698 2698 2698"),
    "numbers anew": ("1182 3267 6925", "0301 6749 8291"),
    "numbers without a seed": ("2100 2100 2100", "0186 0186 0186"),
    "resampled": ("205128 205128 205128", "0121528 0121528 0121528"),
    "resampled, one reading": ("0123456789 0123456789 0123456789", "0123456789 0123456789 0123456789"),
    "resampled without a class": ("13579 13579 13579", "13579 13579 13579"),
    "resampled, classes counted": (
        " ".join(["2041258132584567189012234456758289501273"] * 3),
        " ".join(["0121425831452456787901822354815267894012"] * 3)),
    "resampled after a shuffle": ("805952 255678 822765", "821243581 925784 085123"),
    "resampled by chance": ("13579 13579 13579", "13579 13579 13579"),
}


@contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """refdist's `Dataset` after `set_seed`, without Keras."""
    with process.fresh():
        seeds.of_the_process.value = seeds.Seed(seed)
        yield refdist.data.Dataset


def digits(dataset: Any, iterations: int = 3) -> str:
    return " ".join("".join(str(int(element)) for element in dataset) for _ in range(iterations))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", DATASETS)
def test_orders_are_tensorflow_s(name: str, seed: int) -> None:
    with seeded(seed) as dataset:
        assert digits(DATASETS[name](dataset)) == ORDERS[name][SEEDS.index(seed)]


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="it is not installed")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", DATASETS)
def test_tensorflow_has_these_orders(name: str, seed: int) -> None:
    import tensorflow as tf

    tf.random.set_seed(seed)
    assert digits(DATASETS[name](tf.data.Dataset)) == ORDERS[name][SEEDS.index(seed)]


@pytest.mark.parametrize("name", ["plain", "one order", "sampled"])
def test_a_seed_of_its_own_gives_an_order_also_where_the_program_sets_none(name: str) -> None:
    with process.fresh():
        assert digits(DATASETS[name](refdist.data.Dataset)) == ORDERS[name][0]


def test_without_any_seed_chance_decides() -> None:
    with process.fresh():
        first, second = (digits(refdist.data.Dataset.range(100).shuffle(100), 1) for _ in range(2))
        assert first != second


def test_iterators_draw_in_the_order_in_which_they_are_made() -> None:
    first, second = "01365274", "21360475"
    rows = refdist.data.Dataset.range(8)
    for change in (lambda d: d, lambda d: d.map(lambda x: x), lambda d: d.filter(lambda x: True), lambda d: d.cache(),
                   lambda d: d.repeat(2).take(8), lambda d: d.repeat().take(8), lambda d: d.prefetch(2),
                   lambda d: d.concatenate(rows).take(8), lambda d: d.take_while(lambda x: True),
                   lambda d: d.shard(1, 0)):
        dataset = change(rows.shuffle(8, seed=1))
        one, other = iter(dataset), iter(dataset)
        assert digits(other, 1) == second and digits(one, 1) == first


def parts(distributed: Any) -> str:
    return " ".join("".join(str(row) for step in distributed for part in getattr(step, "values", [step])
                            for row in np.asarray(part)) for _ in range(2))


def test_replicas_and_workers_share_tensorflow_s_order() -> None:
    # So with TensorFlow's MirroredStrategy and two logical devices.
    expected = "01365274 21360475"

    def batches() -> Any:
        return refdist.data.Dataset.range(8).shuffle(8, seed=1).batch(4)

    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    assert parts(two.experimental_distribute_dataset(batches())) == expected
    assert parts(two.distribute_datasets_from_function(
        lambda context: refdist.data.Dataset.range(8).shuffle(8, seed=1).batch(2))) == expected

    def worker() -> str:
        seeds.of_the_process.value = seeds.Seed(seeds.UNSET)
        strategy = refdist.MultiWorkerMirroredStrategy()
        shuffled = refdist.data.Dataset.range(8).shuffle(8)
        return parts(strategy.experimental_distribute_dataset(batches())) + " " + parts(
            strategy.experimental_distribute_dataset(shuffled.batch(4)))

    # The second dataset has a seed that the one of the process has drawn.
    assert refdist.simulate_workers(worker, 2) == ["0152 2104 1257 3174", "3674 3675 0634 0562"]
