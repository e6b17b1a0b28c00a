"""All operations of random programs, and programs made of them.

A family of operations is a row of `FAMILIES`: it belongs to strategies of some kinds, and may need a variable to begin
with. A program is written on the strategy that the implementation is asked for, and often on another one beside it:
`other`, which has two replicas, or parameter servers in the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from refdist.conformance.capabilities import needs
from refdist.conformance.examples import Code, Program
from refdist.conformance.random_programs import checkpoints, datasets, generators, nests, servers, values, variables
from refdist.conformance.random_programs.writer import SERVERS, STEPS, STRATEGIES, Place, RandomProgram, Writer


@dataclass(frozen=True)
class Family:
    """Operations, whether they are for parameter servers, for other strategies, or both, and whether they need
    a variable."""

    operations: tuple[Callable[[Writer], None], ...]
    servers: tuple[bool, ...] = (False,)
    variables: bool = False

    def fits(self, w: Writer) -> bool:
        """Whether its operations can be written where a program stands."""
        return (w.kind == SERVERS) in self.servers and (bool(w.variables) or not self.variables)


FAMILIES = (
    Family(values.OPERATIONS),
    Family(datasets.OPERATIONS),
    Family(variables.OPERATIONS, variables=True),
    Family(checkpoints.OPERATIONS, (False, True), variables=True),
    Family(generators.OPERATIONS),
    Family(nests.OPERATIONS),
    Family(servers.OPERATIONS, (True,), variables=True),
    Family((variables.created,), (True,)),
)


def _another_strategy(w: Writer) -> None:
    """Adds a second strategy."""
    kind = w.pick("Mirrored", *[SERVERS] * 2 * (w.kind == "Default"))
    name = "other"
    w.operation("another strategy")
    if kind == SERVERS:
        name = w.name("servers")
        w.say(f"{name} = servers({w.number(1, 3)})")
    w.say(f"{name}.num_replicas_in_sync")
    w.places.append(Place(name, kind, 1 if kind == SERVERS else 2))


@st.composite
def programs(draw: st.DrawFn, lacks: frozenset[str] = frozenset()) -> RandomProgram:
    """A strategy, and a program of a few operations, for an implementation that lacks some capabilities."""
    strategies = [name for name in STRATEGIES if not needs(Program(name, "", None, Code("", 1), ())) & lacks]
    w = Writer(draw, draw(st.sampled_from(strategies)))
    w.write(values.made, lacks)
    for _ in range(draw(st.integers(0, 2))):
        w.write(variables.created, lacks)
    steps = draw(st.sampled_from(STEPS))
    # In TensorFlow the collectives of two strategies on the same devices disturb each other.
    if not w.several and (w.count == 1 or w.kind != "Mirrored") and w.chance(3):
        w.write(_another_strategy, lacks)
        w.place = w.places[-1]
        w.write(variables.created, lacks)
        if w.kind == SERVERS:
            # In TensorFlow a process that is connected to servers is one of their cluster, and can do less by itself.
            w.places = w.places[1:]
        else:
            w.write(values.made, lacks)
    for _ in range(steps):
        w.place = draw(st.sampled_from(w.places))
        operations = [operation for family in FAMILIES if family.fits(w) for operation in family.operations]
        w.write(draw(st.sampled_from(operations)), lacks)
    return w.program()
