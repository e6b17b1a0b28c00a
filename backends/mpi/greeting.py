"""The first thing that the processes of a job tell each other: which refdist they have, and which script they run.

Hosts have installations of their own, and a job of two versions would wait until the limit, or worse, go on.  A number
alone does not tell them apart, as a checkout has the number of the last release, so a hash of refdist's source goes
with it.  Another text of the same script is only a warning, because it may do the same; where it makes other calls,
the first rendezvous names the lines of both (RD06).

A greeting is JSON in every version to come, because one may read what another one has pickled as something else.  What
versions before this one send in its place is not JSON: so they are known, and they fail themselves when they read one.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from refdist import errors
from refdist.core import call_site
from refdist.workers.launcher import Task, named, task_of
from refdist.workers.transport import on_every_worker

_PACKAGE = Path(errors.__file__).parent
_BACKENDS = Path(__file__).parents[1]
_APART = ("backends", "conformance")  # inside the package only where that is installed


class _Greeting(NamedTuple):
    """What a process tells the others.

    Attributes:
        version: of refdist; "" where it does not say.
        source: a hash of refdist's source files.
        place: the host, and the folder of refdist there.
        script: the name of the file that it runs; "" for none.
        text: a hash of what is in that file.
    """

    version: str = ""
    source: str = ""
    place: str = ""
    script: str = ""
    text: str = ""


def own() -> bytes:
    """What this process tells the others."""
    version: str = vars(sys.modules["refdist"])["__version__"]
    path = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    script, text = (path.name, _hash([path])) if path.is_file() else ("", "")
    files = [*sorted(_BACKENDS.rglob("*.py")), *(path for path in sorted(_PACKAGE.rglob("*.py"))
                                                 if path.relative_to(_PACKAGE).parts[0] not in _APART)]
    return json.dumps(_Greeting(version, _hash(files), f"{socket.gethostname()}:{_PACKAGE}", script, text)
                      ._asdict()).encode()


def compare(greetings: Sequence[object], rank: int) -> None:
    """Compares what all processes have told, in the order of their numbers; each comes to the same result.

    Args:
        greetings: of all; what is not of bytes is of a version before this one.
        rank: of this process; the first one warns.

    Raises:
        RD17: they do not have the same refdist.
    """
    parsed = [_read(greeting) for greeting in greetings]
    tasks = [task_of(number, len(parsed)) for number in range(len(parsed))]
    versions = _groups([(greeting.version, greeting.source) for greeting in parsed], tasks)
    if len(versions) > 1:
        error = errors.error("RD17", "starting", "the processes do not have the same refdist: " + "; ".join(
            f"{named(same)} {_version(parsed[tasks.index(same[0])])}" for same in versions),
            "Install the same version on every host, for all processes.")
        # An older one fails in its own way.
        raise on_every_worker(error) if all(greeting.version for greeting in parsed) else error
    for script in sorted({greeting.script for greeting in parsed if greeting.script}):
        texts = _groups([greeting.text if greeting.script == script else "" for greeting in parsed], tasks, without="")
        if len(texts) > 1 and rank == 0:
            call_site.warn(f"{', and '.join(named(same) for same in texts)} have different files {script}: they may "
                           "compute different things; copy it to every host", RuntimeWarning)


def _read(greeting: object) -> _Greeting:
    try:
        fields = json.loads(greeting) if isinstance(greeting, bytes) else {}
    except ValueError:
        fields = {}
    return _Greeting(**{name: str(fields.get(name, "")) for name in _Greeting._fields})


def _version(greeting: _Greeting) -> str:
    if not greeting.version:
        return "with a version before this one, which does not tell its number"
    return f"with {greeting.version} ({greeting.place}, source {greeting.source})"


def _groups(keys: Sequence[object], tasks: Sequence[Task], without: object = None) -> list[list[Task]]:
    # The tasks that have the same key, in their order.
    groups: dict[object, list[Task]] = {}
    for key, task in zip(keys, tasks, strict=True):
        if key != without:
            groups.setdefault(key, []).append(task)
    return list(groups.values())


def _hash(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=4)
    for path in files:
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)} ".encode() + data)
    return digest.hexdigest()
