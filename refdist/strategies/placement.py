"""Placements: which part of an array is on which logical device of a replica on a TPU.

A replica may have several devices, and place an array on one of them, on all of them, or a tile of it on each.  The
program goes on with the whole array, because a library such as NumPy computes with whole arrays; so a placement is
beside the array, and is found by it.  That the tiles are there is not only said: `split` cuts the array, puts the tiles
on their devices, and returns an array that is put together from them.

Tiles are numbered in row-major order of the grid that divides the array; tile i lies on logical device i.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refdist import notebook
from refdist.array.backend import Backend
from refdist.array.convert import frozen, xp_of
from refdist.array.types import Array
from refdist.core import devices as names
from refdist.runtime import Field

SPLIT, REPLICATED, ASSIGNED = "split", "replicated", "assigned"

# id of an array -> (reference to it, its placement); an entry is removed when its array is freed.
_placements: Field[dict[int, tuple[weakref.ref[Any], Placement]]] = Field("where the parts of arrays lie", dict)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the parts of an array lie.

    Attributes:
        kind: "split", "replicated" or "assigned".
        devices: the names of the replica's logical devices.
        grid: into how many parts each dimension is divided.
        tiles: what each logical device has; None for nothing.
    """

    kind: str
    devices: tuple[str, ...]
    grid: tuple[int, ...]
    tiles: tuple[Any, ...]

    def index_of(self, logical_device: int) -> tuple[slice, ...]:
        """Which part of the array a logical device has.

        Args:
            logical_device: its number among the replica's devices, from 0.

        >>> placement = Placement(SPLIT, ("TPU:0", "TPU:1"), (1, 2), (np.ones((2, 3)), np.ones((2, 3))))
        >>> placement.index_of(1)
        (slice(0, 2, None), slice(3, 6, None))
        """
        shape = next(tile for tile in self.tiles if tile is not None).shape
        return _index(logical_device if self.kind == SPLIT else 0, self.grid, shape)

    def __str__(self) -> str:
        how = {SPLIT: f"split {'x'.join(map(str, self.grid))} over", REPLICATED: "replicated to", ASSIGNED: "on one of"}
        rows = [f"{how[self.kind]} {len(self.devices)} logical devices"]
        for i, (device, tile) in enumerate(zip(self.devices, self.tiles, strict=True)):
            values = "-" if tile is None else np.array2string(
                np.asarray(tile), threshold=6, edgeitems=2, separator=", ").replace("\n", "")
            rows.append(f"  {i}  {names.short(device)}  {self.part_of(i)}  {values}")
        return "\n".join(rows)

    def part_of(self, i: int) -> str:
        """The indices of tile i, such as "[0:2, 0:4]"; "" where the device has none.

        Args:
            i: the number of the logical device, from 0.
        """
        if self.tiles[i] is None:
            return ""
        return f"[{', '.join(f'{along.start}:{along.stop}' for along in self.index_of(i))}]"

    def _repr_svg_(self) -> str:
        return notebook.drawing(self)


def split(backend: Backend, array: Array, grid: Sequence[int], devices: Sequence[str]) -> Any:
    """Splits an array into tiles, one for each device, and places them.

    Args:
        backend: the backend of the array.
        array: of any dtype; `grid` divides its shape.
        grid: into how many parts each axis is split; the product is the number of devices.
        devices: the device of each tile, in row-major order of the grid.

    Returns:
        A read-only array with the values of `array`, put together from the tiles.
    """
    tile = tuple(length // parts for length, parts in zip(array.shape, grid, strict=True))
    tiles = [frozen(backend.put(_cut(array, _index(i, grid, tile)), device)) for i, device in enumerate(devices)]
    whole: list[Any] = tiles
    for axis in reversed(range(len(grid))):
        parts, concat = grid[axis], xp_of(tiles[0]).concat
        whole = [concat(whole[i:i + parts], axis=axis) if parts > 1 else whole[i] for i in range(0, len(whole), parts)]
    return _placed(whole[0], Placement(SPLIT, tuple(devices), tuple(grid), tuple(tiles)))


def replicate(backend: Backend, array: Array, devices: Sequence[str]) -> Any:
    """Places a copy of an array on each device.

    Args:
        backend: the backend of the array.
        array: of any shape and dtype.
        devices: the logical devices of the replica.

    Returns:
        A read-only array with the values of `array`.
    """
    tiles = tuple(frozen(copy) for copy in backend.broadcast(array, devices))
    return _placed(tiles[0], Placement(REPLICATED, tuple(devices), (1,) * array.ndim, tiles))


def assign(backend: Backend, array: Array, logical_device: int, devices: Sequence[str]) -> Any:
    """Places an array on one of the devices.

    Args:
        backend: the backend of the array.
        array: of any shape and dtype.
        logical_device: the index of the device in `devices`.
        devices: the logical devices of the replica.

    Returns:
        A read-only array with the values of `array`.
    """
    tiles: list[Any] = [None] * len(devices)
    tiles[logical_device] = frozen(backend.put(array, devices[logical_device]))
    return _placed(tiles[logical_device], Placement(ASSIGNED, tuple(devices), (1,) * array.ndim, tuple(tiles)))


def placement_of(array: object) -> Placement | None:
    """The placement of an array; None if it was not placed."""
    entry = _placements.value.get(id(array))
    return entry[1] if entry is not None and entry[0]() is array else None


def _placed(array: Array, placement: Placement) -> Any:
    placed: Any = array
    placed = frozen(placed[...])  # a new view, which no other placement has
    entries, key = _placements.value, id(placed)
    entries[key] = weakref.ref(placed, lambda _: entries.pop(key, None)), placement
    return placed


def _cut(array: Array, index: tuple[slice, ...]) -> Any:
    # A copy, so that the tile does not keep the whole array.
    whole: Any = array
    return xp_of(array).asarray(whole[index], copy=True)


def _index(i: int, grid: Sequence[int], tile: Sequence[int]) -> tuple[slice, ...]:
    # The part of the array that is tile i.
    slices = []
    for number, (parts, length) in enumerate(zip(grid, tile, strict=True)):
        place = i // math.prod(grid[number + 1:]) % parts
        slices.append(slice(place * length, (place + 1) * length))
    return tuple(slices)
