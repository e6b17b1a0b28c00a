"""What an index chooses of a tensor where slices go backwards, which PyTorch refuses.

Strides of tensors are not negative, so a slice that goes backwards is no view, and its items are copied.  Integers and
other slices choose first, so that few are; tensors, lists and masks choose last, each at the axis where it then stands.
"""

from __future__ import annotations

from typing import Any

import torch

from refdist.core.integers import as_integer


def item(tensor: Any, key: Any) -> Any:
    """`tensor[key]`, where the steps of slices may be negative.

    >>> item(torch.arange(4), slice(None, None, -2))
    tensor([3, 1])

    Args:
        tensor: of any shape and dtype.
        key: whatever PyTorch takes between brackets.
    """
    places = key if isinstance(key, tuple) else (key,)
    if not any(map(_goes_backwards, places)):
        return tensor[key]
    first: list[Any] = []
    last: list[Any] = []
    axis, backwards = 0, []
    others = tensor.ndim - sum(map(_axes, places))
    for place in places:
        if place is Ellipsis or place is None or (isinstance(place, slice) and not _goes_backwards(place)):
            first.append(place)
            kept = others if place is Ellipsis else 1
            last += [slice(None)] * kept
            axis += kept
        elif as_integer(place) is not None:
            first.append(place)
        else:
            first += [slice(None)] * _axes(place)
            if isinstance(place, slice):
                backwards.append((axis, place))
            last.append(slice(None) if isinstance(place, slice) else place)
            axis += _axes(place)
    chosen = tensor[tuple(first)]
    for axis, place in backwards:
        rows = range(chosen.shape[axis])[place]
        # An index of PyTorch's, which takes all dtypes; `torch.flip` does not.
        order = rows.start + rows.step * torch.arange(len(rows), device=chosen.device)
        chosen = chosen[(slice(None),) * axis + (order,)]
    return chosen[tuple(last)]


def _goes_backwards(place: object) -> bool:
    return isinstance(place, slice) and (as_integer(place.step) or 0) < 0


def _axes(place: Any) -> int:
    # How many axes of the tensor a place in the key stands for.
    if place is Ellipsis or place is None:
        return 0
    if isinstance(place, slice) or as_integer(place) is not None:
        return 1
    chosen = torch.as_tensor(place)
    return chosen.ndim if chosen.dtype in (torch.bool, torch.uint8) else 1  # a mask, or places
