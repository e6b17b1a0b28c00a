"""Names and signatures against TensorFlow 2.21's public API; what is missing is listed by name and topic.

`tables/api.json` holds names, kinds and signatures.  refdist may add keyword-only parameters at the end.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import tf
from refdist.missing import INSTEAD, Missing
from refdist.tf.names import INSTEAD as IN_TENSORFLOW_S_WORDS
from refdist.tf.names import LATER
from refdist.variables import creation

API: dict[str, Any] = json.loads((Path(__file__).parent / "tables" / "api.json").read_text())["names"]

# What a program in NumPy has no use for, with the reason.
NOT_PLANNED = {
    "graphs": """
        Variable.count_up_to Variable.eval Variable.from_proto Variable.graph Variable.initial_value
        Variable.initialized_value Variable.initializer Variable.load Variable.op Variable.to_proto
        Variable.SaveSliceInfo Variable.set_shape Variable.experimental_ref IndexedSlices.consumers
        IndexedSlices.graph IndexedSlices.name IndexedSlices.op""",
    "NumPy's arrays, which have no logical device": "IndexedSlices.device",
    "TPU hardware": """
        cluster_resolver.TPUClusterResolver.set_tpu_topology
        cluster_resolver.TPUClusterResolver.tpu_hardware_feature""",
    "protocol buffers": "train.ClusterSpec.as_cluster_def",
    "distributions that NumPy's own generators have": "random.Generator.binomial",
    "hints to graph rewriters": "data.experimental.DistributeOptions.num_devices",
    "sparse and ragged tensors": "data.Dataset.ragged_batch data.Dataset.sparse_batch",
    "functions that are graphs": "data.Dataset.fingerprint",
    "what a generator or a NumPy program does in a line": """
        data.Dataset.counter data.Dataset.ignore_errors data.Dataset.load data.Dataset.save data.Dataset.snapshot""",
}
# Parameters that have no meaning here.
PARAMETERS_LEFT_OUT = {
    "constant": {"shape", "name"},
    "nest.map_structure": {"kwargs"},
    "data.Dataset.map": {"synchronous", "use_unbounded_threadpool"},
    "data.Dataset.range": {"kwargs"},  # output_type and name, by name
    "data.DatasetSpec": {"dataset_shape"},
}
# Defaults that are written in another way, with the reason.
OTHER_DEFAULTS = {
    ("cluster_resolver.GCEClusterResolver", "port"): "8470",  # which the page says, and the signature does not
    **{(f"random.Generator.{name}", "dtype"): f"<class 'numpy.{dtype}'>" for name, dtype in (
        ("normal", "float32"), ("truncated_normal", "float32"), ("uniform", "float32"),
        ("uniform_full_int", "uint64"))},  # dtypes are NumPy's
}
# More parameters than TensorFlow's that can also be given by position, with the reason.
POSITIONAL = {
    "experimental.CollectiveHints": "another name of CommunicationOptions",
    "InputOptions": "its fields are those of a named tuple",
    "data.experimental.DistributeOptions": "a dataclass whose fields can be given when it is made",
}


def short(name: str) -> str:
    return name.removeprefix("tf.distribute.").removeprefix("tf.")


def entries() -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, entry in API.items():
        members[short(name)] = entry
        for member, signature in entry.get("members", {}).items():
            kind = "function" if signature.startswith("(") else signature
            members[f"{short(name)}.{member}"] = {"kind": kind, "signature": signature}
    return members


ENTRIES = entries()


def patterns(lists: dict[str, str]) -> list[str]:
    return " ".join(lists.values()).split()


def covers(pattern: str, name: str) -> bool:
    """Whether the pattern names this entry or what it is a member of."""
    parents = [name, *(name[:i] for i, letter in enumerate(name) if letter == ".")]
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", r"[\w.]*"), parent) for parent in parents)


def listed(name: str, lists: dict[str, str]) -> bool:
    return any(covers(pattern, name) for pattern in patterns(lists))


def lookup(name: str) -> Any:
    member: Any = refdist
    for part in name.split("."):
        member = inspect.getattr_static(member, part) if inspect.isclass(member) else getattr(member, part)
    return member


def exists(name: str) -> bool:
    try:
        return not isinstance(lookup(name), Missing)
    except AttributeError:
        return False


PUBLIC = [
    "refdist", "refdist.tf", "refdist.compat", "refdist.compat.v1", "refdist.compat.v1.distribute",
    "refdist.compat.v1.distribute.experimental", "refdist.compat.v2", "refdist.config", "refdist.cluster_resolver",
    "refdist.coordinator", "refdist.data", "refdist.data.experimental", "refdist.errors", "refdist.experimental",
    "refdist.experimental.rpc", "refdist.experimental.partitioners", "refdist.insight", "refdist.nest", "refdist.nn",
    "refdist.random", "refdist.random.experimental", "refdist.tpu", "refdist.tpu.experimental", "refdist.train",
]

# They also have Keras, and operations; tests/test_tensorflow_face.py.
FACES = {"refdist.tf", "refdist.compat.v2"}


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_missing_is_not_there_and_the_porting_table_says_what_to_write(name: str) -> None:
    assert not hasattr(refdist, name) and name not in refdist.__all__
    assert f"`{name}`" in (Path(__file__).parents[1] / "docs" / "porting.md").read_text()
    # A module may be called `summary`, or import `math`.
    for module in [module_at(public) for public in PUBLIC
                   if public not in FACES or name not in {*LATER, *IN_TENSORFLOW_S_WORDS}]:
        if name in vars(module):
            continue
        with pytest.raises(AttributeError, match=rf"\[RD20\] {module.__name__}.{name}") as caught:
            getattr(module, name)
        assert INSTEAD[name] in str(caught.value)


def module_at(path: str) -> Any:
    module: Any = refdist
    for part in path.split(".")[1:]:
        module = getattr(module, part)
    assert isinstance(module, ModuleType)
    return module


@pytest.mark.parametrize("public", [public for public in PUBLIC if public not in FACES])
def test_a_name_of_numpy_s_points_at_numpy(public: str) -> None:
    for name in ("reshape", "add", "matmul", "stack"):
        with pytest.raises(AttributeError, match=rf"RD20.*{name}. Write `np.{name}`"):
            getattr(module_at(public), name)


def test_a_name_that_is_missing_cannot_be_imported_either() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Session' from 'refdist\.tf'"):
        from refdist.tf import Session  # noqa: F401


def test_what_is_written_instead_is_there() -> None:
    for advice in {*INSTEAD.values()}:
        for package, path in re.findall(r"`(np|refdist)((?:\.\w+)+)", advice):
            if not path.endswith(".X"):
                functools.reduce(getattr, path[1:].split("."), {"np": np, "refdist": refdist}[package])


def test_what_dir_shows_of_a_module_is_what_it_offers() -> None:
    for public in PUBLIC:
        module = module_at(public)
        if public not in FACES and hasattr(module, "__all__"):
            assert [name for name in dir(module) if not name.startswith("__")] == sorted(module.__all__), public


def test_the_names_of_tensorflow_2_are_at_its_path_too() -> None:
    """As pages print aliases: tf.compat.v2.distribute.experimental.CentralStorageStrategy."""
    v2 = tf.compat.v2
    assert {name: getattr(v2, name) for name in tf.__all__} == {name: getattr(tf, name) for name in tf.__all__}
    assert v2.__all__ == tf.__all__ and v2.distribute is refdist and refdist.compat.v2 is v2
    assert v2.distribute.experimental.CentralStorageStrategy is refdist.experimental.CentralStorageStrategy
    subprocess.run([sys.executable, "-c", "import refdist.compat.v2 as tf; tf.distribute.MirroredStrategy(['GPU:0'])"],
                   check=True)


@pytest.mark.parametrize("name", ["make_dataset_iterator_dyn", "make_input_fn_iterator_dyn"])
def test_overloads_of_another_language_say_which_method_is_meant(name: str) -> None:
    strategy = refdist.OneDeviceStrategy("CPU:0")
    assert not hasattr(strategy, name) and hasattr(strategy, name.removesuffix("_dyn"))
    with pytest.raises(AttributeError, match=rf"\[RD20\] OneDeviceStrategy.{name}: .*Leave `_dyn` out"):
        getattr(strategy, name)
    with pytest.raises(AttributeError, match=r"^'OneDeviceStrategy' object has no attribute 'make_dataset_iter'"):
        strategy.make_dataset_iter  # noqa: B018


def test_a_name_that_is_nowhere_is_python_s_own_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'refdist' has no attribute 'MirroredStrateg'$") as caught:
        lookup("MirroredStrateg")
    assert not isinstance(caught.value, refdist.errors.RefdistError)
    assert (caught.value.name, caught.value.obj) == ("MirroredStrateg", refdist)


def test_the_names_of_older_versions_need_no_import_of_their_own() -> None:
    program = ("import refdist\n"
               "v1 = refdist.compat.v1.distribute\n"
               "assert issubclass(v1.MirroredStrategy, refdist.MirroredStrategy)\n"
               "assert v1.experimental.CentralStorageStrategy and v1.cluster_resolver.UnionResolver\n"
               "assert v1.get_loss_reduction() is refdist.ReduceOp.SUM\n")
    subprocess.run([sys.executable, "-c", program], check=True)
    names = """CrossDeviceOps HierarchicalCopyAllReduce InputContext InputReplicationMode MirroredStrategy NcclAllReduce
        OneDeviceStrategy ReduceOp ReductionToOneDevice ReplicaContext RunOptions Strategy StrategyExtended
        cluster_resolver experimental experimental_set_strategy get_loss_reduction get_replica_context get_strategy
        has_strategy in_cross_replica_context"""
    assert [name for name in names.split() if not hasattr(refdist.compat.v1.distribute, name)] == []


@pytest.mark.parametrize("name", [
    "AbortedError", "AlreadyExistsError", "CancelledError", "DataLossError", "FailedPreconditionError", "InternalError",
    "InvalidArgumentError", "NotFoundError", "OpError", "OutOfRangeError", "ResourceExhaustedError", "UnavailableError",
    "UnimplementedError", "UnknownError"])
def test_programs_catch_errors_by_tensorflow_s_names(name: str) -> None:
    with pytest.raises(getattr(tf.errors, name)):
        raise getattr(refdist.errors, name)("lost", "RD01")
    assert issubclass(getattr(tf.errors, name), tf.errors.OpError)


def test_the_two_multi_worker_strategies_are_instances_of_each_other() -> None:
    """TensorFlow's `isinstance` takes one for the other; subclasses are not."""
    newer, older = refdist.MultiWorkerMirroredStrategy, refdist.experimental.MultiWorkerMirroredStrategy
    assert isinstance(newer(), older) and issubclass(older, newer) and not issubclass(newer, older)
    with pytest.warns(DeprecationWarning):
        made = older()
    assert isinstance(made, newer) and isinstance(made, older) and type(made) is older
    assert not isinstance(refdist.MirroredStrategy(["CPU:0"]), older)


@pytest.mark.parametrize("strategy", [
    refdist.MirroredStrategy(["GPU:0", "GPU:1"]), refdist.OneDeviceStrategy("CPU:0"), refdist.get_strategy(),
    refdist.CentralStorageStrategy(["GPU:0"]), refdist.MultiWorkerMirroredStrategy(),
], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(("method", "arguments"), [
    ("assign_to_logical_device", (1.0, 0)), ("split_to_logical_devices", (1.0, [1])),
    ("replicate_to_logical_devices", (1.0,))])
def test_logical_devices_of_a_replica_are_tpu_strategy_s(strategy: Any, method: str, arguments: Any) -> None:
    """The pages of older versions list the methods for every strategy."""
    with pytest.raises(NotImplementedError, match=rf"RD20.*{type(strategy).__name__}.experimental_{method}.*TPUStrategy"
                                                  ".*Leave the call out"):
        getattr(strategy, f"experimental_{method}")(*arguments)
    assert list(inspect.signature(getattr(refdist.Strategy, f"experimental_{method}")).parameters)[1:] == {
        "assign_to_logical_device": ["tensor", "logical_device_id"],
        "split_to_logical_devices": ["tensor", "partition_dimensions"],
        "replicate_to_logical_devices": ["tensor"]}[method]


def test_every_public_name_exists_or_is_listed() -> None:
    assert [name for name in ENTRIES if not exists(name) and not listed(name, NOT_PLANNED)] == [], "missing"
    assert [name for name in ENTRIES if exists(name) and listed(name, NOT_PLANNED)] == [], "take it from the list"


def test_every_name_on_the_lists_is_tensorflow_s() -> None:
    unknown = [pattern for pattern in patterns(NOT_PLANNED) if not any(covers(pattern, name) for name in ENTRIES)]
    assert not unknown


def kind(member: Any) -> str:
    if isinstance(member, ModuleType):
        return "module"
    if inspect.isclass(member):
        return "enum" if issubclass(member, enum.Enum) else "class"
    if callable(member) or isinstance(member, (classmethod, staticmethod)):
        return "function"
    return "property"


def test_every_name_is_the_kind_of_thing_it_is_in_tensorflow() -> None:
    scopes = ("device", "variable_creator_scope")
    assert all(hasattr(lookup(name), "__enter__") for name in scopes)
    there = {name: entry["kind"] for name, entry in ENTRIES.items() if exists(name) and name not in scopes}
    wanted = {name: {"attribute": "property"}.get(what, what) for name, what in there.items()}
    assert len(wanted) > 500 and {name: kind(lookup(name)) for name in wanted} == wanted


def parameters(signature: str) -> list[tuple[str, str]]:
    inner = signature[1:signature.rindex(")")]
    parsed, depth, current = [], 0, ""
    for letter in inner + ",":
        if letter == "," and depth == 0:
            if current.strip() not in ("", "self", "cls", "/", "*"):
                name, _, default = current.strip().partition("=")
                parsed.append((name.split(":")[0].strip().lstrip("*"), default.strip()))
            current = ""
            continue
        depth += (letter in "([{<") - (letter in ")]}>")
        current += letter
    return parsed


CALLABLE = {name: entry.get("init") or entry.get("signature") for name, entry in ENTRIES.items()
            if (entry.get("init") or entry.get("signature") or "").startswith("(")}


def test_every_signature_is_tensorflow_s() -> None:
    there = [name for name in CALLABLE if exists(name)]
    assert len(there) > 300
    for name in there:
        check_signature(name)


def check_signature(name: str) -> None:
    function = lookup(name)
    if isinstance(function, (classmethod, staticmethod)):
        function = function.__func__
    if name == "Variable":
        function = creation.VariableSpec
    own = [parameter for parameter in inspect.signature(function).parameters.values()
           if parameter.name not in ("self", "cls")]
    wanted = [(parameter, default) for parameter, default in parameters(CALLABLE[name])
              if parameter not in PARAMETERS_LEFT_OUT.get(name, ())]
    assert [parameter.name for parameter in own[:len(wanted)]] == [parameter for parameter, _ in wanted], name
    for parameter, (_, default) in zip(own, wanted, strict=False):
        here = "" if parameter.default is parameter.empty else parameter.default
        there = OTHER_DEFAULTS.get((name, parameter.name), default)
        assert there in (repr(here), str(here)), f"{name}({parameter}): TensorFlow has {there or 'no default'}"
        by_name = own[0].kind is parameter.VAR_POSITIONAL  # what comes after *args
        assert by_name or parameter.kind is not parameter.KEYWORD_ONLY, f"{name}({parameter}) by position"
    more = [parameter for parameter in own[len(wanted):] if parameter.kind is not parameter.KEYWORD_ONLY]
    assert bool(more) == (name in POSITIONAL), f"{name}: {more}"


def test_type_checkers_see_the_signature_of_variable_that_is_carried_out() -> None:
    tree = ast.parse(inspect.getsource(refdist.Variable))
    [init] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    arguments, defaults = init.args.args[1:] + init.args.kwonlyargs, init.args.defaults + init.args.kw_defaults
    seen = [argument.arg for argument in arguments], [ast.unparse(value) for value in defaults if value]
    spec = inspect.signature(creation.VariableSpec).parameters.values()
    assert seen == ([parameter.name for parameter in spec], [str(parameter.default) for parameter in spec])


@pytest.mark.parametrize("name", PARAMETERS_LEFT_OUT)
def test_parameters_left_out_are_tensorflow_s_and_are_left_out(name: str) -> None:
    left_out = PARAMETERS_LEFT_OUT[name]
    assert left_out <= {parameter for parameter, _ in parameters(CALLABLE[name])}
    assert not left_out & set(inspect.signature(lookup(name)).parameters)


@pytest.mark.parametrize("name", [name for name in ENTRIES if ENTRIES[name]["kind"] == "enum" and exists(name)])
def test_enums_have_the_same_members_in_the_same_order(name: str) -> None:
    assert [(member.name, member.value) for member in lookup(name)] == [*ENTRIES[name]["values"].items()]


def test_a_checkout_is_no_part_of_the_package() -> None:
    """Or who imports all modules finds refdist in refdist, and again in that, and never comes to an end."""
    assert {"refdist", "tests", "docs"}.isdisjoint(module.name for module in pkgutil.iter_modules(refdist.__path__))


@pytest.mark.parametrize("first, collects", [("", "True"), ("gc.disable()", "False")])
def test_whether_a_program_collects_garbage_is_up_to_it(first: str, collects: str) -> None:
    source = f"import gc\n{first}\nimport refdist, sys\nprint(gc.isenabled(), 'numpy.random' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [collects, "False"], "and NumPy's generators are imported by who uses them"


def test_everything_public_is_documented() -> None:
    bare = []
    for name in refdist.__all__:
        public = getattr(refdist, name)
        if not inspect.getdoc(public):
            bare.append(name)
        if inspect.isclass(public):
            bare += [f"{name}.{member}" for member, value in vars(public).items()
                     if not member.startswith("_") and (callable(value) or isinstance(value, property))
                     and not inspect.getdoc(value)]
    assert not bare
