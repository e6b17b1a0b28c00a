"""A testee for refdist's conformance suite, to begin with: it answers cases, one JSON object on each line.

Put calls of your implementation in place of the first part. The second part carries out the steps of a case; what it
does not know yet it answers with `skip`, and the end of a run lists that: there you see what comes next.
"""
import json
import math
import sys
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor

HAS = ["OneDevice", "Mirrored", "Central", "all_reduce"]  # cases that need anything else are not sent


class Failure(Exception):
    """What goes wrong: a kind (value, type, context, ...; "skip": this testee lacks something), and a message."""


# The implementation: arrays of float32 and int32 with one dimension or none, and replicas that are threads.
class Array:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape = dtype, shape
        self.data = array("f", data).tolist() if dtype == "float32" else [(x + 2**31) % 2**32 - 2**31 for x in data]


def constant(value):
    numbers = value if isinstance(value, list) else [value]
    types = {type(number) for number in numbers}
    if types not in ({int}, {float}):
        raise Failure("skip", "arrays of other values")
    return Array("int32" if types == {int} else "float32", [len(numbers)] if value is numbers else [], numbers)


class Run:
    """The replicas of one `run`. Each comes to every call with an array, and with None when it has ended."""

    def __init__(self, count, function, args):
        self.function, self.args, self.errors = function, args, []
        self.given, self.barrier, self.over = [None] * count, threading.Barrier(count, self.combine), False

    def combine(self):
        arrays = [contribution for contribution in self.given if contribution]
        self.over = not arrays
        if len(arrays) < len(self.given):
            self.answer = Failure("context", "another replica does not come to this call")
        elif any((array.dtype, array.shape) != (arrays[0].dtype, arrays[0].shape) for array in arrays):
            self.answer = Failure("value", "the dtypes or shapes of the replicas differ")
        else:
            sums = [sum(column) for column in zip(*(contribution.data for contribution in arrays), strict=True)]
            self.answer = Array(arrays[0].dtype, arrays[0].shape, sums)

    def all_reduce(self, i, op, value):
        if op != "SUM":
            raise Failure("skip", "reduce ops other than SUM")
        self.given[i] = value if isinstance(value, Array) else constant(value)
        self.barrier.wait()
        if isinstance(self.answer, Failure):
            raise self.answer
        return self.answer

    def replica(self, i):
        try:
            return self.function(i, self, [arg[i] if isinstance(arg, tuple) else arg for arg in self.args])
        except Exception as error:
            self.errors.append(error)
        finally:
            self.given[i] = None
            while not self.over:
                self.barrier.wait()


def run(count, function, args=()):
    started = Run(count, function, args)
    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(started.replica, range(count)))
    for error in sorted(started.errors, key=lambda error: error.args[:1] != ("skip",)):
        raise error
    if not all(isinstance(result, Array) for result in results):
        raise Failure("skip", "replicas that return anything but arrays")
    return results[0] if count == 1 else tuple(results)  # a tuple is a value of several replicas


# The steps of a case. `i` is the number of the replica that carries them out, in a `run`; both are None outside.
class Program:
    def __init__(self, replicas):
        self.replicas = replicas

    def steps(self, steps, values, i=None, run=None):
        for step in steps:
            known(step, "call", "method", "get", "operator", "args", "kwargs", "id", "is")
            kwargs = step.get("kwargs", {})
            args = [self.value(tree, values) for tree in [*step.get("args", []), *kwargs.values()]]
            kind = next(kind for kind in ("call", "method", "get", "operator") if kind in step)
            result = self.step(" ".join([kind, str(step[kind]), *kwargs]), args, i, run)
            if "is" in step and as_result(result) != step["is"]:
                raise Exception(f"{as_result(result)} in place of {step['is']}")
            values[step.get("id")] = result

    def step(self, name, args, i, running):
        if name == "call tf.constant" and len(args) == 1:
            return constant(args[0])
        if name == "call tf.distribute.get_replica_context" and running:
            return running
        if name == "method all_reduce" and args[0] is running and len(args) == 3:
            return running.all_reduce(i, *args[1:])
        if name == "get replica_id_in_sync_group" and args[0] is running:
            return i
        if name == "operator int" and type(args[0]) is int:
            return args[0]
        if name in ("method run", "method run args") and args[0] is self and not running:
            if not isinstance(args[-1], list) and len(args) == 3:
                raise Failure("value", "the arguments are not in a list")
            return run(self.replicas, *args[1:])
        raise Failure("skip", name)

    def value(self, tree, values):
        kind, content = next(iter(tree.items())) if isinstance(tree, dict) else ("int", tree)
        if kind == "ref":
            return values[content]
        if kind in ("int", "float", "ints", "floats"):
            return content
        if kind in ("list", "tuple"):
            return [self.value(item, values) for item in content]
        if kind == "function":
            return lambda i, run, args: self.call(content["bodies"], dict(values), i, run, args)
        if tree == {"name": "strategy"}:
            return self
        raise Failure("skip", f"the value {kind}")

    def call(self, bodies, values, i, run, args):
        body = next(body for body in bodies if body.get("replica", i) == i)
        if "replica" in body:
            bodies.remove(body)
        known(body, "replica", "parameters", "steps", "returns")
        values.update(zip(body.get("parameters", []), args, strict=True))
        self.steps(body.get("steps", []), values, i, run)
        return self.value(body.get("returns"), values)


def known(description, *keys):
    for key in description:
        if key not in keys:
            raise Failure("skip", f"the key {key!r}")


def as_result(value):
    """A value as a result."""
    if isinstance(value, tuple):
        return {"per_replica": [as_result(part) for part in value]}
    if isinstance(value, Array) and all(math.isfinite(x) and str(x) != "-0.0" for x in value.data):
        return {"dtype": value.dtype, "shape": value.shape, "data": value.data}
    if type(value) is int:
        return {"int": value}
    raise Failure("skip", f"results such as {value}")


def answer(case):
    if "programs" not in case:
        return {"skip": case["only_python"]}
    program, values, pairs = Program(case["strategy"]["replicas"]), {}, []
    for statement in case["programs"][0]:
        number = statement["statement"]
        try:
            program.steps(statement.get("steps", []), values)
            if number in case["observe"]:
                pairs.append([number, as_result(program.value(statement.get("value"), values))])
        except Exception as error:
            kind, message = error.args if isinstance(error, Failure) else ("crash", repr(error))
            if kind == "skip":
                return {"skip": message}
            pairs.append([number, {"error": kind, "message": message}])
            if number not in case["observe"]:
                break
    return {"answers": [pairs]}


if __name__ == "__main__":
    sys.stdin.readline()  # what the suite says of itself
    print(json.dumps({"protocol": 1, "name": "mine", "version": "0.1", "has": HAS}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"id": question["id"], **answer(question["case"])}), flush=True)
