"""A worked testee: a tiny implementation of its own, without refdist, that speaks the suite's JSON.

It knows mirrored strategies and the collectives, and answers "unsupported" to the rest.  Replicas run in
threads that wait for each other at a barrier.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np

here = threading.local()
NUMBERS = {int: np.int32, float: np.float32}


class Run:
    """The replicas of one run, in threads; `meet` waits for all of them and returns what each contributed."""

    def __init__(self, count: int) -> None:
        self.count, self.over = count, False
        self.contributions: list[Any] = [None] * count
        self.barrier = threading.Barrier(count)

    def meet(self, kind: tuple[object, ...], value: object) -> list[Any]:
        self.contributions[here.replica] = (kind, value)
        try:
            if self.over:
                self.barrier.abort()
            self.barrier.wait(10)
        except threading.BrokenBarrierError:
            raise RuntimeError("a replica did not come to the rendezvous") from None
        found = list(self.contributions)
        self.barrier.wait(10)
        if len({one[0] for one in found}) > 1:
            raise ValueError(f"the calls of the replicas differ: {found}")
        return [one[1] for one in found]


def array(value: object, dtype: str | None) -> np.ndarray[Any, Any]:
    found = np.array(value, dtype)
    return found if dtype else found.astype({"i": np.int32, "f": np.float32}.get(found.dtype.kind, found.dtype))


def do(program: object, names: dict[str, object], count: int) -> Any:
    if not isinstance(program, list):
        return program
    name, *rest = program
    if name == "const":
        return array(*rest)
    if name == "pick":
        return do(rest[0][here.replica], names, count)
    if name == "get":
        return names[rest[0]]
    if name == "let":
        names[rest[0]] = do(rest[1], names, count)
        return None
    if name == "seq":
        return [do(one, names, count) for one in rest][-1]
    if name in ("add", "mul"):
        a, b = (do(one, names, count) for one in rest)
        return a + b if name == "add" else a * b
    if name == "replica_id":
        return np.int32(here.replica)
    if name == "run":
        return replicas(rest[0], [do(one, names, count) for one in rest[1:]], names, count)
    if name == "only":
        return do(rest[1] if here.replica == rest[0] else rest[2], names, count)
    if name == "all_reduce":
        value = do(rest[1], names, count)
        if not isinstance(value, np.ndarray | np.generic):
            raise NotImplementedError("nests")
        if str(rest[0]).upper() not in ("SUM", "MEAN") or value.dtype.kind == "b":
            raise ValueError(rest[0])
        kind = ("all_reduce", str(rest[0]).upper(), value.shape, str(value.dtype))
        parts: list[Any] = here.run.meet(kind, value) if count > 1 else [value]
        total = np.asarray(np.sum(np.stack(parts), axis=0), value.dtype)
        return total if kind[1] == "SUM" else (total / count).astype(value.dtype if value.dtype.kind == "f" else float)
    raise NotImplementedError(name)


def replicas(body: object, arguments: list[object], names: dict[str, object], count: int) -> object:
    run, failed = Run(count), list[Exception]()
    results: list[object] = [None] * count

    def replica(i: int) -> None:
        here.replica, here.run = i, run
        mine = {str(j): value["replicas"][i] if isinstance(value, dict) else value for j, value in enumerate(arguments)}
        try:
            results[i] = do(body, {**names, **mine}, count)
        except Exception as error:
            failed.append(error)
        run.over = True
        if failed or run.barrier.n_waiting:
            run.barrier.abort()

    threads = [threading.Thread(target=replica, args=(i,)) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise min(failed, key=lambda error: isinstance(error, RuntimeError))
    return results[0] if count == 1 else {"replicas": results}


def shown(value: object) -> object:
    if isinstance(value, dict):
        return [shown(one) for one in value["replicas"]]
    if isinstance(value, list):
        return [shown(one) for one in value]
    return [str(value.dtype), value.tolist()] if isinstance(value, np.ndarray | np.generic) else value


def kind(error: Exception) -> str:
    for known, name in ((NotImplementedError, "unsupported"), (RuntimeError, "context"), (TypeError, "type"),
                        (LookupError, "lookup"), (ValueError, "value")):
        if isinstance(error, known):
            return name
    return "crash"


if __name__ == "__main__":
    print(json.dumps({"hello": "worked testee", "capabilities": []}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {"id": question["id"]}
        for part, field in (("program", "value"), ("then", "then")):
            try:
                answer[field] = shown(do(question[part], {}, question["strategy"][1]))
            except Exception as error:
                answer |= {"error": kind(error), "message": str(error)} if part == "program" else {}
        print(json.dumps(answer), flush=True)
