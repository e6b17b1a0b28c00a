"""Capabilities: what an implementation may lack, so that it is tested on what it has.

What a case needs is not declared but read off its program, so that no chapter can forget it: a capability is a pattern
of what stands in a program.  These are its *words*: for `tf.data.Dataset.range(4, name="n")` they are `tf.data`,
`tf.data.Dataset`, `tf.data.Dataset.range`, `.data`, `.Dataset`, `.range`, `tf`, `name=` and `"n"`; a statement that
raises has the word `raise`.  What a chapter's preamble only defines counts where the example uses it, however
indirectly.  The strategy is the word `@Mirrored 2`.

What belongs to no capability every implementation must have: `BASIS`.

Few implementations have everything. A profile is a name for the capabilities that implementations of one kind have, so
that such an implementation says one word in place of forty. Cases that need anything else are not asked of it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from .examples import Program

# A capability, what it is, and the words of programs that need it.
ROWS = (
    ("Default", "the default strategy", r"@Default"),
    ("OneDevice", "OneDeviceStrategy", r"@OneDevice|tf\.distribute\.OneDeviceStrategy"),
    ("Mirrored", "MirroredStrategy", r"@Mirrored .*|other|tf\.distribute\.MirroredStrategy"),
    ("Central", "CentralStorageStrategy", r"@Central .*|tf\.distribute\.experimental\.CentralStorageStrategy"),
    ("workers", "several workers: MultiWorkerMirroredStrategy",
     r"@MultiWorker .*|tf\.distribute\.(experimental\.)?(MultiWorkerMirrored|ParameterServer)Strategy(V\d)?"),
    ("replicas on workers", "several workers with several replicas each", r"@MultiWorker \d+x([2-9]|\d\d+)"),
    ("TPUs", "TPUStrategy, on a TPU that is there or simulated",
     r"@TPU .*|tf\.distribute\.(experimental\.)?TPUStrategy|tf\.tpu\.experimental\.\w+_tpu_system"),
    ("topologies", "tf.tpu.experimental: the mesh of a TPU, and the cores of each replica", r"tf\.tpu"),
    ("two strategies", "a second strategy beside the first",
     r"other|tf\.distribute\.(experimental\.)?\w+Strategy(V\d)?|.*\.experimental_set_strategy"),
    ("all_reduce", "ReplicaContext.all_reduce", r"\.all_reduce"),
    ("all_gather", "ReplicaContext.all_gather", r"\.all_gather"),
    ("merge_call", "ReplicaContext.merge_call", r"\.merge_call"),
    ("reduce", "Strategy.reduce", r"\.reduce"),
    ("gather", "Strategy.gather", r"\.gather"),
    ("local results", "Strategy.experimental_local_results and the parts of a distributed value",
     r"\.(experimental_local_results|values)"),
    ("values from functions", "Strategy.experimental_distribute_values_from_function",
     r"\.experimental_distribute_values_from_function"),
    ("variables", "variables and how they are read and assigned",
     r"tf\.Variable.*|\.(assign|assign_add|assign_sub|read_value|is_initialized)"),
    ("ON_READ", "variables that are reduced when they are read", r"\.ON_READ|\"ON_READ\""),
    ("ON_WRITE", "variables whose synchronization is named ON_WRITE", r"\.ON_WRITE|\"ON_WRITE\""),
    ("scatter", "assignments to rows of variables, and reading rows", r"\.(batch_)?(scatter|gather_nd|sparse)_?\w*"),
    ("variable creators", "variable_creator_scope", r"tf\.variable_creator_scope"),
    ("extended", "StrategyExtended", r"\.extended"),
    ("cross-device ops", "the classes that reduce between devices",
     r"tf\.distribute\.(\w+AllReduce|ReductionToOneDevice|CrossDeviceOps)|cross_device_ops="),
    ("options", "options of runs and of communication",
     r"tf\.distribute\.(experimental\.)?(Run|Communication|Collective)\w+|options="),
    ("datasets", "tf.data, and datasets distributed over replicas", r"tf\.data|\.experimental_distribute_dataset"),
    ("dataset functions", "a dataset for each worker, made by a function",
     r"\.(experimental_)?distribute_datasets_from_function|tf\.distribute\.InputContext"),
    ("input options", "tf.distribute.InputOptions and InputReplicationMode", r"tf\.distribute\.Input(Options|Repl.*)"),
    ("iterators", "iterators over distributed datasets", r"iter|next|\.(get_next(_as_optional)?|next)"),
    ("specs", "TensorSpec and its kin", r"tf\.TensorSpec|\.element_spec"),
    ("checkpoints", "tf.train.Checkpoint and its managers", r"tf\.train(\..*)?"),
    ("cluster resolvers", "tf.distribute.cluster_resolver", r"tf\.distribute\.cluster_resolver|\.cluster_resolver"),
    ("random numbers", "tf.random", r"tf\.random"),
    ("losses", "tf.nn", r"tf\.nn"),
    ("nests", "tf.nest", r"tf\.nest"),
    ("devices", "tf.device, the devices of a strategy, tf.config",
     r"tf\.(device|config)|\.(worker_devices|parameter_devices|device)"),
    ("compat", "the names of TensorFlow 1, and deprecated methods",
     r"tf\.compat|\.(unwrap|group|experimental_run|experimental_distribute_datasets_from_function)"),
    ("preemption", "handlers of preemption", r"tf\.distribute\.experimental\.(Preemption\w*|Termination\w*)"),
    ("parameter servers", "ParameterServerStrategy, its partitioners and its coordinator, and servers in one process",
     r"tf\.distribute\.(experimental\.)?(coordinator|ParameterServerStrategy)(\..*)?|tf\.distribute\.Server(\..*)?"
     r"|tf\.distribute\.experimental\.partitioners(\..*)?"),
    ("remote calls", "tf.distribute.experimental.rpc: servers and clients in one process",
     r"tf\.distribute\.experimental\.rpc(\..*)?"),
    ("errors", "the classes of tf.errors", r"tf\.errors"),
    ("IndexedSlices", "tf.IndexedSlices", r"tf\.IndexedSlices"),
    ("dtypes", "dtypes other than float32, int32, int64, bool and string",
     r"tf\.(u?int8|u?int16|uint32|uint64|b?float16|float64|half|double|complex64|complex128)"
     r"|\"(u?int8|u?int16|uint32|uint64|b?float16|float64|complex64|complex128)\""),
    ("exceptions", "exceptions of functions of the program come out of the calls that ran them", r"raise|try"),
    ("threads", "threads of the program", r"threading|\.Thread"),
    ("names", "Python: names, signatures and types of the module",
     r"inspect|hasattr|getattr|dir|isinstance|issubclass|type|callable|\.__\w+__"),
)
TABLE = {name: meaning for name, meaning, _ in ROWS}
BASIS = re.compile(r"tf|tf\.(constant|float32|int32|int64|bool|string|distribute(\.(ReduceOp(\..*)?|ReplicaContext|"
                   r"Strategy|DistributedValues|experimental|get_replica_context|get_strategy|has_strategy|"
                   r"in_cross_replica_context))?)")

_STRATEGIES = {"Default", "OneDevice", "Mirrored", "Central"}
# What a library of collectives has, a library that feeds replicas, and one that trains on them, on one host.
PROFILES = {
    "collectives": ("all_reduce and all_gather between replicas, as PyTorch and JAX have them", frozenset({
        "Mirrored", "all_reduce", "all_gather", "dtypes", "exceptions", "local results"})),
    "datasets": ("datasets that are distributed over the replicas of one host", frozenset({
        *_STRATEGIES, "datasets", "dataset functions", "input options", "iterators", "specs", "local results", "dtypes",
        "exceptions"})),
    "trainer": ("what a training loop on one host calls", frozenset({
        *_STRATEGIES, "all_reduce", "reduce", "variables", "ON_READ", "datasets", "iterators", "losses", "checkpoints",
        "local results", "dtypes", "exceptions"})),
    "one-host": ("everything that needs no other worker, server or TPU, but for older and Python's own names",
                 frozenset(TABLE) - {"workers", "replicas on workers", "TPUs", "topologies", "cluster resolvers",
                                     "preemption", "parameter servers", "remote calls", "compat", "names"}),
}

_PATTERNS = [(name, re.compile(pattern)) for name, _, pattern in ROWS]


def needs(program: Program) -> frozenset[str]:
    """The capabilities without which a program cannot be run."""
    return frozenset[str]().union(*map(_needs_of, words(program)))


@functools.cache
def _needs_of(word: str) -> frozenset[str]:
    return frozenset(name for name, pattern in _PATTERNS if pattern.fullmatch(word))


def words(program: Program) -> frozenset[str]:
    """The words of a program, as the head of this file describes them."""
    preamble = program.preamble.source if program.preamble else ""
    return _words_of(program.example.source, preamble) | {f"@{program.strategy}"}


@functools.cache
def _words_of(example: str, preamble: str) -> frozenset[str]:
    # The same on every strategy.
    always, definitions = _words_of_preamble(preamble)
    used, pending = set[str](), set(_words(ast.parse(example))) | always
    while pending:
        word = pending.pop()
        used.add(word)
        pending |= definitions.get(word, frozenset()) - used
    return frozenset(used)


@functools.cache
def _words_of_preamble(preamble: str) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Those of what is run in any case, and by name those of each definition."""
    always, definitions = set[str](), dict[str, frozenset[str]]()
    for statement in ast.parse(preamble).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and not statement.decorator_list:
            definitions[statement.name] = frozenset(_words(statement))
        else:
            always.update(_words(statement))
    return frozenset(always), definitions


def _words(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield f".{node.attr}"
            path = ast.unparse(node)
            if re.fullmatch(r"tf(\.\w+)+", path):
                yield path
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.keyword) and node.arg:
            yield f"{node.arg}="
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f'"{node.value}"'
        elif isinstance(node, (ast.Raise, ast.Try)):
            yield type(node).__name__.lower()
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.name for alias in node.names)
