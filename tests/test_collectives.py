"""Libraries of collectives as implementations: they answer, and what they do wrong has a name."""

from __future__ import annotations

from typing import Any

import pytest

from refdist.conformance.adapters import collectives
from refdist.conformance.chapters import cases
from refdist.conformance.examples import program
from refdist.conformance.judging import Verdict, judge

CASES = {case.name: case for case in cases()}


@pytest.fixture(params=["torch", "jax"])
def library(request: Any) -> Any:
    pytest.importorskip(request.param)
    module = pytest.importorskip(f"refdist.conformance.adapters.{request.param}")
    return getattr(module, request.param.title())()


def verdict(adapter: collectives.Collectives[Any], name: str) -> Verdict:
    case = CASES[name]
    return judge(case, adapter.run(program(case)))


@pytest.mark.parametrize("name", [
    "all_reduce.sum #1 @ Mirrored 3", "all_reduce.each-replica-contributes-its-own @ Mirrored 3",
    "all_reduce.sum-keeps-the-dtype @ Mirrored 2", "all_gather.order-of-replicas @ Mirrored 3"])
def test_what_tf_distribute_promises_holds(library: Any, name: str) -> None:
    assert verdict(library, name).outcome == "passed", verdict(library, name)


@pytest.mark.parametrize(("name", "reason"), [
    ("all_reduce.nests @ Mirrored 2", "nests"), ("all_reduce.outside-of-run @ Mirrored 2", "contexts outside of run"),
    ("all_reduce.captured-distributed-value @ Mirrored 2", "distributed values")])
def test_what_the_library_does_not_have_is_not_made_up(library: Any, name: str, reason: str) -> None:
    judged = verdict(library, name)
    assert judged.outcome == "unsupported" and reason in judged.message


@pytest.mark.parametrize("name", ["all_reduce.ops-must-agree @ Mirrored 2", "all_gather.axes-must-agree @ Mirrored 2",
                                  "all_reduce.every-replica-must-come @ Mirrored 2"])
def test_what_is_no_program_for_jax_is_not_refused_in_its_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("jax")
    from refdist.conformance.adapters import jax

    monkeypatch.setattr(jax, "LIMIT", 0.2)
    assert verdict(jax.Jax(), name).outcome == "unsupported"


def test_a_wrong_collective_is_named(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "all_reduce", lambda context, op, tensor: tensor)
    assert verdict(library, "all_reduce.each-replica-contributes-its-own @ Mirrored 3").outcome == "failed"
