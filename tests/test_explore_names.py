"""`refdist.explore`: shared objects that functions reach by names that are computed, and values that are equal."""

from __future__ import annotations

import builtins
import dataclasses
import decimal
import functools
import io
import re
import sys
import types
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from schedules import Body, all_outcomes, explored_outcomes, program, twice

import refdist
from refdist.coordinator import ClusterCoordinator

STATE = types.ModuleType("state_of_a_program")
sys.modules["state_of_a_program"] = STATE
NAME = "count"
ROWS = 0


def get(module: Any, name: str) -> Any:
    return getattr(module, name)


def counts(read: str, write: str, inside: str = "") -> Body:
    """Functions that read a count, make an access, and write the count plus one; all in one function of this module."""
    names = globals()
    source = f"""import importlib, operator
def body(c, v):
    global ROWS
    ROWS = STATE.count = 0
    module, name = STATE, NAME
    def step(k):
        {inside}
        rows = {read}
        v.assign_add(1.0)
        {write}
    twice(c, step)
    return ROWS, STATE.count
"""
    exec(compile(source, __file__, "exec"), names)
    body: Body = names.pop("body")
    return body


WRITTEN_OUT = [
    counts("globals()['ROWS']", "globals()['ROWS'] = rows + 1"),
    counts("globals()['ROWS']", "globals()['ROWS'] += (rows + 1 - globals()['ROWS'])"),
    counts("sys.modules['state_of_a_program'].count", "sys.modules['state_of_a_program'].count = rows + 1"),
    counts("importlib.import_module('state_of_a_program').count",
           "importlib.import_module('state_of_a_program').count = rows + 1"),
    counts("here.ROWS", "here.ROWS = rows + 1", "here = sys.modules[__name__]"),
    counts("getattr(STATE, 'count', None)", "setattr(STATE, 'count', rows + 1)"),
    counts("operator.attrgetter('count')(STATE)", "vars(STATE)['count'] = rows + 1"),
    counts("STATE.__dict__['count']", "STATE.__setattr__('count', rows + 1)"),
    counts("bump(module)", "module.count = rows + 1", "bump = lambda given: given.count"),
    counts("(lambda given: given.count)(STATE)", "(lambda given: setattr(given, 'count', rows + 1))(STATE)"),
]
ALIASES = getattr, setattr
COMPUTED = [
    ("globals", counts("globals()[name.replace('count', 'ROWS')]", "globals()['ROWS'] = rows + 1")),
    ("getattr", counts("getattr(STATE, name)", "STATE.count = rows + 1")),
    ("getattr", counts("get(module, name)", "setattr(module, name, rows + 1)")),
    ("getattr", counts("getattr(STATE, name or 'other')", "setattr(STATE, name or 'other', rows + 1)")),
    ("getattr, which is ALIASES[0]", counts("by_name(STATE, name)", "set_by_name(STATE, name, rows + 1)",
                                        "by_name, set_by_name = ALIASES")),
    ("__dict__", counts("STATE.__dict__[name]", "STATE.__dict__[name] = rows + 1")),
    ("attrgetter", counts("operator.attrgetter('__name__', name)(STATE)[1]", "setattr(STATE, name, rows + 1)")),
    ("modules", counts("sys.modules['state_' + name.replace('count', 'of_a_program')].count",
                      "sys.modules[module.__name__].count = rows + 1")),
    ("modules", counts("local.modules[module.__name__].count", "local.modules[module.__name__].count = rows + 1",
                       "local = sys")),
    ("import_module", counts("importlib.import_module(module.__name__).count",
                            "importlib.import_module(module.__name__).count = rows + 1")),
    ("eval", counts("eval('ROWS')", "exec('global ROWS; ROWS = rows + 1', globals(), {'rows': rows})")),
    ("__globals__", counts("get.__globals__['ROWS']", "get.__globals__['ROWS'] = rows + 1")),
    ("getattr", counts("getattr(get, '__globals__')['ROWS']", "getattr(get, '__globals__')['ROWS'] = rows + 1")),
    ("_getframe", counts("sys._getframe().f_globals['ROWS']", "sys._getframe().f_globals['ROWS'] = rows + 1")),
]


@pytest.mark.parametrize("body", WRITTEN_OUT)
def test_names_that_are_written_out_are_followed(body: Body) -> None:
    expected = all_outcomes(program(body))
    assert len(expected) == 2
    assert explored_outcomes(program(body)) == expected
    [finding] = refdist.explore(program(body)).findings
    assert finding.title == "SHARED OBJECT"


@pytest.mark.parametrize(("asks", "body"), COMPUTED)
def test_where_a_name_is_computed_nothing_is_proved_and_the_line_is_named(asks: str, body: Body) -> None:
    report = refdist.explore(program(body))
    assert not report.proved
    [reason] = report.reasons
    assert reason.startswith("what is shared under a name that is computed was not followed; write the name out: ")
    assert re.search(rf"\W{re.escape(asks)}( \({re.escape(__file__)}:\d+\))?(,|$)", reason), reason


def test_attributes_of_objects_and_of_libraries_may_have_computed_names() -> None:
    class Model:
        rate = 1.0

        def eval(self) -> Model:
            return self

        def modules(self) -> list[Model]:
            return [self]

    def body(c: ClusterCoordinator, v: Any) -> object:
        model, name = Model(), NAME.replace("count", "rate")

        def step(k: int) -> None:
            [same] = model.eval().modules()
            added = getattr(np, NAME.replace("count", "add"))(np.stack([1.0]), vars(Model)[name])
            v.assign_add(getattr(same, name) + float(added[0]) if hasattr(model, name) else 0.0)

        twice(c, step)
        return float(v)

    report = refdist.explore(program(body))
    assert report.proved and report.classes == 1, report.reasons


@dataclasses.dataclass
class Rows:
    count: int = 0


class Hidden:
    __slots__ = ("__count",)

    def __init__(self) -> None:
        self.__count = 0

    def raised(self, before: int) -> None:
        self.__count = before + 1

    @property
    def count(self) -> int:
        return self.__count


class Kinds(type):
    rows: list[int]


class Kind(metaclass=Kinds):
    __registry__: ClassVar[dict[int, int]] = {}


def in_builtins(c: ClusterCoordinator, v: Any) -> object:
    builtins.rows = 0  # type: ignore[attr-defined]

    def step(k: int) -> None:
        before = builtins.rows  # type: ignore[attr-defined]
        v.assign_add(1.0)
        builtins.rows = before + 1  # type: ignore[attr-defined]

    twice(c, step)
    return builtins.rows  # type: ignore[attr-defined]


def false_or_zero(c: ClusterCoordinator, v: Any) -> object:
    state: dict[str, Any] = {"last": 0}

    def step(k: int) -> None:
        v.assign_add(1.0)
        state["last"] = [False, -0.0][k]

    twice(c, step)
    return repr(state["last"])


def negated(c: ClusterCoordinator, v: Any) -> object:
    state = [0.0]

    def step(k: int) -> None:
        before = state[0]
        v.assign_add(1.0)
        state[0] = -before

    twice(c, step)
    return state[0]


def one_or_true(c: ClusterCoordinator, v: Any) -> object:
    state: list[Any] = [1]

    def step(k: int) -> None:
        before = repr(state[0])
        v.assign_add(1.0)
        state[0] = {"1": True, "True": 1.0}.get(before, 1)

    twice(c, step)
    return repr(state[0])


def a_set(c: ClusterCoordinator, v: Any) -> object:
    rows: set[int] = set()

    def step(k: int) -> None:
        before = len(rows)
        v.assign_add(1.0)
        rows.add(before)

    twice(c, step)
    return rows


def a_dataclass(c: ClusterCoordinator, v: Any) -> object:
    rows = Rows()

    def step(k: int) -> None:
        before = rows.count
        v.assign_add(1.0)
        rows.count = before + 1

    twice(c, step)
    return rows


def turned_round(c: ClusterCoordinator, v: Any) -> object:
    rows = bytearray(b"ab")

    def step(k: int) -> None:
        before = rows[0]
        v.assign_add(1.0)
        if rows[0] == before:
            rows.reverse()

    twice(c, step)
    return rows.decode()


def another_function(c: ClusterCoordinator, v: Any) -> object:
    choose = {"now": max}

    def step(k: int) -> None:
        v.assign_add(1.0)
        if k:
            choose["now"] = min
        else:
            v.assign_add(10.0 * choose["now"](1, 2))

    twice(c, step)
    return float(v)


def a_decimal(c: ClusterCoordinator, v: Any) -> object:
    rows = {"count": decimal.Decimal(0)}

    def step(k: int) -> None:
        before = rows["count"]
        v.assign_add(1.0)
        rows["count"] = before + 1

    twice(c, step)
    return str(rows["count"])


def hidden_slots(c: ClusterCoordinator, v: Any) -> object:
    rows = Hidden()

    def step(k: int) -> None:
        before = rows.count
        v.assign_add(1.0)
        rows.raised(before)

    twice(c, step)
    return rows.count


def of_a_metaclass(c: ClusterCoordinator, v: Any) -> object:
    Kinds.rows = []
    Kind.__registry__.clear()

    def step(k: int) -> None:
        before = len(Kind.rows)
        v.assign_add(1.0)
        Kind.rows[before:] = [0]
        Kind.__registry__[before] = 0

    twice(c, step)
    return len(Kind.rows), len(Kind.__registry__)


def of_a_partial(c: ClusterCoordinator, v: Any) -> object:
    call: Any = functools.partial(print)
    call.rows = 0

    def step(k: int) -> None:
        before = call.rows
        v.assign_add(1.0)
        call.rows = before + 1

    twice(c, step)
    return call.rows


def in_a_generator(c: ClusterCoordinator, v: Any) -> object:
    rows = (row for row in [1.0, 1.0, 1.0, 5.0, 7.0])
    next(rows)

    def step(k: int) -> None:
        if k:
            next(rows)
        v.assign_add(1.0)
        v.assign_add(next(rows) * (10 + k))

    twice(c, step)
    return float(v)


def in_memory(c: ClusterCoordinator, v: Any) -> object:
    file = io.StringIO("0")

    def step(k: int) -> None:
        before = int(file.getvalue())
        v.assign_add(1.0)
        file.seek(0)
        file.write(str(before + 1))
        file.seek(0)

    twice(c, step)
    return file.getvalue()


@pytest.mark.parametrize("body", [
    in_builtins, false_or_zero, negated, one_or_true, a_set, a_dataclass, turned_round, another_function, a_decimal,
    hidden_slots, of_a_metaclass, of_a_partial, in_a_generator, in_memory])
def test_no_outcome_is_missed_wherever_it_is_kept_and_however_like_another(body: Body) -> None:
    expected = all_outcomes(program(body))
    assert len(expected) > 1
    assert explored_outcomes(program(body)) == expected


def test_a_result_that_cannot_be_looked_into_is_named_and_nothing_is_proved() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        twice(c, lambda k: v.assign_add(1.0))
        return memoryview, re.compile("a"), iter([1])

    assert refdist.explore(program(body)).reasons == ["what the program returned was not looked into: list_iterator"]
    assert refdist.explore(program(body), check=lambda result: True).proved


def test_a_nan_is_equal_to_itself_in_every_dtype() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        twice(c, lambda k: v.assign_add(1.0))
        return [np.full(2, np.nan, dtype) for dtype in (np.float16, np.float32, np.complex64, ml_dtypes.bfloat16)]

    assert refdist.explore(program(body)).proved


def test_attributes_in_patterns_are_followed() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        STATE.count = 0  # type: ignore[attr-defined]

        def matching() -> None:
            v.assign_add(1.0)
            match STATE:
                case object(count=seen):
                    v.assign_add(10.0 * seen)

        def counting() -> None:
            v.assign_add(1.0)
            STATE.count = 1  # type: ignore[attr-defined]

        c.schedule(matching)
        c.schedule(counting)
        c.join()
        return float(v)

    expected = all_outcomes(program(body))
    assert len(expected) == 2
    assert explored_outcomes(program(body)) == expected


class Model:
    def __init__(self) -> None:
        self.modes: list[str] = []

    def eval(self) -> Model:
        return self


def test_an_assertion_that_pytest_rewrites_leads_nowhere() -> None:
    def body(c: ClusterCoordinator, v: Any) -> None:
        model = Model()

        def step(k: int) -> None:
            assert model.eval() is model
            v.assign_add(1.0)
        twice(c, step)

    report = refdist.explore(program(body))
    assert report.proved, str(report)
