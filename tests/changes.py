"""Ways to change an input that was right: what a broken disk does, and what somebody does who knows the format."""

from __future__ import annotations

import json
import random
import re
from typing import Any

NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 8, 255, 2**16, 2**31 - 1, 2**31, -2**31, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -2**63,
    2**64 - 1, 2**64, 10**400, -10**400, 0.5, -0.0, 1e308, float("inf"), float("nan")]
NAMES = [
    "../victim", "../../victim", "..", ".", "", "/etc/passwd", "/dev/zero", "/dev/null", "a\0b", "\0", "a\nb",
    "\x1b[2J", "\ud800", "\udc80", "é", "link", "outside/victim", "loop", "loop/x", "pipe", "folder", "a" * 300,
    "w" + "/x" * 3000, "ckpt-1", "ckpt-1/", "./ckpt-1", "x/../ckpt-1", "ckpt-1.safetensors", "__metadata__",
    "checkpoint", "w", "save_counter"]
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"a": []}, {"": 0}]
DTYPES = ["U8", "I8", "F32", "BF16", "F8_E5M2", "F4", "C64", "BOOL", "O", "V8", "object", "complex64", "float32",
          "f4,f4", "(2,3)f4", ">c8", "M8[s]", "S3", "U2", "float128"]
DEEP = [f"nested {depth}" for depth in (100, 140, 900, 5000)]
SHAPES: list[Any] = [[-1], [2**62, 4], [0, 2**63], [1] * 70, [2**63], [], [0], [True], [1.0], ["1"], [3], [-3, -1]]


def value(rng: random.Random) -> Any:
    """Anything that JSON can hold."""
    return rng.choice(rng.choice([NUMBERS, NAMES, OTHERS, DTYPES, SHAPES, DEEP]))


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """Flipped bits, cuts, doubled, exchanged, inserted and extreme parts."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        way, at = rng.randrange(7), rng.randrange(len(changed) + 1)
        if way == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif way == 1:
            del changed[at:]
        elif way == 2:
            del changed[at:at + rng.randrange(1, 20)]
        elif way == 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif way == 4:
            start = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[start:start + rng.randrange(1, 60)]
        elif way == 5:
            extreme = rng.choice([number for number in NUMBERS if isinstance(number, int) and -2**63 <= number < 2**64])
            changed[at:at + 8] = (extreme % 2**64).to_bytes(8, rng.choice(["little", "big"]))  # type: ignore[arg-type]
        else:
            changed[at:at + 4] = rng.choice(
                [b"\xff\xfe", b"\0\0\0\0", b"\xed\xa0\x80", b"{{{{", b"\r\n", b"\xef\xbb\xbf"])
    return bytes(changed)


def value_changed(whole: Any, rng: random.Random) -> Any:
    """A structure with one value or name exchanged, added or left out, somewhere in it."""
    places: list[tuple[Any, Any]] = []

    def visit(container: Any) -> None:
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            places.append((container, key))
            if isinstance(item, (dict, list)):
                visit(item)

    whole = json.loads(json.dumps(whole))
    if not isinstance(whole, (dict, list)) or not whole or rng.random() < 0.01:
        return value(rng)
    visit(whole)
    holder, key = rng.choice(places)
    way = rng.randrange(4)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice(NAMES)] = holder[key] if rng.random() < 0.5 else value(rng)
    elif way == 1:
        holder.append(value(rng))
    elif way == 2:
        there, other = rng.choice(places)
        # Only leaves, so that nothing comes to contain itself.
        holder[key] = json.loads(json.dumps(there[other])) if other in there or isinstance(there, list) else 0
    else:
        holder[key] = value(rng)
    return whole


def written_twice(whole: Any, rng: random.Random) -> str:
    """JSON; sometimes with a name that occurs twice."""
    text = json.dumps(whole)
    # Python cannot write what is nested so deeply.
    text = re.sub('"nested ([0-9]+)"', lambda match: "[" * int(match[1]) + "]" * int(match[1]), text)
    if rng.random() < 0.05 and isinstance(whole, dict) and whole:
        key = rng.choice(list(whole))
        text = text[:-1] + f", {json.dumps(key)}: {json.dumps(value(rng) if rng.random() < 0.5 else whole[key])}}}"
    return text
