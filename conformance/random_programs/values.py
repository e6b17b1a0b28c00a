"""Operations of random programs on values: runs, collectives, reductions, merge calls, CrossDeviceOps, losses."""

from __future__ import annotations

from refdist.conformance.random_programs.writer import ASSIGNS, OPS, Writer, contribution


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
    destination = w.pick('"CPU:0"', value, *(v.name for v in w.variables))
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
    destination = w.pick('"CPU:0"', *(name for name, _ in w.values), *(v.name for v in w.variables))
    value = w.pick("2.5", "tf.constant([1.0, 2.0])", *(name for name, _ in w.values))
    w.operation("broadcast_to")
    w.say(f"strategy.extended.broadcast_to({value}, {destination})")


def from_function(w: Writer) -> None:
    what = w.pick("arrays", "numbers", "nests")
    part = {"arrays": f"tf.constant({w.array((2,))}) * rank", "numbers": "rank + 0.5", "nests": '{"a": [rank]}'}[what]
    w.operation(f"values from a function of {what}")
    function = w.function("rank = int(context.replica_id_in_sync_group)", f"return {part}", arguments="context",
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
    own = w.name("own")
    call = w.pick("all_reduce", "all_gather", "reduce", "variable", "direct reduce", "direct broadcast")
    operand = "an array" if call == "variable" else f"{what} along axis 0" if call == "all_gather" else what
    w.operation(f"{ops.partition('(')[0]}: {call} of {operand}")
    w.say(f"{own} = tf.distribute.MirroredStrategy(list(strategy.extended.worker_devices), "
          f"cross_device_ops=tf.distribute.{ops})")
    if call in ("all_reduce", "all_gather"):
        call = f"all_reduce({w.pick(*OPS)}, {value})" if call == "all_reduce" else f"all_gather({value}, axis=0)"
        w.say(f"{own}.run({w.function(f'return replica().{call}')})")
        return
    if call == "variable":
        name = w.name("v")
        w.say(f"with {own}.scope():\n    {name} = tf.Variable(1.0, aggregation=tf.VariableAggregation."
              f"{w.pick('SUM', 'MEAN')})\n")
        w.say(f"{own}.run({w.function(f'return {name}.{w.pick(*ASSIGNS)}({w.each(())})')})", name)
        return
    name = w.name("r")
    w.say(f"{name} = {own}.run({w.function(f'return {value}')})")
    if call == "reduce":
        w.say(f"{own}.reduce({w.pick(*OPS)}, {name}, axis=None)")
    elif call == "direct reduce":
        reduce_op = w.pick("tf.distribute.ReduceOp.SUM", "tf.distribute.ReduceOp.MEAN")
        w.say(f"tf.distribute.{ops}.reduce({reduce_op}, {name}, {w.pick(name, repr('CPU:0'))})")
    else:
        w.say(f"tf.distribute.{ops}.broadcast(tf.constant([1.0, 2.0]), {name})")


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
              from_function, cross_device_ops, loss, raising, in_one_replica)
