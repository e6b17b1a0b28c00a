"""What operations of JAX make of types: one rule for each kind of operation, by the tables of `core/rules`.

Gradients begin with a number: that of a mean is 1 divided by how many there are, and is then multiplied with what the
rows gave.  So it is kept of numbers along which axes they were divided by the length, and by which lengths that the
program has written (`Constant`).  What has no rule is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from refdist.array.replica_types import (
    UNKNOWN,
    Described,
    Frame,
    ReplicaType,
    along,
    changed,
    chosen,
    combined,
    gradient,
    made_of,
    moved,
    numbers_of,
    of_items,
    reshaped,
    transposed,
    type_of,
)
from refdist.core import call_site, divisors
from refdist.core.rules.replica_types import ALONG, Along, Of, Operation

_computes_for_the_program = True  # see core/tracebacks


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Constant(NamedTuple):
    """The same number in each item, of which nothing but the program's text and the shapes of arrays took part.

    Attributes:
        number: which.
        averaged: along which axes, counted from the last one, which is 1, it was divided by the length for a mean.
        divided: by which numbers it was divided that the program calls a length or, with True, a size.
    """

    number: float
    averaged: frozenset[int] = frozenset()
    divided: tuple[tuple[float, bool], ...] = ()


Fact = ReplicaType | Constant
# Of what has been divided by a number of rows that is not followed: what is made of it is unknown, too, and not, as of
# other unknown values, of the kind of the rest, which would call a mean a sum.
LOST = ReplicaType(Of.UNKNOWN, "")


class Value(NamedTuple):
    """What is known of an array, its shape, and whether a gradient took part in it."""

    fact: Fact
    shape: tuple[int, ...]
    by_gradient: bool = False


class Here(NamedTuple):
    """Where an operation is.

    Attributes:
        place: in the program.
        within: the functions of JAX's own, of those that TOLD names, that it is part of.
        transposed: whether it is part of a gradient.
        added: what is known of the sums over rows to which what is the same on all replicas was added before, as of a
            loss with a penalty.
    """

    place: Frame
    within: frozenset[str] = frozenset()
    transposed: bool = False
    added: ReplicaType = UNKNOWN

    @property
    def is_in_mean(self) -> bool:
        """Whether it is part of a mean."""
        return bool(self.within & _MEANS) and not self.is_in_spread

    @property
    def is_in_derivative(self) -> bool:
        """Whether it computes a derivative by a rule of JAX's, whose numbers are none of the program's."""
        return bool(self.within & DERIVING) and not self.transposed

    @property
    def is_in_spread(self) -> bool:
        """Whether it is part of a variance."""
        return bool(self.within & _SPREADS)


_OPERATIONS = {Operation.ADD: _names("add sub add_any"), Operation.MULTIPLY: _names("mul"),
               Operation.DIVIDE: _names("div"),
               Operation.OTHER: _names("""max min pow rem atan2 nextafter eq ne lt le gt ge and or xor not clamp exp
        exp2 log log1p expm1 tanh logistic sin cos tan sinh cosh asin acos atan asinh acosh atanh sqrt rsqrt cbrt square
        integer_pow abs sign floor ceil round is_finite erf erfc erf_inv lgamma digamma select_n""")}
_OPERATION_OF = {name: operation for operation, names in _OPERATIONS.items() for name in names}
_KEEPING = _names("""neg convert_element_type copy copy_p device_put reduce_precision optimization_barrier real
    stop_gradient stage pvary pbroadcast""")
_FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "add_any": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else math.nan, "max": max, "min": min, "neg": lambda a: -a,
    "square": lambda a: a * a, "sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan, "abs": abs}
_REDUCTIONS = {"reduce_sum": Along.SUM_OF_ROWS, **dict.fromkeys(
    _names("reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin"), Along.OTHER)}
# Along one axis: where that is not the one of the rows, each row gives a row.
_ALONG_AN_AXIS = _names("cumsum cumprod cummax cummin cumlogsumexp")
_MEANS = _names("mean _mean average _average nanmean")
_SPREADS = _names("var _var std _std nanvar nanstd")
_SAID_AS = {"reduce_sum": "sum", "dot_general": "matmul", "max": "maximum", "add_any": "add", "integer_pow": "power",
            "conv_general_dilated": "conv", "scatter-add": "sum"}
# Of those that compute derivatives, by rules whose numbers are none of the program's.
DERIVING = _names("standard_jvp process_custom_jvp_call")
# Functions of JAX's own that tell what their operations are for.
TOLD = _MEANS | _SPREADS | DERIVING


def of(name: str, params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    """What is known of the result of an operation.

    Args:
        name: of JAX's primitive.
        params: its parameters.
        values: what is known of its operands.
        shape: of the result.
        here: where it is.
    """
    if any(value.fact is LOST for value in values):
        return LOST
    if name in _OPERATION_OF:
        return _of_items(name, params, values, shape, here)
    if name in _KEEPING:
        fact = values[0].fact
        return fact._replace(number=-fact.number) if isinstance(fact, Constant) and name == "neg" else fact
    if name in _REDUCTIONS:
        return _of_reduction(name, params, values[0], here)
    if name in _ALONG_AN_AXIS:
        return _along_items(values[0], params["axis"])
    constant = isinstance(values[0].fact, Constant) if values else False
    rule = _JOINING.get(name) or (_OF_CONSTANTS if constant else _RULES).get(name)
    return UNKNOWN if rule is None else rule(params, values, shape, here)


def _described(value: Value) -> Any:
    return value.fact.number if isinstance(value.fact, Constant) else Described(value.fact, value.shape)


def _kinds(values: Sequence[Value]) -> list[ReplicaType]:
    return [value.fact for value in values if isinstance(value.fact, ReplicaType)]


def _of_items(name: str, params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    operation = _OPERATION_OF[name]
    kinds = _kinds(values)
    if not kinds:
        return _folded(name, params, values, here)
    if UNKNOWN in kinds and not any(kind.of is Of.ROWS for kind in kinds):
        return UNKNOWN
    if operation is Operation.DIVIDE and here.is_in_mean and not here.transposed and isinstance(
            values[0].fact, ReplicaType) and (isinstance(values[1].fact, Constant) or _both_means(kinds)):
        return values[0].fact  # by how many there are
    # Which operands the result is proportional to.
    linear: Sequence[Value] = ()
    if operation is Operation.MULTIPLY:
        linear = values
    elif operation is Operation.DIVIDE:
        linear = values[:1]
    elif name == "select_n":
        linear = values[1:]
    rows = next((kind for kind in kinds if kind.of is Of.ROWS), UNKNOWN)
    chosen_from = [value for value in linear if not (isinstance(value.fact, Constant) and value.fact.number == 0)]
    operands: list[Any] = []
    counts = []
    for value in values:
        if isinstance(value.fact, Constant):
            number, lengths = _divided(value.fact, rows)
            operands.append(1.0 if here.is_in_derivative else number)
            if value.fact.averaged and (value not in linear or (rows is UNKNOWN and kinds[0].of is not Of.SAME)):
                return LOST
        else:
            operands.append(_described(value))
            lengths = value.fact.lengths
            if lengths and value not in linear and operation is not Operation.ADD:
                return LOST  # what it is not proportional to
        if value in chosen_from or (operation is Operation.ADD and isinstance(value.fact, ReplicaType)):
            counts.append(lengths)
    joins = operation is Operation.ADD or name == "select_n"
    if joins and len({*counts}) > 1:
        return LOST  # a mean, and what is none
    kind = _tidy(combined(here.place, operation, _SAID_AS.get(name, name), operands, Described(UNKNOWN, shape)))
    if kind.of is Of.BOTH and here.transposed:
        # Its own numbers do not tell of what share it is a gradient: JAX has multiplied them with one another.
        kind = gradient(here.place, here.added, keeps=True) if here.added.of is Of.BOTH else changed(
            kind, of=Of.DIFFERS)
    if joins and counts:
        return _settled(_with_lengths(kind, counts[0]))
    return _settled(_with_lengths(kind, kind.lengths + sum(
        _divided(value.fact, rows)[1] for value in linear if isinstance(value.fact, Constant))))


def with_added(added: ReplicaType, values: Sequence[Value], facts: Sequence[Fact]) -> ReplicaType:
    """What is known of all sums to which what is the same was added: the latest, with the numbers of all.

    Args:
        added: before an operation.
        values: its operands.
        facts: what is known of its results.

    Returns:
        LOST where something else was made of such a sum, as where a penalty is taken away again.
    """
    sums = [kind for kind in _kinds([Value(fact, ()) for fact in facts]) if kind.of is Of.BOTH]
    if added is LOST or (not sums and any(kind.of is Of.BOTH for kind in _kinds(values))):
        return LOST
    for kind in sums:
        added = _with_numbers_of(kind, added)
    return added


@lru_cache(maxsize=1000)
def _with_numbers_of(kind: ReplicaType, other: ReplicaType) -> ReplicaType:
    # The same object again in the next step, so that what is derived from it is found again.
    numbers = tuple(dict.fromkeys((*other.numbers, *kind.numbers)))
    return kind if numbers == kind.numbers else changed(kind, numbers=numbers)


def _tidy(kind: ReplicaType) -> ReplicaType:
    # Without the numbers that tell nothing: gradients have many.
    if not kind.numbers:
        return kind
    scaling = kind.of is not Of.SAME
    numbers = tuple((operation, number) for operation, number in kind.numbers
                    if not (scaling and operation in (Operation.ADD, Operation.OTHER))
                    and not (operation is not Operation.ADD and abs(number) == 1))
    return kind if numbers == kind.numbers else changed(kind, numbers=numbers)


def _both_means(kinds: Sequence[ReplicaType]) -> bool:
    # `jnp.mean(x, where=mask)`: the sum and the count of the same rows.
    return len(kinds) == 2 and all(kind.of in (Of.MEAN, Of.SUM) for kind in kinds)


def _divided(constant: Constant, rows: ReplicaType) -> tuple[float, int]:
    # The number without its divisions by the number of rows, and how many these are.
    number, lengths = constant.number, 0
    if rows.of is Of.ROWS and rows.rows:
        lengths += rows.back in constant.averaged
        for divisor, by_size in constant.divided:
            if divisor in (rows.rows, rows.rows // rows.per_row) or (by_size and divisor % rows.rows == 0):
                number, lengths = number * divisor, lengths + 1
    return round(number, 6) if lengths else number, lengths


def _with_lengths(kind: ReplicaType, lengths: int) -> ReplicaType:
    # Divided by the number of its rows as often.
    if lengths == kind.lengths or kind.of not in (Of.ROWS, Of.SUM):
        return kind
    numbers = [*kind.numbers]
    for _ in range(kind.lengths):
        numbers.remove(next(number for number in _by_its_rows(kind) if number in numbers))
    return changed(kind, numbers=(*numbers, *(_by_its_rows(kind)[:1] * lengths)), lengths=lengths)


def _by_its_rows(kind: ReplicaType) -> list[tuple[Operation, float]]:
    rows = kind.rows or 0
    return [(Operation.DIVIDE, float(rows)), (Operation.DIVIDE, float(rows // kind.per_row))]


def _settled(kind: ReplicaType) -> ReplicaType:
    # A sum over rows that is divided by their number is a mean over them, and anything may be added to it.
    if kind.of is not Of.SUM or not kind.lengths:
        return kind
    return LOST if kind.lengths > 1 else changed(_with_lengths(kind, 0), of=Of.MEAN)


def _folded(name: str, params: Any, values: Sequence[Value], here: Here) -> Fact:
    constants = [value.fact for value in values if isinstance(value.fact, Constant)]
    numbers = [constant.number for constant in constants]
    if name == "integer_pow":
        return Constant(numbers[0] ** params["y"]) if numbers[0] or params["y"] > 0 else UNKNOWN
    if name not in _FOLDED:
        return UNKNOWN
    try:
        number = float(_FOLDED[name](*numbers))
    except (OverflowError, ValueError):
        return UNKNOWN
    marked = [constant for constant in constants if constant.averaged or constant.divided]
    if len(marked) > 1 or (marked and name not in ("mul", "div")) or (name == "div" and marked and (
            constants[1] is marked[0])):
        return UNKNOWN if any(constant.averaged for constant in marked) else Constant(number)
    result = marked[0]._replace(number=number) if marked else Constant(number)
    if name == "div" and not here.is_in_mean:
        place = call_site.of_one(here.place.f_code, here.place.f_lasti)
        by_length = divisors.is_by_length(place)
        if by_length or divisors.is_by_size(place):
            return result._replace(divided=(*result.divided, (numbers[1], not by_length)))
    return result


def _of_reduction(name: str, params: Any, value: Value, here: Here) -> Fact:
    axes = tuple(params["axes"])
    fact = value.fact
    if isinstance(fact, Constant):
        return fact if name in ("reduce_max", "reduce_min") and not fact.averaged else UNKNOWN
    how = _REDUCTIONS[name]
    if how is Along.SUM_OF_ROWS and here.is_in_spread:
        how = Along.OTHER
    elif how is Along.SUM_OF_ROWS and here.is_in_mean:
        how = Along.MEAN_OF_ROWS
    if how is not Along.SUM_OF_ROWS and fact.lengths:
        return UNKNOWN
    if fact.of is Of.PART and how is Along.OTHER:
        return UNKNOWN
    step = "gradient" if here.transposed else "mean" if how is Along.MEAN_OF_ROWS else _SAID_AS.get(name, name)
    return _settled(along(here.place, Described(fact, value.shape), how, axes, False, step))


def _along_items(value: Value, axis: int) -> Fact:
    fact = value.fact
    if isinstance(fact, Constant) or fact.of not in (Of.ROWS, Of.SAME):
        return UNKNOWN
    return UNKNOWN if fact.of is Of.ROWS and axis == len(value.shape) - fact.back else fact


def _row_axis(value: Value) -> int | None:
    # The axis that the rows lie along; None for none.
    fact = value.fact
    return len(value.shape) - fact.back if isinstance(fact, ReplicaType) and fact.of is Of.ROWS else None


def _of_product(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    (summed, batch) = params["dimension_numbers"]
    rows = [_row_axis(value) for value in values]
    kinds = _kinds(values)
    known = [kind for kind in kinds if kind.of is Of.ROWS]
    step = "gradient" if here.transposed else "matmul"
    operands = [_described(value) for value in values]
    if not known:
        if UNKNOWN in kinds:
            return UNKNOWN
        if any(isinstance(value.fact, Constant) and value.fact.averaged for value in values):
            return UNKNOWN
        return combined(here.place, Operation.MULTIPLY, step, operands, Described(UNKNOWN, shape))
    of, back, lengths = Of.DIFFERS, 0, 0
    for i, value in enumerate(values):
        axis, other = rows[i], values[1 - i]
        if axis is None:
            continue
        partner = _partner(axis, summed, i)
        if partner is not None:
            if rows[1 - i] == partner:
                of = ALONG[Of.ROWS][Along.SUM_OF_ROWS]
            elif isinstance(other.fact, Constant):
                of = ALONG[Of.ROWS][Along.SUM_OF_ROWS]
                seen = other.fact
                at = cast(ReplicaType, value.fact)
                number, lengths = _divided(seen._replace(averaged=frozenset(
                    {at.back} if len(other.shape) - partner in seen.averaged else ())), at)
                operands[1 - i] = number
        elif (partner := _partner(axis, batch, i)) is not None:
            if rows[1 - i] == partner or (rows[1 - i] is None and (
                    isinstance(other.fact, Constant) or other.fact.of is Of.SAME)):
                of, back = Of.ROWS, len(shape) - list(batch[i]).index(axis)
        elif rows[1 - i] is None:
            if isinstance(other.fact, Constant) and other.fact.averaged:
                return LOST
            free = [free for free in range(len(value.shape)) if free not in (*summed[i], *batch[i])]
            before = 0 if i == 0 else len(values[0].shape) - len(summed[0]) - len(batch[0])
            of, back = Of.ROWS, len(shape) - (len(batch[0]) + before + free.index(axis))
    numbers = numbers_of(here.place, operands, [*map(type_of, operands)], Operation.MULTIPLY)
    kind = made_of(here.place, of, known, step, Described(UNKNOWN, shape), numbers, back or None)
    return _settled(_with_lengths(kind, kind.lengths + lengths))


def _partner(axis: int, pairs: Sequence[Sequence[int]], operand: int) -> int | None:
    # The axis of the other operand that belongs to an axis of this one.
    own = list(pairs[operand])
    return pairs[1 - operand][own.index(axis)] if axis in own else None


def _of_convolution(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    specs = params["dimension_numbers"]
    rows = [_row_axis(value) for value in values]
    if params["batch_group_count"] != 1:
        return UNKNOWN
    kinds = [kind for kind in _kinds(values) if kind.of is Of.ROWS]
    if not kinds or any(isinstance(value.fact, Constant) for value in values):
        return UNKNOWN
    numbers = sum((kind.numbers for kind in kinds), ()), sum(kind.lengths for kind in kinds)
    step = "gradient" if here.transposed else "conv"
    if rows[0] == specs.lhs_spec[0] and rows[1] is None:
        back = len(shape) - specs.out_spec[0]
        return made_of(here.place, Of.ROWS, kinds, step, Described(UNKNOWN, shape), numbers, back)
    if params["feature_group_count"] == 1 and rows[0] == specs.lhs_spec[1] and rows[1] == specs.rhs_spec[1]:
        return _settled(made_of(here.place, ALONG[Of.ROWS][Along.SUM_OF_ROWS], kinds, step, Described(UNKNOWN, shape),
                                numbers))
    return UNKNOWN


def _of_broadcast(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    value = values[0]
    kind, axis = value.fact, _row_axis(value)
    assert isinstance(kind, ReplicaType)
    if axis is None:
        return kind
    at = params["broadcast_dimensions"][axis]
    return moved(kind, len(shape) - at) if shape[at] == kind.rows else UNKNOWN


def _constant_broadcast(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    value = values[0]
    constant = cast(Constant, value.fact)
    places = params["broadcast_dimensions"]
    stretched = [axis for axis in range(len(shape)) if axis not in places or (
        value.shape[places.index(axis)] != shape[axis])]
    kept = {int(len(shape) - places[len(value.shape) - back]) for back in constant.averaged}
    if here.is_in_mean:  # each item's share of a mean
        count = math.prod(shape[axis] for axis in stretched)
        return constant._replace(number=constant.number * count,
                                 averaged=frozenset(kept | {len(shape) - axis for axis in stretched}))
    return constant._replace(averaged=frozenset(kept))


def _of_reshape(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return reshaped(_described(values[0]), shape) if params.get("dimensions") is None else UNKNOWN


def _constant_reshape(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    value = values[0]
    constant = cast(Constant, value.fact)
    if not constant.averaged:
        return constant
    if len(constant.averaged) < sum(length != 1 for length in value.shape):
        return UNKNOWN
    return constant._replace(averaged=frozenset(range(1, len(shape) + 1)))


def _of_squeeze(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    value = values[0]
    kind, axis = value.fact, _row_axis(value)
    assert isinstance(kind, ReplicaType)
    if axis is None:
        return kind
    dropped = [dimension % len(value.shape) for dimension in params["dimensions"]]
    return moved(kind, 0 if axis in dropped else kind.back - sum(dimension > axis for dimension in dropped))


def _of_transpose(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return transposed(_described(values[0]), list(params["permutation"]))


def _constant_transpose(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    constant, order = cast(Constant, values[0].fact), list(params["permutation"])
    return constant._replace(averaged=frozenset(
        len(shape) - order.index(len(shape) - back) for back in constant.averaged))


def _of_slice(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    value = values[0]
    fact, axis = value.fact, _row_axis(value)
    strides = params["strides"] or [1] * len(shape)
    key = tuple(slice(None) if (start, stop, step) == (0, length, 1) else slice(start, stop, step)
                for start, stop, step, length in zip(params["start_indices"], params["limit_indices"], strides,
                                                     value.shape, strict=True))
    if axis is not None and key[axis] != slice(None) and cast(ReplicaType, fact).lengths:
        return LOST
    return chosen(here.place, _described(value), key, Described(UNKNOWN, shape))


def _where_whole(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    # Of what leaves all rows in their place: a slice whose beginning is computed, padding, one part of a split.
    value, axis = values[0], _row_axis(values[0])
    whole = axis is not None and len(shape) == len(value.shape) and shape[axis] == value.shape[axis]
    return value.fact if whole else UNKNOWN


def _of_pad(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return _where_whole(params, values, shape, here) if isinstance(values[1].fact, Constant) else UNKNOWN


def _of_reversal(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return values[0].fact


def _of_sort(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return _along_items(values[0], params["dimension"]) if len(values) == 1 else UNKNOWN


def _of_window(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    axis = _row_axis(values[0])
    return values[0].fact if axis is not None and params["window_dimensions"][axis] == 1 and (
        not cast(ReplicaType, values[0].fact).lengths) else UNKNOWN


def _of_joined(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    kinds = _kinds(values)
    first = next((value for value in values if _row_axis(value) is not None), values[0])
    kind = first.fact
    if not isinstance(kind, ReplicaType) or kind.of is not Of.ROWS:
        return UNKNOWN if len(kinds) < len(values) else of_items([*map(_described, values)])
    # Along another axis, beside what is of the same rows, or of nothing that is known.
    alike = all((other.rows, other.back, other.per_row, other.lengths) == (
        kind.rows, kind.back, kind.per_row, kind.lengths) if other.of is Of.ROWS else (
        other.of in (Of.SAME, Of.UNKNOWN) and not kind.lengths) for other in kinds)
    plain = len(kinds) == len(values) or not any(
        value.fact.averaged for value in values if isinstance(value.fact, Constant))
    return kind if alike and plain and params["dimension"] != _row_axis(first) else UNKNOWN


def _of_stack(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    return UNKNOWN if len(_kinds(values)) < len(values) else of_items([*map(_described, values)])


def _of_gather(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    operand, indices = values
    axis, row = _row_axis(operand), _row_axis(indices)
    numbers, kind = params["dimension_numbers"], operand.fact
    assert isinstance(kind, ReplicaType)
    batch = [place for place in range(len(shape)) if place not in numbers.offset_dims]  # the axes of the indices
    aligned = [*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)]
    if kind.lengths:
        return LOST
    if axis is None:
        if row is None or row >= len(batch) or kind.of not in (Of.SAME, Of.UNKNOWN, Of.DIFFERS):
            return UNKNOWN
        back = len(shape) - batch[row]
        return made_of(here.place, Of.ROWS, [cast(ReplicaType, indices.fact)], "gather", Described(UNKNOWN, shape),
                     ((), 0), back)
    pair = next((index for own, index in aligned if own == axis), None)
    if pair is not None:
        return moved(kind, len(shape) - batch[pair])
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    if axis not in gone:
        if params["slice_sizes"][axis] != kind.rows:
            return UNKNOWN
        place = numbers.offset_dims[[dim for dim in range(len(operand.shape)) if dim not in gone].index(axis)]
        return moved(kind, len(shape) - place)
    # One item of each row, as in `p[jnp.arange(n), labels]`.
    return moved(kind, len(shape) - batch[0]) if len(batch) == 1 and shape[batch[0]] == kind.rows and (
        len(numbers.start_index_map) > 1) else UNKNOWN


def _constant_scatter(params: Any, values: Sequence[Value], shape: tuple[int, ...], here: Here) -> Fact:
    # Into zeros: the gradient of what was taken by indices.
    operand, indices, updates = values
    numbers, row = params["dimension_numbers"], _row_axis(indices)
    if cast(Constant, operand.fact).number != 0:
        return UNKNOWN
    scattered = [axis for axis in range(len(updates.shape)) if axis not in numbers.update_window_dims]
    aligned = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    places = numbers.scatter_dims_to_operand_dims
    if row == 0 and not aligned and len(places) > 1 and len(indices.shape) == 2 and shape[places[0]] == (
            indices.shape[0]):  # of `p[jnp.arange(n), labels]`
        aligned = {0: places[0]}
    if row is not None and row in aligned:  # each row to its own place, as by `jnp.take_along_axis`
        rows = cast(ReplicaType, indices.fact)
        constant = isinstance(updates.fact, Constant)
        if not constant and _row_axis(updates) != scattered[row]:
            return UNKNOWN
        known = moved(rows, len(updates.shape) - scattered[row])
        lengths = _divided(updates.fact, known)[1] if isinstance(updates.fact, Constant) else updates.fact.lengths
        before = known if constant else cast(ReplicaType, updates.fact)
        return _with_lengths(moved(before, len(shape) - aligned[row]), lengths)
    kind, axis = updates.fact, _row_axis(updates)
    if not isinstance(kind, ReplicaType) or axis not in scattered or aligned or any(
            shape[dim] == kind.rows for dim in numbers.scatter_dims_to_operand_dims):
        return UNKNOWN
    # The rows are added up where they have the same index.
    return _settled(made_of(here.place, ALONG[Of.ROWS][Along.SUM_OF_ROWS], [kind], "gradient",
                            Described(UNKNOWN, shape), (kind.numbers, kind.lengths)))


_Rule = Callable[[Any, Sequence[Value], tuple[int, ...], Here], Fact]
_RULES: dict[str, _Rule] = {
    "broadcast_in_dim": _of_broadcast, "reshape": _of_reshape, "squeeze": _of_squeeze, "transpose": _of_transpose,
    "slice": _of_slice, "dynamic_slice": _where_whole, "split": _where_whole, "pad": _of_pad, "rev": _of_reversal,
    "sort": _of_sort, "reduce_window_max": _of_window, "reduce_window_sum": _of_window, "gather": _of_gather}
# The same where the first operand is a number.
_OF_CONSTANTS: dict[str, _Rule] = {
    "broadcast_in_dim": _constant_broadcast, "reshape": _constant_reshape, "squeeze": _constant_reshape,
    "transpose": _constant_transpose, "scatter-add": _constant_scatter}
# Of operands of which any may be a number.
_JOINING: dict[str, _Rule] = {
    "dot_general": _of_product, "conv_general_dilated": _of_convolution, "concatenate": _of_joined,
    "stack": _of_stack}
