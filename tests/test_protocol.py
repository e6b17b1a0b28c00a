"""The two sides state their protocol, and neither goes on with another one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refdist.conformance import protocol, session
from refdist.conformance.adapter.session import START
from refdist.conformance.capabilities import PROFILES, TABLE
from refdist.conformance.protocol import Unusable

MODULE = [sys.executable, "-m", "refdist.conformance.adapter.child", "refdist"]
OUTSIDE = set(TABLE) - PROFILES["collectives"][1]
SCRIPT = [sys.executable, START, "refdist.conformance.adapters.simulated:Simulated"]


@pytest.mark.parametrize("stated", [protocol.PROTOCOL + 1, protocol.PROTOCOL - 1, str(protocol.PROTOCOL), None,
                                    float(protocol.PROTOCOL), True])
def test_each_side_refuses_another_protocol(stated: object) -> None:
    with pytest.raises(Unusable, match=f"the suite speaks protocol {stated!r}, and this is protocol 1"):
        protocol.read_suite({**protocol.suite("0"), "protocol": stated})
    with pytest.raises(Unusable, match=f"it speaks protocol {stated!r}, and this suite speaks protocol 1"):
        protocol.read_implementation({**protocol.implementation("mine", "1", frozenset()), "protocol": stated})


def test_each_side_takes_its_own_protocol() -> None:
    protocol.read_suite(protocol.suite("0"))
    greeting = protocol.implementation("mine", "1", frozenset({"nests"}))
    assert protocol.read_implementation(greeting) == protocol.Implementation("mine", "1", frozenset({"nests"}))


@pytest.mark.parametrize(("more", "lacks", "outside"), [
    ({}, set(), set()),
    ({"has": ["nests"]}, set(TABLE) - {"nests"}, set()),
    ({"profile": "collectives"}, OUTSIDE, OUTSIDE),
    ({"profile": "collectives", "lacks": ["dtypes", "nests"]}, OUTSIDE | {"dtypes"}, OUTSIDE),
    ({"profile": "collectives", "has": ["reduce", "dtypes"]}, OUTSIDE - {"reduce"}, OUTSIDE - {"reduce"}),
])
def test_a_profile_is_less_what_is_lacking_and_more_what_is_had(more: dict[str, Any], lacks: set[str],
                                                                outside: set[str]) -> None:
    testee = protocol.read_implementation({"protocol": 1, "name": "mine", **more})
    assert (testee.lacks, testee.outside, testee.profile) == (lacks, outside, more.get("profile", ""))


@pytest.mark.parametrize("profile", ["trainers", 3, None, ["trainer"]])
def test_a_profile_that_does_not_exist_is_wrong_usage(profile: object) -> None:
    with pytest.raises(Unusable, match="is not a profile; there are collectives, datasets, trainer, one-host"):
        protocol.read_implementation({"protocol": 1, "name": "mine", "profile": profile})


def test_an_adapter_says_its_profile() -> None:
    first_line = protocol.implementation("mine", "1", frozenset({"dtypes"}), "collectives")
    assert protocol.read_implementation(first_line).lacks == OUTSIDE | {"dtypes"}
    assert "profile" not in protocol.implementation("mine", "1", frozenset())


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["child", "start"])
def test_the_process_of_an_adapter_ends_before_the_adapter_is_made(command: list[str]) -> None:
    greeting = {**protocol.suite("0"), "protocol": protocol.PROTOCOL + 1}
    done = subprocess.run(command, input=json.dumps(greeting) + "\n", capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "the suite speaks protocol 2, and this is protocol 1\n"


def test_a_testee_of_another_protocol_is_wrong_usage(tmp_path: Path) -> None:
    testee = tmp_path / "testee.py"
    testee.write_text('input()\nprint(\'{"protocol": 2, "name": "mine"}\', flush=True)\ninput()\n')
    with pytest.raises(Unusable, match="it speaks protocol 2, and this suite speaks protocol 1"):
        session.tester(f"testee:{shlex.quote(sys.executable)} {testee}")
