"""What is shown of what a program printed before it ended: its own exception, and not a launcher's pages after it."""

from __future__ import annotations

import re

LINES = 12  # that are shown
OWN = 5  # of them, where it is longer, from the beginning of a traceback: frames of the testee
TRACEBACK = "Traceback (most recent call last)"
MARKERS = re.compile(r"\s*[~^]+\s*")  # below a line of a program, those of its characters that failed


def excerpt(output: str) -> list[str]:
    """The first traceback in what was printed, its first and its last frames, or the end of it all.

    >>> excerpt('step 1\\nTraceback (most recent call last):\\n  File "mine.py", line 1\\nKeyError: 7\\na launcher')
    ['Traceback (most recent call last):', '  File "mine.py", line 1', 'KeyError: 7']
    """
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if TRACEBACK in line), None)
    if start is None:
        return lines[-LINES:]
    prefix = lines[start].partition(TRACEBACK)[0]  # a launcher may write a rank before each line
    block = [line for line in lines[start:] if line.startswith(prefix) and not MARKERS.fullmatch(line[len(prefix):])]
    end = next((number for number, line in enumerate(block) if number and not line[len(prefix):].startswith(" ")), -1)
    shown = block[:end + 1 or None]
    if len(shown) > LINES:  # those in between are a library's
        shown[OWN:OWN + 1 - LINES] = [f"{prefix}  ..."]
    return shown
