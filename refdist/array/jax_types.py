"""What JAX's arrays are to the other replicas, for the check `types`.

JAX shows each operation to the trace that is current.  While the check is on, a replica has one that evaluates as JAX
does outside of all traces, and then gives the results the types that the same operations of NumPy would give.  A
function that JAX has compiled is one operation to it, with the text of what it computes (a jaxpr): the types of its
results follow from those of its arguments, operation by operation.  So does the gradient, which is nothing but such
operations.

JAX documents none of this.  Where a version does not have what is needed here, or has it otherwise, JAX's arrays have
no types, which is said once (RD54), and the program goes on as without the check.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, wraps
from importlib import import_module
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

import numpy as np

from refdist.array import jax_operations, own_writes
from refdist.array.jax_operations import DERIVING, TOLD, Constant, Fact, Here, Value, with_added
from refdist.array.replica_types import (
    TYPED,
    UNKNOWN,
    Described,
    ReplicaType,
    Typed,
    keep_types_of,
    number,
    of_items,
    plain,
    program,
    replace,
    type_of,
)
from refdist.core import call_site, remarks
from refdist.core.rules.replica_types import Of
from refdist.runtime import Field

_computes_for_the_program = True  # see core/tracebacks

_COMPILED = frozenset(("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call",
                       "custom_vjp_call", "custom_vjp_call_jaxpr"))
_JAXPRS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_OF_FUNCTIONS = ("process_call", "process_custom_jvp_call", "process_custom_vjp_call")
_KEPT = 10_000
_LOOKED_AT = 1 << 16  # items of an array that may be zeros
_CARRIES = 4  # times that the body of a loop is looked at, until its types stay
_NO_NAMES: dict[str, Any] = {}


class _Place(NamedTuple):
    # Where the program has what JAX computes.
    f_code: CodeType
    f_lasti: int
    f_locals: dict[str, Any] = _NO_NAMES
    f_globals: dict[str, Any] = _NO_NAMES
    f_back: FrameType | None = None

    @property
    def f_lineno(self) -> int:
        return call_site.of_one(self.f_code, self.f_lasti).line


class _Update(NamedTuple):
    """A result of an operation that is an argument of it, changed by something.

    Attributes:
        operand, result: the numbers of the argument and of the result.
        change: what is known of what changed it.
        is_difference: whether that was subtracted, and is known; otherwise a gradient took part in it.
        depends: on which arguments that depends.
    """

    operand: int
    result: int
    change: ReplicaType
    is_difference: bool
    depends: frozenset[int]


class _Made(NamedTuple):
    """What is known of the results of an operation.

    Attributes:
        facts: of each.
        by_gradient: whether a gradient took part in each.
        updates: which of them are arguments that were changed.
    """

    facts: Sequence[Fact]
    by_gradient: Sequence[bool]
    updates: Sequence[_Update] = ()


# What is known of arrays that are there, and whether a gradient took part in them; of a number of which nothing is
# known it is UNKNOWN.
_facts: dict[int, tuple[weakref.ref[Any], Fact, bool]] = {}


def _note(array: Any, fact: Fact, by_gradient: bool = False) -> None:
    number = id(array)

    def forget(gone: weakref.ref[Any]) -> None:
        known = _facts.get(number)
        if known is not None and known[0] is gone:  # another array may have the number by now
            del _facts[number]

    _facts[number] = weakref.ref(array, forget), fact, by_gradient


class _Types(MutableMapping[Any, ReplicaType]):
    """The types of JAX's arrays, which cannot be keys: by identity, each as long as the array is there."""

    def __getitem__(self, array: Any) -> ReplicaType:
        fact = _facts[id(array)][1]
        if isinstance(fact, Constant):
            raise KeyError(array)
        return fact

    def __setitem__(self, array: Any, kind: ReplicaType) -> None:
        _note(array, kind)

    def __delitem__(self, array: Any) -> None:
        del _facts[id(array)]

    def __iter__(self) -> Iterator[Any]:
        return (array for known, fact, _ in [*_facts.values()]
                if not isinstance(fact, Constant) and (array := known()) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@lru_cache(maxsize=1)
def _class_of(numpy: Any) -> Any:
    # Of JAX's arrays, which have types from now on.
    arrays = type(numpy.zeros(()))
    keep_types_of(arrays, _Types())
    return arrays


def keep_types(numpy: Any) -> None:
    """While the check is on JAX's arrays have types, and so have the numbers that are made of them.

    Args:
        numpy: the module `jax.numpy`.
    """
    for name in ("__float__", "item"):
        replace(_class_of(numpy), name, _to_number)


def _to_number(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def convert(self: Any, *args: Any) -> Any:
        return number(method(self, *args), type_of(self) if self.size == 1 else UNKNOWN)
    return convert


# Why JAX's arrays have no types, where they have none.
_lacking: Field[list[str]] = Field("why types of JAX's arrays are not followed", list)
_OF_NNX = "flax.nnx is imported, whose modules refuse what follows them"


def _off(why: str) -> None:
    # From now on JAX's arrays have no types, which is said once.
    if why not in _lacking.value:
        _lacking.value.append(why)
        version = getattr(sys.modules.get("jax"), "__version__", "")
        remarks.make("RD54", call_site.that_led_here(), "following what JAX computes", f"JAX {version}: {why}")


@lru_cache(maxsize=1)
def following(jax: Any) -> Callable[[], AbstractContextManager[object]] | None:
    """The context manager in which the types of what JAX computes are followed; None where this JAX cannot.

    Args:
        jax: the module.
    """
    try:
        core, infos = import_module("jax._src.core"), import_module("jax._src.source_info_util")
        handlers = import_module("jax._src.dtypes").canonicalize_value_handlers
        trace = _trace(core.EvalTrace, core.take_current_trace, core.set_current_trace, infos._source_info_context)
        with core.set_current_trace(trace), core.take_current_trace():
            _keep_what_is_passed(handlers)
    except (ImportError, AttributeError, LookupError, TypeError) as error:
        _off(f"{type(error).__name__}: {error}")
        return None

    def follow() -> AbstractContextManager[object]:
        # Modules of nnx refuse to be used under another trace than that in which they were made.
        if "flax.nnx" in sys.modules:
            _off(_OF_NNX)
        return nullcontext() if _lacking.value else cast(AbstractContextManager[object], core.set_current_trace(trace))
    return follow


def _trace(evaluating: Any, alone: Any, within: Any, context: Any) -> Any:
    # One that evaluates, and sees what it evaluates.
    context.context.traceback, context.context.name_stack  # noqa: B018 - a JAX without these cannot be followed
    evaluate_primitive = vars(evaluating)["process_primitive"]

    def process_primitive(self: Any, /, *operation: Any, **options: Any) -> Any:
        # Before the operation, to which arrays may be donated.
        values = () if _lacking.value else _guarded(_values_of, *operation[1:2])
        with alone():  # as if this were not there
            results = evaluate_primitive(self, *operation, **options)
        if values:
            _guarded(_see, sys._getframe(1), context.context, *operation, values, results)
        return results

    def process_function(evaluate: Any) -> Callable[..., Any]:
        # Of `jax.custom_jvp` and the like: what it computes is seen, too.
        def process(self: Any, *args: Any, **options: Any) -> Any:
            with within(self):
                return evaluate(self, *args, **options)
        return process

    methods = {name: process_function(getattr(evaluating, name)) for name in _OF_FUNCTIONS if hasattr(evaluating, name)}
    return type("TypesOfArrays", (evaluating,), {**methods, "process_primitive": process_primitive})()


def _guarded(look: Callable[..., Any], *about: Any) -> Any:
    # Whatever another version of JAX has otherwise, the program goes on.
    try:
        return look(*about)
    except Exception as error:
        _off(f"{type(error).__name__}: {error}")


def _keep_what_is_passed(handlers: Any) -> None:
    # How JAX takes arrays of NumPy's, by their class: those with a type, too.
    def keeping(base: type) -> Callable[[Any], Any]:
        def take(array: Any) -> Any:
            taken = handlers[base](plain(array))
            _note(taken, type_of(array))
            return taken
        return take

    for kind, base in TYPED.items():
        handlers[kind] = keeping(base)


def _values_of(args: Sequence[Any]) -> Sequence[Value]:
    # What is known of arrays that are there; nothing where none of them is known, as of all that no replica's rows took
    # part in: numbers alone may be what a gradient begins with.
    if any(id(arg) in _facts or type_of(arg) is not UNKNOWN for arg in args) or not any(map(np.ndim, args)):
        return [_value_of(arg) for arg in args]
    return ()


def _value_of(array: Any) -> Value:
    fact = _fact_of(array)
    known = _facts.get(id(array))
    return Value(fact, np.shape(array), known is not None and known[2])


def _see(frame: FrameType, context: Any, primitive: Any, args: Sequence[Any], params: Any, values: Sequence[Value],
         results: Any) -> None:
    # Notes what is known of the results of an operation on arrays that are there.
    name: str = primitive.name
    arrays = [*results] if primitive.multiple_results else [results]
    traceback = context.traceback
    place = None if traceback is None else _place_of(traceback)
    functions = _functions_above(frame) if traceback is None else _functions_of(traceback)
    transposed = "transpose" in str(context.name_stack)
    here = Here(program(frame) if place is None else place, functions, transposed, _added_until(transposed))
    try:
        made = _of(name, params, values, [np.shape(array) for array in arrays], here)
    except (LookupError, TypeError, ValueError, ArithmeticError):  # of another version of JAX
        made = _Made([UNKNOWN] * len(arrays), [False] * len(arrays))
    if not transposed and not any(made.by_gradient):
        _added.value = with_added(_added.value, values, made.facts)
    updates = {update.operand: update for update in made.updates}
    with_rows = any(_is_of_rows(value.fact) for value in values)
    for i, (arg, value) in enumerate(zip(args, values, strict=True)):
        update = updates.get(i)
        if (with_rows and not _is_of_rows(value.fact)) if update is None else i in update.depends:
            own_writes.computed_with(arg)
        if update is not None:
            own_writes.note(here.place, arrays[update.result], update.change, arg, update.is_difference)
    for array, fact, by_gradient in zip(arrays, made.facts, made.by_gradient, strict=False):
        if not any(array is arg for arg in args) and hasattr(array, "aval") and (
                by_gradient or fact is not UNKNOWN or not array.ndim):
            _note(array, fact, by_gradient)


# What was added to sums since a gradient was last computed, and whether one is being computed: without `jax.jit` JAX
# shows one operation after another.
_added: Field[ReplicaType] = Field("what was added to sums that JAX computes", lambda: UNKNOWN)
_was_transposed: Field[bool] = Field("whether JAX's last operation was of a gradient", lambda: False)


def _added_until(transposed: bool) -> ReplicaType:
    if _was_transposed.value and not transposed:
        _added.value = UNKNOWN
    _was_transposed.value = transposed
    return _added.value if transposed else UNKNOWN


def _is_of_rows(fact: Fact) -> bool:
    return isinstance(fact, ReplicaType) and fact.of is Of.ROWS


def _fact_of(arg: Any) -> Fact:
    known = _facts.get(id(arg))
    if known is not None:
        return known[1]
    kind = type_of(arg)
    if kind is not UNKNOWN:
        return kind
    if isinstance(arg, (bool, int, float)):
        return Constant(float(arg))
    if getattr(getattr(arg, "dtype", None), "kind", "?") not in "biuf" or isinstance(arg, Typed):
        return UNKNOWN
    if not hasattr(arg, "aval"):  # of NumPy
        return UNKNOWN if arg.ndim else Constant(float(arg))
    if not hasattr(arg, "__array__") or arg.size > _LOOKED_AT:  # `jax.new_ref` gives what has none, and changes
        return UNKNOWN
    fact: Fact = UNKNOWN
    if not arg.ndim:
        fact = Constant(float(np.asarray(arg)))
    elif not np.asarray(arg).any():  # as `jnp.zeros_like` gives, which JAX does not show
        fact = Constant(0.0)
    _note(arg, fact)
    return fact


# By the operation, what is known of its operands, and its place: what is known of its results; and what has the ids.
_derived: dict[Hashable, tuple[_Made, object]] = {}


def _of(name: str, params: Any, values: Sequence[Value], shapes: Sequence[tuple[int, ...]],
        here: Here) -> _Made:
    # What is known of the results of an operation; found again in the next step.
    code = here.place.f_code
    compiled = _jaxpr_of(params) if name in _COMPILED else None
    about = id(compiled) if compiled is not None else tuple(
        value for value in params.values() if value is not None and not callable(value))
    key = (name, about, tuple(values), tuple(shapes), id(code), here.place.f_lasti, here.within, here.transposed,
           here.added)
    try:
        known = _derived.get(key)
    except TypeError:  # a parameter that is no key
        return _rule(name, params, values, shapes, here)
    if known is None:
        if len(_derived) >= _KEPT:
            _derived.clear()
        known = _derived[key] = _rule(name, params, values, shapes, here), (code, compiled)
    return known[0]


def _jaxpr_of(params: Any) -> Any:
    return next((params[name] for name in _JAXPRS if params.get(name) is not None), None)


def _rule(name: str, params: Any, values: Sequence[Value], shapes: Sequence[tuple[int, ...]], here: Here) -> _Made:
    if name in _COMPILED and (jaxpr := _jaxpr_of(params)) is not None:
        own = params.get("name")
        return _through(jaxpr, values, here._replace(within=here.within | {str(own)}) if own else here)
    if name in _COMPILED:
        facts: Sequence[Fact] = [UNKNOWN] * len(shapes)
    elif name == "cond":
        facts = _of_branches(params["branches"], values, here)
    elif name == "scan":
        facts = _of_loop(params, values, here)
    elif name == "while":
        facts = _of_open_loop(params, values, here)
    else:
        facts = [jax_operations.of(name, params, values, shapes[0], here)] * len(shapes)
    by_gradient = here.transposed or any(value.by_gradient for value in values)
    return _Made(facts, [by_gradient] * len(shapes), _update(name, values))


def _update(name: str, values: Sequence[Value]) -> Sequence[_Update]:
    # `weight - change`, and `weight + change` with a gradient, as optax has it.
    updates = []
    for operand in {"sub": (0,), "add": (0, 1), "add_any": (0, 1)}.get(name, ()):
        change = values[1 - operand]
        if isinstance(change.fact, ReplicaType) and change.fact.of in (Of.UNKNOWN, *own_writes.OWN):
            is_difference = name == "sub" and change.fact.of in own_writes.OWN
            if is_difference or change.by_gradient:
                updates.append(_Update(operand, 0, change.fact, is_difference, frozenset((1 - operand,))))
    return updates


# --- Compiled functions --------------------------------------------------------------------------------------


def _through(jaxpr: Any, values: Sequence[Value], here: Here) -> _Made:
    # What is known of the results of what JAX has compiled.
    known: dict[Any, Value] = {}
    updates = []
    constants = getattr(jaxpr, "consts", ())
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    known.update(zip(jaxpr.constvars, map(_value_of, constants), strict=False))
    known.update(zip(jaxpr.invars, values, strict=True))
    own = _is_the_programs(jaxpr)
    arguments = {variable: i for i, variable in enumerate(jaxpr.invars)}
    results = {variable: i for i, variable in enumerate(jaxpr.outvars) if not hasattr(variable, "val")}
    depends = {variable: frozenset((i,)) for variable, i in arguments.items()}

    def value(atom: Any) -> Value:
        if hasattr(atom, "val"):
            return _value_of(atom.val)
        return known.get(atom) or Value(UNKNOWN, tuple(getattr(atom.aval, "shape", ())))

    def depending(atoms: Sequence[Any]) -> frozenset[int]:
        return frozenset().union(*(depends.get(variable, frozenset()) for variable in _variables(atoms)))

    places = [_here_of(equation, own, here) for equation in jaxpr.eqns]
    needed = {*_variables(jaxpr.outvars)}  # by what is no gradient
    for equation, at in zip(jaxpr.eqns, places, strict=True):
        if not at.transposed:
            needed.update(_variables(equation.invars))
    added = here.added
    for equation, at in zip(jaxpr.eqns, places, strict=True):
        if at.transposed:
            at = at._replace(added=added)
        name, operands = equation.primitive.name, [*map(value, equation.invars)]
        shapes = [tuple(getattr(variable.aval, "shape", ())) for variable in equation.outvars]
        if all(operand.fact is UNKNOWN for operand in operands):
            by_gradient = at.transposed or any(operand.by_gradient for operand in operands)
            made = _Made([UNKNOWN] * len(shapes), [by_gradient] * len(shapes), _update(name, operands))
        else:
            if not at.transposed and needed.isdisjoint(equation.outvars):
                at = at._replace(within=at.within | DERIVING)
            made = _of(name, equation.params, operands, shapes, at)
        if not at.transposed and not any(made.by_gradient):
            added = with_added(added, operands, made.facts)
        known.update(zip(equation.outvars, map(Value, made.facts, shapes, made.by_gradient), strict=True))
        depends.update(dict.fromkeys(equation.outvars, depending(equation.invars)))
        for update in made.updates:
            changed, result = equation.invars[update.operand], equation.outvars[update.result]
            if not hasattr(changed, "val") and changed in arguments and result in results:
                changing = depending([equation.invars[i] for i in update.depends])
                updates.append(update._replace(operand=arguments[changed], result=results[result], depends=changing))
    made_of = [*map(value, jaxpr.outvars)]
    return _Made([result.fact for result in made_of], [result.by_gradient for result in made_of], updates)


def _variables(atoms: Sequence[Any]) -> Iterator[Any]:
    return (atom for atom in atoms if not hasattr(atom, "val"))


def _here_of(equation: Any, own: bool, here: Here) -> Here:
    traceback = equation.source_info.traceback
    stack = here.transposed or "transpose" in str(equation.source_info.name_stack)
    if traceback is None:
        return here._replace(transposed=stack, added=UNKNOWN)
    place = _place_of(traceback) if own else None
    return Here(here.place if place is None else place, here.within | _functions_of(traceback), stack)


def _is_the_programs(jaxpr: Any) -> bool:
    # Of functions of JAX's own the text is kept from the first call, which may be elsewhere.
    info = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    file = info.rpartition(" at ")[2]
    return bool(file) and "/" in file and not file.startswith(call_site.INSTALLED)


def _frames(traceback: Any) -> Iterator[tuple[CodeType, int]]:
    codes, offsets = traceback.raw_frames()
    return zip(codes, offsets, strict=True)


def _place_of(traceback: Any) -> _Place | None:
    return next((_Place(code, at) for code, at in _frames(traceback)
                 if not code.co_filename.startswith(call_site.INSTALLED)), None)


def _functions_of(traceback: Any) -> frozenset[str]:
    # Those of JAX's that are named here, and that the innermost function of the program has called.
    names = set()
    for code, _ in _frames(traceback):
        if not code.co_filename.startswith(call_site.INSTALLED):
            break
        names.add(code.co_name)
    return frozenset(names) & TOLD


def _functions_above(frame: FrameType) -> frozenset[str]:
    # The same of the frames that run.
    names, end = set(), program(frame)
    while frame is not end and frame.f_back is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return frozenset(names) & TOLD


def _of_branches(branches: Sequence[Any], values: Sequence[Value], here: Here) -> Sequence[Fact]:
    index, *operands = values
    results = [_through(branch, operands, here).facts for branch in branches]
    same = isinstance(index.fact, Constant) or index.fact.of is Of.SAME
    return [_of_any(facts) if same or not any(isinstance(fact, Constant) or fact.of is Of.SAME for fact in facts)
            else UNKNOWN for facts in zip(*results, strict=True)]


def _of_any(facts: Sequence[Fact]) -> Fact:
    if not all(_are_alike(fact, facts[0]) for fact in facts):
        return UNKNOWN
    kinds = [fact for fact in facts if isinstance(fact, ReplicaType)]
    return of_items([Described(kind, ()) for kind in kinds]) if kinds and kinds[0].of is Of.MEAN else facts[0]


def _of_loop(params: Any, values: Sequence[Value], here: Here) -> Sequence[Fact]:
    constants, carried = params["num_consts"], params["num_carry"]
    fixed, carry, items = values[:constants], values[constants:constants + carried], values[constants + carried:]
    slices = [Value(_of_one_turn(item), item.shape[1:]) for item in items]
    after, facts = _of_turns(params["jaxpr"], fixed, carry, slices, here)
    return [*(value.fact for value in after), *map(_of_all_turns, facts[carried:])]


def _of_open_loop(params: Any, values: Sequence[Value], here: Here) -> Sequence[Fact]:
    # How many turns a replica takes may depend on its rows: then nothing is the same on all of them.
    asking, constants = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    after, _ = _of_turns(params["body_jaxpr"], values[asking:constants], values[constants:], (), here)
    [goes_on] = _through(params["cond_jaxpr"], [*values[:asking], *after], here).facts
    agreed = isinstance(goes_on, Constant) or goes_on.of is Of.SAME
    return [value.fact if agreed or (isinstance(value.fact, ReplicaType) and value.fact.of is not Of.SAME) else UNKNOWN
            for value in after]


def _of_turns(jaxpr: Any, fixed: Sequence[Value], carry: Sequence[Value], items: Sequence[Value],
              here: Here) -> tuple[Sequence[Value], Sequence[Fact]]:
    # Until what is carried from one turn to the next stays what it is; what does not stay is unknown.
    for turn in range(_CARRIES):
        facts = _through(jaxpr, [*fixed, *carry, *items], here).facts
        after = [before if _are_alike(fact, before.fact) else Value(fact if turn == 0 else UNKNOWN, before.shape)
                 for fact, before in zip(facts, carry, strict=False)]
        if after == carry:
            return after, facts
        carry = after
    return [value._replace(fact=UNKNOWN) for value in carry], [UNKNOWN] * len(facts)


def _are_alike(first: Fact, second: Fact) -> bool:
    # Whatever led to them.
    return first == second or (isinstance(first, ReplicaType) and isinstance(second, ReplicaType)
                               and first.facts == second.facts)


def _of_one_turn(item: Value) -> Fact:
    fact = item.fact
    if isinstance(fact, Constant):
        return fact if not fact.averaged else UNKNOWN
    return UNKNOWN if fact.of is Of.ROWS and fact.back == len(item.shape) else fact


def _of_all_turns(fact: Fact) -> Fact:
    return fact if isinstance(fact, ReplicaType) and fact.of in (Of.SAME, Of.ROWS) else UNKNOWN
