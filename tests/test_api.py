"""Names and signatures against TensorFlow 2.21's public API; what is missing is listed by name and topic.

`tables/api.json` holds names, kinds and signatures.  refdist may add parameters at the end.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import refdist

API: dict[str, Any] = json.loads((Path(__file__).parent / "tables" / "api.json").read_text())

# What does not exist yet, by topic.  A name that exists must not stand here.
LATER = {
    "datasets": """
        DistributedDataset.element_spec DistributedDataset.reduce DistributedIterator.element_spec
        DistributedIterator.get_next_as_optional InputContext *.distribute_datasets_from_function
        *.experimental_distribute_datasets_from_function *.make_dataset_iterator *.make_input_fn_iterator
        *.experimental_run *.unwrap *.group *.configure *.update_config_proto Strategy.colocate_vars_with
        *Strategy.colocate_vars_with""",
    "clusters and workers": """
        cluster_resolver cluster_resolver.* MultiWorkerMirroredStrategy experimental.MultiWorkerMirroredStrategy
        Server ParameterServerStrategy experimental.ParameterServerStrategy coordinator coordinator.*
        experimental.coordinator experimental.coordinator.* experimental.partitioners experimental.partitioners.*
        experimental.rpc experimental.rpc.*""",
    "TPUs": "TPUStrategy experimental.TPUStrategy",
    "checkpoints": """
        experimental.PreemptionCheckpointHandler experimental.PreemptionWatcher experimental.TerminationConfig""",
}
# What a program in NumPy has no use for, with the reason.
NOT_PLANNED = {
    "graphs": """
        Variable.count_up_to Variable.eval Variable.from_proto Variable.graph Variable.initial_value
        Variable.initialized_value Variable.initializer Variable.load Variable.op Variable.to_proto
        Variable.SaveSliceInfo Variable.set_shape Variable.experimental_ref IndexedSlices.consumers
        IndexedSlices.graph IndexedSlices.name IndexedSlices.op IndexedSlices.device""",
    "indexing that NumPy writes with brackets": """
        Variable.gather_nd Variable.scatter_nd_add Variable.scatter_nd_sub Variable.scatter_nd_update""",
}
# Parameters that have no meaning here.
PARAMETERS_LEFT_OUT = {
    "constant": {"shape", "name"},
    "nest.flatten": {"expand_composites"},
    "nest.map_structure": {"kwargs"},
    "nest.pack_sequence_as": {"expand_composites"},
    "nest.assert_same_structure": {"check_types", "expand_composites"},
}
HERE = ("tf.distribute.", "tf.Variable", "tf.variable_creator_scope", "tf.IndexedSlices", "tf.device", "tf.constant",
        "tf.nest.")


def short(name: str) -> str:
    return name.removeprefix("tf.distribute.").removeprefix("tf.")


def entries() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, entry in API.items():
        if not name.startswith(HERE):
            continue
        found[short(name)] = entry
        for member, signature in entry.get("members", {}).items():
            found[f"{short(name)}.{member}"] = {"kind": "member", "signature": signature}
    return found


ENTRIES = entries()


def listed(name: str, lists: dict[str, str]) -> bool:
    patterns = " ".join(lists.values()).split()
    parents = [name, *(name[:i] for i, letter in enumerate(name) if letter == ".")]
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", r"[\w.]+"), parent)
               for pattern in patterns for parent in parents)


def lookup(name: str) -> Any:
    found: Any = refdist
    for part in name.split("."):
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    return found


def exists(name: str) -> bool:
    try:
        lookup(name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("name", ENTRIES)
def test_every_public_name_exists_or_is_listed(name: str) -> None:
    missing = listed(name, LATER) or listed(name, NOT_PLANNED)
    assert exists(name) != missing, f"{name} " + ("exists; take it from the list" if missing else "is missing")


def parameters(signature: str) -> list[tuple[str, str]]:
    inner = signature[1:signature.rindex(")")]
    found, depth, current = [], 0, ""
    for letter in inner + ",":
        if letter == "," and depth == 0:
            if current.strip() not in ("", "self", "cls", "/", "*"):
                name, _, default = current.strip().partition("=")
                found.append((name.split(":")[0].strip().lstrip("*"), default.strip()))
            current = ""
            continue
        depth += (letter in "([{<") - (letter in ")]}>")
        current += letter
    return found


CALLABLE = {name: entry.get("init") or entry.get("signature") for name, entry in ENTRIES.items()
            if (entry.get("init") or entry.get("signature") or "").startswith("(")}


@pytest.mark.parametrize("name", [name for name in CALLABLE if exists(name)
                                  and ENTRIES[name]["kind"] != "enum"])
def test_every_signature_is_tensorflow_s(name: str) -> None:
    found = lookup(name)
    if isinstance(found, staticmethod):
        found = found.__func__
    if name == "Variable":
        from refdist.variables import _create as found
    mine = [(parameter.name, parameter.default) for parameter in inspect.signature(found).parameters.values()
            if parameter.name != "self"]
    wanted = [(parameter, default) for parameter, default in parameters(CALLABLE[name])
              if parameter not in PARAMETERS_LEFT_OUT.get(name, ())]
    if name == "device":
        wanted = [("device_name", "")]
    assert [parameter for parameter, _ in mine[:len(wanted)]] == [parameter for parameter, _ in wanted]
    for (parameter, default), (_, theirs) in zip(mine, wanted, strict=False):
        has = default is not inspect.Parameter.empty
        assert has == bool(theirs), f"{name}({parameter}): one has a default, the other has none"
        if theirs in ("None", "True", "False", "()", "0", "1"):
            assert repr(default) == theirs, f"{name}({parameter})"


def test_enums_have_the_same_members() -> None:
    assert [op.value for op in refdist.ReduceOp] == ["SUM", "MEAN"]
    assert [(a.name, a.value) for a in refdist.VariableAggregation] == [
        ("NONE", 0), ("SUM", 1), ("MEAN", 2), ("ONLY_FIRST_REPLICA", 3)]
    assert [(s.name, s.value) for s in refdist.VariableSynchronization] == [
        ("AUTO", 0), ("NONE", 1), ("ON_WRITE", 2), ("ON_READ", 3)]
    assert [c.name for c in refdist.experimental.CommunicationImplementation] == ["AUTO", "RING", "NCCL"]


def test_everything_public_is_documented() -> None:
    bare = []
    for name in refdist.__all__:
        found = getattr(refdist, name)
        if not inspect.getdoc(found):
            bare.append(name)
        if inspect.isclass(found):
            bare += [f"{name}.{member}" for member, value in vars(found).items()
                     if not member.startswith("_") and (callable(value) or isinstance(value, property))
                     and not inspect.getdoc(value)]
    assert not bare
