"""Run by `make wheel` with the interpreter that has the wheel installed, outside the checkout."""

import importlib
import importlib.util
import sys
from pathlib import Path

import refdist

checkout = Path(sys.argv[1])
place = Path(refdist.__file__)
assert "site-packages" in place.parts, place
modules = [path.relative_to(checkout) for folder in ("refdist", "backends", "conformance")
           for path in (checkout / folder).rglob("*.py")]
for path in modules:
    parts = path.with_suffix("").parts
    parts = parts if parts[0] == "refdist" else ("refdist", *parts)
    name = ".".join(parts).removesuffix(".__init__")
    # What needs another library is there, and can be imported beside that one.
    spec = importlib.util.find_spec(name)
    assert spec and Path(spec.origin or "").is_relative_to(place.parent), name
    if not {"jax", "torch"} & set(parts) and not name.startswith((
            "refdist.tf.computed", "refdist.tf.folders", "refdist.tf.groups", "refdist.tf.images",
            "refdist.tf.matrices", "refdist.tf.windows", "refdist.tf.keras.",
            "refdist.tf.testing", "refdist.tf.vocabularies", "refdist.conformance.trainers.testees.",
            "refdist.conformance.trainers.evidence.")):
        importlib.import_module(name)
data = [path.relative_to(checkout) for folder in ("refdist", "backends", "conformance")
        for path in (checkout / folder).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
        and path.name not in ("pyproject.toml", "LICENSE")]  # of the wheel of the suite alone
for path in data:
    assert (place.parent / str(path).removeprefix("refdist/")).exists(), path
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
result = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
assert [float(value) for value in result.values] == [2.0, 2.0]
from refdist.conformance.__main__ import main  # noqa: E402

assert main(["-k", "gather or checkpoints.mirrored"]) == 0
print(f"{len(modules)} modules and {len(data)} other files of the wheel are there and work outside the checkout")
