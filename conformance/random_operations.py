"""Operations of random programs on values: runs, collectives, reductions, merge calls, CrossDeviceOps, datasets."""

from __future__ import annotations

from hypothesis import strategies as st

from refdist.conformance import random_variables
from refdist.conformance.capabilities import needs
from refdist.conformance.examples import Code, Program
from refdist.conformance.random_writer import ASSIGNS, OPS, STEPS, STRATEGIES, RandomProgram, Writer, contribution


def made(w: Writer) -> None:
    shape = w.shape()
    w.operation("run")
    name = w.name("x")
    w.say(f"{name} = {w.run(f'return {w.each(shape)}')}", name)
    w.values.append((name, len(shape)))


def returned(w: Writer) -> None:
    what, value = contribution(w)
    w.operation(f"run returns {what}")
    w.say(w.run(f"return {value}"))


def op(w: Writer) -> str:
    """A reduce op, or what is none: the operation is then called so."""
    if not w.chance(20):
        return w.pick(*OPS)
    w.operation(f"{w.current} with what is not an op")
    return w.pick('"MAX"', "None", "1")


def all_reduce(w: Writer) -> None:
    what, value = contribution(w)
    w.operation(f"all_reduce of {what}")
    w.say(w.run(f"return replica().all_reduce({op(w)}, {value})"))


def all_reduced_twice(w: Writer) -> None:
    shape = w.shape()
    w.operation("all_reduce twice")
    inner = f"replica().all_reduce({w.pick(*OPS)}, {w.each(shape)})"
    w.say(w.run(f"return replica().all_reduce({w.pick(*OPS)}, {inner} * 2.0 + {w.each(shape)})"))


def all_gather(w: Writer) -> None:
    what, value = contribution(w)
    axis = w.pick(0, 0, 0, 1, -1)
    w.operation(f"all_gather of {what} along axis {axis}")
    w.say(w.run(f"return replica().all_gather({value}, axis={axis})"))


def in_one_replica(w: Writer) -> None:
    """Collectives that only one replica calls, and replicas that call different ones."""
    if w.several:
        return
    other = w.pick("None", "replica().all_gather(x, axis=0)", 'replica().all_reduce("MEAN", x)',
                   'replica().all_reduce("SUM", [x])')
    w.operation(f"all_reduce beside {other.partition('(x')[0]}")
    w.say(w.run(f"x = {w.each((2,))}", f"if rank() == {w.number(0, w.count - 1)}:", f"    return {other}",
                'return replica().all_reduce("SUM", x)'))


def argument(w: Writer) -> None:
    name = w.pick(*(name for name, _ in w.values))
    form = w.pick("args=({},)", 'args=({{"a": [{}]}},)', 'kwargs={{"x": {}}}', "({},)")
    unwrapped = 'x["a"][0]' if '"a"' in form else "x"
    w.operation(f"run with {form.partition('=')[0] if '=' in form else 'arguments'}")
    w.say(w.run(f"return {unwrapped} * 2.0 - {w.number()}.0", arguments="x", passed=f", {form.format(name)}"))


def _cross(w: Writer, what: str, value: str) -> str:
    """A call of cross-replica context with a distributed value; it sets the name of the operation."""
    call = w.pick("reduce", "reduce", "reduce", "gather", "local results", "reduce_to", "reduce_to", "batch_reduce_to")
    if call == "reduce":
        axis = w.pick(None, None, None, 0, 0, 1, -1)
        w.operation(f"reduce of {what} {'without axis' if axis == 'None' else f'along axis {axis}'}")
        return f"strategy.reduce({op(w)}, {value}, axis={axis})"
    if call == "gather":
        axis = w.pick(0, 0, 0, 1, -1)
        w.operation(f"gather of {what} along axis {axis}")
        return f"strategy.gather({value}, axis={axis})"
    w.operation(f"{call} of {what}")
    if call == "local results":
        return f"strategy.experimental_local_results({value})"
    destination = w.pick('"CPU:0"', value, *(one.name for one in w.variables))
    if call == "reduce_to":
        return f"strategy.extended.reduce_to({op(w)}, {value}, {destination})"
    pairs = ", ".join([f"({value}, {destination})"] * w.number(1, 3))
    return f"strategy.extended.batch_reduce_to({op(w)}, [{pairs}])"


def cross(w: Writer) -> None:
    what, value = contribution(w)
    w.operation(f"run returns {what}")
    name = w.name("r")
    w.say(f"{name} = {w.run(f'return {value}')}")
    w.say(_cross(w, what, name))


def cross_of_a_value(w: Writer) -> None:
    name = w.pick(*(name for name, _ in w.values))
    w.say(_cross(w, "an array", name))


def cross_of_no_distributed_value(w: Writer) -> None:
    what, value = w.pick("an array", "a number", "a list", "None"), ""
    value = {"an array": f"tf.constant({w.array((2,))})", "a number": f"{w.number()}.5", "a list": "[1.0, 2.0]",
             "None": "None"}[what]
    w.say(_cross(w, f"{what} of no replica", value))


def merge_call(w: Writer) -> None:
    if w.several:
        return
    what, value = contribution(w)
    merge = w.name("merge_")
    call = _cross(w, what, "value")
    inner = w.current
    w.operation(f"merge_call: {inner}")
    w.say(f"def {merge}(strategy, value):\n    return {call}\n")
    w.say(w.run(f"return replica().merge_call({merge}, args=({value},))"))


def broadcast_to(w: Writer) -> None:
    destination = w.pick('"CPU:0"', *(name for name, _ in w.values), *(one.name for one in w.variables))
    value = w.pick("2.5", "tf.constant([1.0, 2.0])", *(name for name, _ in w.values))
    w.operation("broadcast_to")
    w.say(f"strategy.extended.broadcast_to({value}, {destination})")


def from_function(w: Writer) -> None:
    what = w.pick("arrays", "numbers", "nests")
    made_of = {"arrays": f"tf.constant({w.array((2,))}) * rank", "numbers": "rank + 0.5",
               "nests": '{"a": [rank]}'}[what]
    w.operation(f"values from a function of {what}")
    function = w.function("rank = int(context.replica_id_in_sync_group)", f"return {made_of}", arguments="context",
                          kind="value_fn_")
    name = w.name("f")
    w.say(f"{name} = strategy.experimental_distribute_values_from_function({function})", name)
    if w.chance(2):
        w.say(_cross(w, f"values from a function of {what}", name))
    else:
        w.say(w.run("return x", arguments="x", passed=f", args=({name},)"))


def raising(w: Writer) -> None:
    """An error in replicas, after a write or a collective."""
    where = w.pick("every replica", "one replica") if not w.several else "every replica"
    condition = "True" if where == "every replica" else f"rank() == {w.number(0, w.count - 1)}"
    kind = w.pick("ValueError", "TypeError", "KeyError", "RuntimeError", "StopIteration")
    before, name = "nothing", ""
    lines = [f"if {condition}:", f'    raise {kind}("on purpose")']
    if w.variables and w.chance(2):
        variable = w.variable()
        before, name = f"a write of {variable.kind}", variable.name
        lines.insert(0, f"{name}.assign_add({w.each(variable.shape, variable.dtype)})")
    w.operation(f"an error in {where} after {before}")
    w.say(w.run(*lines), *([name] if name else []))
    w.say(w.run(f"return {w.each(())}"))


# Without NcclAllReduce, which is for GPUs.
CROSS_DEVICE_OPS = ("ReductionToOneDevice()", "HierarchicalCopyAllReduce()", "HierarchicalCopyAllReduce(2)",
                    "ReductionToOneDevice(reduce_to_device=\"CPU:0\")")


def cross_device_ops(w: Writer) -> None:
    if w.kind != "Mirrored":
        return
    ops = w.pick(*CROSS_DEVICE_OPS)
    what, value = contribution(w)
    mine = w.name("mine")
    call = w.pick("all_reduce", "all_gather", "reduce", "variable", "direct reduce", "direct broadcast")
    operand = "an array" if call == "variable" else f"{what} along axis 0" if call == "all_gather" else what
    w.operation(f"{ops.partition('(')[0]}: {call} of {operand}")
    w.say(f"{mine} = tf.distribute.MirroredStrategy(list(strategy.extended.worker_devices), "
          f"cross_device_ops=tf.distribute.{ops})")
    if call in ("all_reduce", "all_gather"):
        call = f"all_reduce({w.pick(*OPS)}, {value})" if call == "all_reduce" else f"all_gather({value}, axis=0)"
        w.say(f"{mine}.run({w.function(f'return replica().{call}')})")
        return
    if call == "variable":
        name = w.name("v")
        w.say(f"with {mine}.scope():\n    {name} = tf.Variable(1.0, aggregation=tf.VariableAggregation."
              f"{w.pick('SUM', 'MEAN')})\n")
        w.say(f"{mine}.run({w.function(f'return {name}.{w.pick(*ASSIGNS)}({w.each(())})')})", name)
        return
    name = w.name("r")
    w.say(f"{name} = {mine}.run({w.function(f'return {value}')})")
    if call == "reduce":
        w.say(f"{mine}.reduce({w.pick(*OPS)}, {name}, axis=None)")
    elif call == "direct reduce":
        reduce_op = w.pick("tf.distribute.ReduceOp.SUM", "tf.distribute.ReduceOp.MEAN")
        w.say(f"tf.distribute.{ops}.reduce({reduce_op}, {name}, {w.pick(name, repr('CPU:0'))})")
    else:
        w.say(f"tf.distribute.{ops}.broadcast(tf.constant([1.0, 2.0]), {name})")


# Datasets.

ROWS = {
    "numbers": ("tf.data.Dataset.range({rows})", "x"),
    "rows": ("tf.data.Dataset.from_tensor_slices([[1.0, 2.0]] * {rows}).map(lambda row: row * 2.0)", "x"),
    "dictionaries": ('tf.data.Dataset.range({rows}).map(lambda i: {{"a": i, "b": (i + 1, i * 2)}})', 'x["b"][1]'),
}


def _pipeline(w: Writer, batches: bool) -> tuple[str, str, str]:
    """A dataset: what it has, its expression, and what is an array in its element `x`."""
    what = w.pick(*ROWS)
    source, part = ROWS[what]
    source = source.format(rows=w.number(0, 17))
    if batches:
        drop = w.pick("", "", ", drop_remainder=True")
        least = w.count if not w.chance(6) else 1
        source += f".batch({w.number(least, least + 8)}{drop})"
        what += " in batches" + (" without remainder" if drop else "")
    more = w.pick("", "", ".repeat(2)", ".take(2)", ".skip(1)", ".prefetch(1)", ".concatenate(tf.data.Dataset.range(2))"
                  if what == "numbers" else ".shard(2, 1)")
    if w.chance(8):
        more += ".with_options(options)"
        w.say("options = tf.data.Options()",
              "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy."
              + w.pick("AUTO", "DATA", "OFF"))
        what += " with a policy"
    return what, source + more, part


def dataset(w: Writer) -> None:
    w.operation("a dataset")
    what, source, part = _pipeline(w, not w.chance(8))
    w.operation(f"a dataset of {what}")
    name = w.name("d")
    w.say(f"{name} = strategy.experimental_distribute_dataset({source})")
    _iterated(w, name, part, f"a dataset of {what}")


def dataset_from_function(w: Writer) -> None:
    w.operation("a dataset function")
    what, source, part = _pipeline(w, w.chance(2))
    source += w.pick("", "", ".shard(context.num_input_pipelines, context.input_pipeline_id)")
    w.operation(f"a dataset function of {what}")
    name = w.name("d")
    function = w.function(f"return {source}", arguments="context", kind="dataset_fn_")
    w.say(f"{name} = strategy.distribute_datasets_from_function({function})")
    _iterated(w, name, part, f"a dataset function of {what}")


def _iterated(w: Writer, name: str, part: str, what: str) -> None:
    # What a `map` makes of a spec, only TensorFlow can know.
    how = w.pick("list", "list", "iterator", "optional", "run", "reduce", "twice",
                 "spec" if "numbers" in what else "list")
    w.operation(f"{what}, {how}")
    if how == "iterator":
        iterator = w.name("i")
        w.say(f"{iterator} = iter({name})", *[f"next({iterator})"] * w.number(1, 4))
    elif how == "optional":
        iterator, optional = w.name("i"), w.name("o")
        w.say(f"{iterator} = iter({name})", f"{optional} = {iterator}.get_next_as_optional()",
              f"strategy.experimental_local_results({optional}.has_value())", f"{optional}.get_value()")
    elif how == "run":
        function = w.function(f"return {part} * 2", arguments="x")
        w.say(f"[strategy.run({function}, args=(x,)) for x in {name}]")
    elif how == "reduce":
        function = w.function(f"return {part}", arguments="x")
        w.say(f"[strategy.reduce({w.pick(*OPS)}, strategy.run({function}, args=(x,)), axis=0) for x in {name}]")
    elif how == "spec":
        w.say(f"{name}.element_spec")
    else:
        w.say(*[f"list({name})"] * (2 if how == "twice" else 1))


def loss(w: Writer) -> None:
    what = w.pick("compute_average_loss", "scale_regularization_loss")
    dtype = w.pick("float32", "float64", "int32")
    w.operation(f"{what} of {dtype}")
    more = ""
    if what == "compute_average_loss":
        more = w.pick("", "", f", global_batch_size={w.number(1, 9)}", f", sample_weight={w.each((2,))}",
                      ", sample_weight=0.5")
    shape = w.pick(0, 1) if what == "scale_regularization_loss" else 1
    value = w.each((2,) * int(shape), dtype)
    w.say(w.run(f"return tf.nn.{what}({value}{more})"))


OPERATIONS = (made, returned, all_reduce, all_reduce, all_reduced_twice, all_gather, all_gather, argument, cross,
              cross, cross_of_a_value, cross_of_a_value, cross_of_no_distributed_value, merge_call, broadcast_to,
              from_function, cross_device_ops, dataset, dataset, dataset_from_function, loss, raising, in_one_replica)


@st.composite
def programs(draw: st.DrawFn, lacks: frozenset[str] = frozenset()) -> RandomProgram:
    """A strategy, and a program of a few operations, for an implementation that lacks some capabilities."""
    strategies = [one for one in STRATEGIES if not needs(Program(one, "", None, Code("", 1), ())) & lacks]
    writer = Writer(draw, draw(st.sampled_from(strategies)))
    writer.write(made, lacks)
    for _ in range(draw(st.integers(0, 2))):
        writer.write(random_variables.created, lacks)
    found = OPERATIONS + (random_variables.OPERATIONS if writer.variables else ())
    for _ in range(draw(st.integers(0 if writer.variables else 1, STEPS))):
        writer.write(draw(st.sampled_from(found)), lacks)
    return writer.program()
