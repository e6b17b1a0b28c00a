"""Implementations in other languages or processes: a program that speaks JSON, one object on each line.

To the testee: {"id": 1, "strategy": ["mirrored", 2], "program": [...], "then": [...] or null}
From it, first: {"hello": "name", "capabilities": ["central", ...]}
then for each:  {"id": 1, "value": V, "then": V}  or  {"id": 1, "error": "value", "message": "...", "then": V}

V is a result as `language.shown` returns it: an array is [dtype, nested list].  docs/testing-your-implementation.md has
the schema and a worked testee.
"""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from refdist.conformance.old.case import Case, Verdict, differences

LIMIT = 60.0  # seconds for a case


class Testee:
    """A process that runs programs.

    Args:
        command: what starts it.

    Raises:
        RuntimeError: its first line is not {"hello": NAME, ...}.
    """

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        hello = self._answer()
        if "hello" not in hello:
            raise RuntimeError(f"{command}: the first line is {hello}, not {{\"hello\": NAME}}")
        self.name = hello["hello"]
        self.capabilities = frozenset(hello.get("capabilities", ()))
        self._count = 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=LIMIT)
        except queue.Empty:
            return {"crash": f"no answer within {LIMIT:.0f} s"}
        try:
            found = json.loads(line)
        except ValueError:
            return {"crash": "the testee has ended" if not line else f"not JSON: {line[:100]!r}"}
        return found if isinstance(found, dict) else {"crash": f"not a JSON object: {line[:100]!r}"}

    def judge(self, case: Case) -> Verdict:
        """Sends a case and compares the answer."""
        missing = case.needs - self.capabilities
        if missing:
            return Verdict(case, "skipped", f"needs {', '.join(sorted(missing))}")
        self._count += 1
        question = {"id": self._count, "strategy": case.strategy, "program": case.program,
                    "then": case.then[0] if case.then else None}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            return Verdict(case, "errored", "the testee has ended")
        return self._compare(case, self._answer())

    def _compare(self, case: Case, answer: Mapping[str, object]) -> Verdict:
        wanted = f"an error: {' or '.join(case.fails)}" if case.fails else case.gives
        if answer.get("id") != self._count:
            lost = f"the id of the answer is not {self._count}: {answer}"
            return Verdict(case, "errored", str(answer.get("crash", lost)), wanted)
        if "error" in answer:
            if answer["error"] not in case.fails:
                return Verdict(case, "failed", f"raised {answer['error']}: {answer.get('message', '')}", wanted)
        elif case.fails:
            return Verdict(case, "failed", "nothing was raised", wanted, answer.get("value"))
        else:
            difference = next(differences(case.gives, arrays(answer.get("value")), bitwise=False), None)
            if difference:
                return Verdict(case, "failed", difference, wanted, answer.get("value"))
        if case.then is not None:
            difference = next(differences(case.then[1], arrays(answer.get("then")), bitwise=False), None)
            if difference:
                return Verdict(case, "failed", f"afterwards {difference}", case.then[1], answer.get("then"))
        return Verdict(case, "passed")


def arrays(value: object) -> Any:
    """A result with its arrays: [dtype, nested list] where dtype is a name of NumPy's."""
    if isinstance(value, dict):
        return {key: arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and value[0] in np.sctypeDict:
            return np.array(value[1], value[0])
        return [arrays(item) for item in value]
    return value
