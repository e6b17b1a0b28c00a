"""Operations of random programs under parameter servers: their variables, and functions that are scheduled."""

from __future__ import annotations

from refdist.conformance.random_programs import variables
from refdist.conformance.random_programs.writer import ASSIGNS, OPS, Writer


def _coordinator(w: Writer) -> str:
    """A coordinator; of one strategy it is always the same one."""
    name = w.name("coordinator")
    w.say(f"{name} = tf.distribute.coordinator.ClusterCoordinator(strategy)")
    return name


def scheduled(w: Writer) -> None:
    """Functions that read and write a variable, one after another on the only worker."""
    v, method = w.variable(), w.pick(*ASSIGNS)
    w.operation(f"schedule, {method}")
    coordinator, value = _coordinator(w), w.name("value")
    function = w.function(f"{v.name}.{method}({w.constant(v.shape, v.dtype)})", f"return {v.name}[...] + x",
                          arguments="x")
    w.say(f"{value} = {coordinator}.schedule(function({function}), args=({w.constant(v.shape, v.dtype)},))",
          *[f"{value}.fetch()"] * w.number(0, 1), f"_ = {coordinator}.join()", f"{coordinator}.done()",
          f"{coordinator}.fetch([{value}, {w.number()}])", f"{v.name}[...]")


def raising(w: Writer) -> None:
    """A function that asks for an element that is not there, which nobody knows before it runs."""
    w.operation("schedule, an error")
    coordinator, iterator, value = _coordinator(w), w.name("i"), w.name("value")
    function = w.function("return next(iterator)", arguments="iterator")
    dataset_fn = w.function("return tf.data.Dataset.range(0)", kind="dataset_fn_")
    w.say(f"{iterator} = iter({coordinator}.create_per_worker_dataset({dataset_fn}))",
          f"{value} = {coordinator}.schedule(function({function}), args=({iterator},))", f"_ = {coordinator}.join()",
          f"{value}.fetch()", f"{coordinator}.done()")


def per_worker_dataset_of_a_function(w: Writer) -> None:
    w.operation("create_per_worker_dataset of a function")
    coordinator, iterator = _coordinator(w), w.name("i")
    function = w.function("return next(iterator)", arguments="iterator")
    dataset_fn = w.function(f"return tf.data.Dataset.range({w.number(1, 5)}).batch({w.number(1, 3)})",
                            kind="dataset_fn_")
    w.say(f"{iterator} = iter({coordinator}.create_per_worker_dataset({dataset_fn}))",
          *[f"{coordinator}.schedule(function({function}), args=({iterator},)).fetch()"] * w.number(1, 3))


def per_worker_dataset(w: Writer) -> None:
    w.operation("create_per_worker_dataset of a dataset")
    coordinator, iterator = _coordinator(w), w.name("i")
    function = w.function("return next(iterator) * 2", arguments="iterator")
    w.say(f"{iterator} = iter({coordinator}.create_per_worker_dataset(tf.data.Dataset.range({w.number(1, 5)})))",
          f"{coordinator}.fetch([{coordinator}.schedule(function({function}), args=({iterator},))])")


def reduced_to(w: Writer) -> None:
    v = w.variable()
    call = w.pick("reduce_to", "reduce_to", "broadcast_to", "reduce", "run")
    value = w.constant(v.shape, v.dtype)
    w.operation(f"{call} with a variable of the servers")
    w.say({"reduce_to": f"strategy.extended.reduce_to({w.pick(*OPS)}, {value}, {v.name})",
           "broadcast_to": f"strategy.extended.broadcast_to({value}, {v.name})",
           "reduce": f"strategy.reduce({w.pick(*OPS)}, {value}, axis=None)",
           "run": w.run(f"return {v.name}[...] + {value}")}[call])


def indexed(w: Writer) -> None:
    """Parts of a variable, which may lie on several servers."""
    if v := w.variable_with_rows():
        index = w.pick("0", "-1", "1:", ":1", "::-1", "...", "None", "0:0")
        w.operation(f"[{index}] of a variable of the servers")
        w.say(f"{v.name}[{index}]", f"{v.name}[...]")


def written(w: Writer) -> None:
    v, method = w.variable(), w.pick(*ASSIGNS)
    w.operation(f"{method} of a variable of the servers")
    w.say(f"_ = {v.name}.{method}({w.constant(v.shape, v.dtype)})", f"{v.name}[...]")


OPERATIONS = (scheduled, scheduled, raising, per_worker_dataset_of_a_function, per_worker_dataset, reduced_to,
              reduced_to, indexed, written, variables.scattered, variables.created)
