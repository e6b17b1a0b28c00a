"""TFConfigClusterResolver: what it reads in TF_CONFIG."""

from __future__ import annotations

import json
from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Standing
from refdist.conformance.old.language import op

SOURCE = PAGE.format("cluster_resolver.TFConfigClusterResolver")
NEEDS = frozenset({"resolvers"})
CLUSTER = {"chief": ["c:1"], "worker": ["w0:2", "w1:3"], "ps": ["p:4"]}


def config(job: str = "worker", index: object = 1, **more: object) -> str:
    return json.dumps({"cluster": CLUSTER, "task": {"type": job, "index": index}, **more})


def case(name: str, text: str | None, question: str, gives: object = None,
         fails: tuple[str, ...] = (), **more: Unpack[Standing]) -> Case:
    return Case(name, op("tf_config", text, question), gives, fails=fails, strategy=("default", 1), source=SOURCE,
                needs=NEEDS, then=(op("tf_config", config(), "task_id"), 1), **more)


CASES = [
    case("the cluster", config(), "cluster_spec", CLUSTER),
    case("the type of the task", config("ps", 0), "task_type", "ps"),
    *(case(f"the index of the task, {index!r}", config(index=index), "task_id", int(index)) for index in (0, 1, "1")),
    case("the protocol", config(rpc_layer="grpc"), "rpc_layer", "grpc"),
    case("the address of the task", config(), "master", "w1:3"),
    case("the address with its protocol", config(rpc_layer="grpc"), "master", "grpc://w1:3"),
    case("a cluster of one has no address", json.dumps({"cluster": {"worker": ["a:1"]}, "task": {
        "type": "worker", "index": 0}}), "master", "", level="recommended", document="silent"),
    case("the address of a task of a cluster with gaps", json.dumps({"cluster": {"worker": {"1": "w1:2", "3": "w3:4"}},
         "task": {"type": "worker", "index": 3}}), "master", "w3:4"),
    case("indices without gaps make a list", json.dumps({"cluster": {"worker": {"1": "w1:2", "0": "w0:1"}}}),
         "cluster_spec", {"worker": ["w0:1", "w1:2"]}),
    case("a task index that is not a number", json.dumps({"cluster": {"worker": {"x": "w:1"}}}), "cluster_spec",
         fails=("type", "value")),
    case("session_master overrides the cluster", config(session_master="foo:1"), "master", "foo:1"),
    case("without TF_CONFIG there is no cluster", None, "cluster_spec", {}),
    case("without TF_CONFIG there is no task", None, "task_type", None),
    case("without a cluster", '{"task": {"type": "worker", "index": 0}}', "cluster_spec", {}),
    case("text that is not JSON", '{"cluster": ', "cluster_spec", fails=("value",)),
    case("single quotes", "{'cluster': 1}", "task_type", fails=("value",)),
    case("an empty text", "", "cluster_spec", fails=("value",)),
    case("an index that is not a number", config(index="x"), "task_id", fails=("value",)),
    case("tasks that are not a list", '{"cluster": {"worker": "w0:2"}}', "cluster_spec", fails=("type", "value")),
    case("a cluster that is a number", '{"cluster": 5}', "cluster_spec", fails=("type", "value")),
    case("the address of a task that does not exist", config("foo", 0), "master", fails=("value",)),
    case("the address of an index that does not exist", config("ps", 7), "master", fails=("value",)),
]
