"""Operations of random programs on variables: creating, reading and writing them, in replicas and outside."""

from __future__ import annotations

from collections.abc import Callable

from refdist.conformance.random_programs.writer import (
    AGGREGATIONS,
    ASSIGNS,
    DTYPES,
    RARE,
    SCATTERS,
    SERVERS,
    Variable,
    Writer,
)


def created(w: Writer) -> None:
    """Creates a variable and reads it."""
    aggregation = w.pick(*AGGREGATIONS)
    synchronization = w.pick("AUTO", "AUTO", "AUTO", "ON_READ", "ON_READ", "ON_WRITE" if w.chance(3) else "AUTO",
                             "NONE" if w.chance(6) else "AUTO")
    shape, dtype = w.shape(), w.pick(*DTYPES, *RARE) if w.chance(2) else "float32"
    more = "" if synchronization == "AUTO" else f", synchronization=tf.VariableSynchronization.{synchronization}"
    more += ", trainable=False" if w.chance(8) else ""
    given_dtype = "" if dtype in ("float32", "int32") else f", dtype=tf.{dtype}"
    kind = f"{aggregation}{'' if synchronization == 'AUTO' else ' ' + synchronization}" \
           f"{f' of {dtype}' if dtype in RARE else ''}"
    where = w.pick("in the scope", "in the scope", "in the scope", "in the scope", "outside of the scope")
    w.operation(f"a variable of {kind} created {where}")
    name = w.name("v")
    creation = f"{name} = tf.Variable({w.array(shape, dtype)}{given_dtype}, " \
               f"aggregation=tf.VariableAggregation.{aggregation}{more})"
    w.say(f"with strategy.scope():\n    {creation}\n" if where == "in the scope" else creation)
    kind += "" if where == "in the scope" else " outside of the scope"
    w.variables.append(Variable(name, shape, dtype, kind))
    _read(w, name)


def converted(w: Writer) -> None:
    """Creates a variable with another dtype than that of the array it begins with."""
    shape, dtype, other = w.shape(), w.pick(*DTYPES, *RARE, "bool"), w.pick(*DTYPES, *RARE, "bool")
    array = w.pick("array", "NumPy array")
    w.operation(f"a variable of {other} from {'an' if array == 'array' else 'a'} {array} of {dtype}")
    name = w.name("v")
    value = w.constant(shape, dtype) if array == "array" else f'numpy.array({w.array(shape, dtype)}, "{dtype}")'
    w.say(f"with strategy.scope():\n    {name} = tf.Variable({value}, dtype=tf.{other})\n", f"{name}.read_value()")


def _read(w: Writer, name: str) -> None:
    """Reads a variable in one of the ways there are; what each replica reads, in nearly all of them."""
    how = w.pick("copies", "copies", "value", "local results", "replicas")
    if w.kind == SERVERS:
        w.say(f"{name}[...]")
    elif how == "value":
        w.say(w.pick(f"{name}.read_value()", f"{name}.numpy()", f"{name} + 0"))
    elif how == "local results":
        w.say(f"strategy.experimental_local_results({name})")
    else:
        w.say(f"{name}.read_value()", w.run(f"return {name}.read_value()"))


def read(w: Writer) -> None:
    """A call with a variable as its argument."""
    v, reduce_op = w.variable(), w.pick('"SUM"', '"MEAN"')
    calls: dict[str, Callable[[], str]] = {
        "reduce": lambda: f"strategy.reduce({reduce_op}, {v.name}, axis=None)",
        "gather": lambda: f"strategy.gather({v.name}, axis=0)",
        "args": lambda: w.run("return x + x", arguments="x", passed=f", args=({v.name},)"),
        "read_var": lambda: f"strategy.extended.read_var({v.name})",
        "all_reduce": lambda: w.run(f"return replica().all_reduce({reduce_op}, {v.name})"),
        "all_gather": lambda: w.run(f"return replica().all_gather({v.name}, axis=0)")}
    how = w.pick(*calls)
    w.operation(f"{how} of a variable of {v.kind}")
    w.say(calls[how]())


def written(w: Writer) -> None:
    """A write outside of replicas."""
    v, method = w.variable(), w.pick(*ASSIGNS)
    value = w.pick("a list", "a list", "an array", "a distributed value", "an array of another shape" if w.chance(3)
                   else "a list", "an array of another dtype" if w.chance(3) else "an array")
    source = {"a list": lambda: w.array(v.shape, v.dtype),
              "an array": lambda: f"tf.constant({w.array(v.shape, v.dtype)}, tf.{v.dtype})",
              "a distributed value": lambda: w.pick(*(name for name, _ in w.values)),
              "an array of another shape": lambda: f"tf.constant({w.array((*v.shape, 2), v.dtype)}, tf.{v.dtype})",
              "an array of another dtype": lambda: f"tf.constant({w.array(v.shape, 'bool')})"}[value]()
    where = w.pick("outside", "outside", "in the scope", "in merge_call" if not w.several else "outside")
    w.operation(f"{method} {where}, {value}, {v.kind}")
    call = f"{v.name}.{method}({source})"
    if where == "outside":
        w.say(f"_ = {call}")
    elif where == "in the scope":
        w.say(f"with strategy.scope():\n    _ = {call}\n")
    else:
        merge = w.function(call, arguments="strategy", kind="merge_")
        w.say(f"_ = {w.run(f'replica().merge_call({merge})')}")
    _read(w, v.name)


def written_in_replicas(w: Writer) -> None:
    v, method = w.variable(), w.pick(*ASSIGNS)
    value = w.pick(*["values of their own"] * 4, *["equal values"] * 3, "a number", "a shared array",
                   "shapes that differ" if not w.several else "equal values", "another dtype", "a distributed value")
    if value == "a shared array":
        w.operation("a shared array")
        w.say(f"shared = tf.constant({w.array(v.shape, v.dtype)}, tf.{v.dtype})")
    own: dict[str, Callable[[], str]] = {
        "values of their own": lambda: w.each(v.shape, v.dtype),
        "equal values": lambda: f"tf.constant({w.array(v.shape, v.dtype)}, tf.{v.dtype})",
        "a number": lambda: w.array((), v.dtype),
        "a shared array": lambda: "shared",
        "shapes that differ": lambda: f"tf.constant({w.per_rank(1, [1])}, tf.{v.dtype})",
        "another dtype": lambda: w.each(v.shape, "bool"),
        "a distributed value": lambda: w.pick(*(name for name, _ in w.values))}
    source = own[value]()
    w.operation(f"{method} in replicas, {value}, {v.kind}")
    returns = w.pick("", "", "return ")
    w.say(f"{'' if returns else '_ = '}{w.run(f'{returns}{v.name}.{method}({source})')}")
    _read(w, v.name)


def written_in_one_replica(w: Writer) -> None:
    if w.several:
        return
    v = w.variable()
    w.operation(f"assign in one replica, {v.kind}")
    condition = f"if rank() == {w.number(0, w.count - 1)}:"
    w.say(f"_ = {w.run(condition, f'    {v.name}.assign({w.each(v.shape, v.dtype)})')}")
    _read(w, v.name)


def scattered(w: Writer) -> None:
    """Writes rows, in replicas or outside."""
    if v := w.variable_with_rows():
        _scattered(w, v)


def scattered_of_any_dtype(w: Writer) -> None:
    """Writes rows of a new variable, whose dtype no other operation needs."""
    dtype = w.pick(*DTYPES, *RARE)
    v = Variable(w.name("v"), (3, 2), dtype, f"NONE of {dtype}")
    w.operation(f"a variable of {v.kind} created in the scope")
    w.say(f"with strategy.scope():\n    {v.name} = tf.Variable({w.array(v.shape, dtype)}, dtype=tf.{dtype})\n")
    _scattered(w, v)


def _scattered(w: Writer, v: Variable) -> None:
    method = w.pick(*SCATTERS)
    where = w.pick("outside", "in replicas", "in replicas", "in the scope")
    count, rows = w.number(1, 3), v.shape[0]
    wrong = w.chance(6)
    last = rows + 2 if wrong else rows - 1
    indices = [w.number(0, last) for _ in range(count)]
    shape = (count, *v.shape[1:])
    values = w.each(shape, v.dtype) if where == "in replicas" and w.chance(2) else \
        f"tf.constant({w.array(shape, v.dtype)}, tf.{v.dtype})"
    kind = "values of their own" if "rank" in values else "equal values"
    w.operation(f"{method} {where}, {kind}{' with an index too large' if max(indices) >= rows else ''}"
                f"{' with an index twice' if len(set(indices)) < count else ''}, {v.kind}")
    call = f"{v.name}.{method}(tf.IndexedSlices({values}, tf.constant({indices})))"
    if where == "in replicas":
        w.say(f"_ = {w.run(call)}")
    else:
        w.say(f"_ = {call}" if where == "outside" else f"with strategy.scope():\n    _ = {call}\n")
    _read(w, v.name)


def rows_read(w: Writer) -> None:
    if v := w.variable_with_rows():
        call = w.pick(f"{v.name}.gather_nd([[0]])", f"{v.name}.sparse_read([0])", f"{v.name}[0]")
        w.operation(f"{call.removeprefix(v.name).partition('(')[0]} of a variable of {v.kind}")
        w.say(call, w.run(f"return {call}"))


def updated(w: Writer) -> None:
    """extended.update and its kin, outside or in a function that merge_call calls."""
    v, method = w.variable(), w.pick(*ASSIGNS)
    what = w.pick("an array", "an array", "a number", "a distributed value", "a reduced value", "keywords")
    where = w.pick("outside", "outside", "in the scope", "in merge_call" if not w.several else "outside")
    grouped = w.pick("", "", ", group=False")
    returns = w.pick("", "return ", "return copy + 1; ")
    function = w.function(*f"{returns}copy.{method}(value)".split("; ") if "; " not in returns else
                          (f"copy.{method}(value)", "return copy + 1"), arguments="copy, value", kind="update_")
    args, name = "", v.name
    w.operation(f"update {where} with {what}{' ungrouped' if grouped else ''}, {v.kind}")
    array = f"tf.constant({w.array(v.shape, v.dtype)}, tf.{v.dtype})"
    if what == "keywords":
        args = f'kwargs={{"value": {array}}}'
    elif what == "a reduced value":
        contributed = w.function(f"return {w.each(v.shape, v.dtype)}")
        args = f'args=(strategy.extended.reduce_to("SUM", strategy.run({contributed}), {name}),)' \
            if where != "in merge_call" else f"args=({array},)"
    else:
        value = {"an array": array, "a number": w.array((), v.dtype)}.get(what) or w.pick(*(x for x, _ in w.values))
        args = f"args=({value},)"
    call, result = f"strategy.extended.update({name}, {function}, {args}{grouped})", w.name("r")
    if where == "in merge_call":
        merge = w.function(f"return {call}", arguments="strategy", kind="merge_")
        w.say(f"{result} = {w.run(f'return replica().merge_call({merge})')}")
    else:
        w.say(f"{result} = {call}" if where == "outside" else f"with strategy.scope():\n    {result} = {call}\n")
    w.say(*([result] if returns and not (where == "in merge_call" and grouped) else []))
    _read(w, name)


def updated_in_replicas(w: Writer) -> None:
    v = w.variable()
    if w.several:
        return
    w.operation(f"update in replicas, {v.kind}")
    function = w.function(f"copy.{w.pick(*ASSIGNS)}(value)", arguments="copy, value", kind="update_")
    value = w.pick(w.each(v.shape, v.dtype), f"tf.constant({w.array(v.shape, v.dtype)}, tf.{v.dtype})")
    w.say(f"_ = {w.run(f'strategy.extended.update({v.name}, {function}, args=({value},))')}")
    _read(w, v.name)


def update_non_slot(w: Writer) -> None:
    v = w.variable()
    w.operation(f"update_non_slot, {v.kind}")
    devices = w.name("devices")
    function = w.function("return value * 2.0", arguments="value", kind="update_")
    value = w.pick("3.0", "tf.constant([1.0, 2.0])", w.values[0][0])
    w.say(f"with strategy.scope():\n    {devices} = strategy.extended.non_slot_devices([{v.name}])\n",
          f"strategy.extended.update_non_slot({devices}, {function}, args=({value},))")


def colocated(w: Writer) -> None:
    v = w.variable()
    w.operation(f"a variable colocated with one of {v.kind}")
    name = w.name("v")
    w.say(f"with strategy.scope(), strategy.extended.colocate_vars_with({v.name}):\n    {name} = tf.Variable(2.0)\n",
          f"{name}.assign_add(1.0)", f"strategy.experimental_local_results({name})",
          f"strategy.extended.variable_created_in_scope({v.name})",
          f"strategy.extended.value_container({v.name}) is {v.name}")


OPERATIONS = (written, written, written, written_in_replicas, written_in_replicas, written_in_replicas,
              written_in_one_replica, scattered, scattered, scattered_of_any_dtype, rows_read, updated, updated,
              updated_in_replicas, update_non_slot, colocated, converted, read, read)
