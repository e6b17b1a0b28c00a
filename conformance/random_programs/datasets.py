"""Operations of random programs on datasets: their transformations, and what strategies distribute.

A dataset that is only iterated over is a chain of transformations, each from one form of elements to another.
"""

from __future__ import annotations

from refdist.conformance.random_programs.writer import OPS, Writer

ROWS = {
    "numbers": ("tf.data.Dataset.range({rows})", "x"),
    "rows": ("tf.data.Dataset.from_tensor_slices([[1.0, 2.0]] * {rows}).map(lambda row: row * 2.0)", "x"),
    "dictionaries": ('tf.data.Dataset.range({rows}).map(lambda i: {{"a": i, "b": (i + 1, i * 2)}})', 'x["b"][1]'),
}


def _pipeline(w: Writer, batches: bool) -> tuple[str, str, str]:
    """A dataset: what it has, its expression, and what is an array in its element `x`."""
    what = w.pick(*ROWS)
    source, part = ROWS[what]
    source = source.format(rows=w.number(0, 17))
    if batches:
        drop = w.pick("", "", ", drop_remainder=True")
        least = w.count if not w.chance(6) else 1
        source += f".batch({w.number(least, least + 8)}{drop})"
        what += " in batches" + (" without remainder" if drop else "")
    more = w.pick("", "", ".repeat(2)", ".take(2)", ".skip(1)", ".prefetch(1)", ".concatenate(tf.data.Dataset.range(2))"
                  if what == "numbers" else ".shard(2, 1)")
    if w.chance(8):
        more += ".with_options(options)"
        w.say("options = tf.data.Options()",
              "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy."
              + w.pick("AUTO", "DATA", "OFF"))
        what += " with a policy"
    return what, source + more, part


def dataset(w: Writer) -> None:
    w.operation("a dataset")
    what, source, part = _pipeline(w, not w.chance(8))
    w.operation(f"a dataset of {what}")
    name = w.name("d")
    w.say(f"{name} = strategy.experimental_distribute_dataset({source})")
    _iterated(w, name, part, f"a dataset of {what}")


def dataset_from_function(w: Writer) -> None:
    w.operation("a dataset function")
    what, source, part = _pipeline(w, w.chance(2))
    source += w.pick("", "", ".shard(context.num_input_pipelines, context.input_pipeline_id)")
    w.operation(f"a dataset function of {what}")
    name = w.name("d")
    function = w.function(f"return {source}", arguments="context", kind="dataset_fn_")
    w.say(f"{name} = strategy.distribute_datasets_from_function({function})")
    _iterated(w, name, part, f"a dataset function of {what}")


def _iterated(w: Writer, name: str, part: str, what: str) -> None:
    # What a `map` makes of a spec, only TensorFlow can know.
    how = w.pick("list", "list", "iterator", "optional", "run", "reduce", "twice",
                 "spec" if "numbers" in what else "list")
    w.operation(f"{what}, {how}")
    if how == "iterator":
        iterator = w.name("i")
        w.say(f"{iterator} = iter({name})", *[f"next({iterator})"] * w.number(1, 4))
    elif how == "optional":
        iterator, optional = w.name("i"), w.name("o")
        w.say(f"{iterator} = iter({name})", f"{optional} = {iterator}.get_next_as_optional()",
              f"strategy.experimental_local_results({optional}.has_value())", f"{optional}.get_value()")
    elif how == "run":
        function = w.function(f"return {part} * 2", arguments="x")
        w.say(f"[strategy.run({function}, args=(x,)) for x in {name}]")
    elif how == "reduce":
        function = w.function(f"return {part}", arguments="x")
        w.say(f"[strategy.reduce({w.pick(*OPS)}, strategy.run({function}, args=(x,)), axis=0) for x in {name}]")
    elif how == "spec":
        w.say(f"{name}.element_spec")
    else:
        w.say(*[f"list({name})"] * (2 if how == "twice" else 1))


# What elements are, by the datasets that begin a chain.
SOURCES = {
    "number": "tf.data.Dataset.range({n})",
    "vector": "tf.data.Dataset.from_tensor_slices([[1.5, 2.0], [3.0, 4.5], [5.0, 6.0], [7.0, 8.5]])",
    "length": "tf.data.Dataset.from_generator(lambda: ([i + 1] * (i % 3) for i in range({n})), "
              "output_signature=tf.TensorSpec([None], tf.int32))",
    "pair": "tf.data.Dataset.from_tensor_slices(([1, 2, 3, 4, 5], [[1.0], [2.0], [3.0], [4.0], [5.0]]))",
    "dictionary": 'tf.data.Dataset.range({n}).map(lambda i: {{"a": i, "b": (i + 1, i * 2)}})',
    "numbers": "tf.data.Dataset.range({n}).batch({m})",
}
# A name; the kind of elements that are transformed, "" for any; the kind that they become, "" for the same; the text.
TRANSFORMATIONS = (
    ("map", "number", "", ".map(lambda x: x * 3 - 1)"),
    ("map", "vector", "", ".map(lambda x: x * 0.5)"),
    ("map", "number", "couple", ".map(lambda x: (x, x * 2))"),
    ("map", "pair", "dictionary", '.map(lambda x, y: {{"a": x, "b": (x, y)}})'),
    ("map", "couple", "dictionary", '.map(lambda x, y: {{"a": x + y, "b": (x, y)}})'),
    ("filter", "number", "", ".filter(lambda x: x % {m} == 0)"),
    ("take_while", "number", "", ".take_while(lambda x: x < {n})"),
    ("flat_map", "number", "", ".flat_map(lambda x: tf.data.Dataset.range(x))"),
    ("interleave", "number", "", ".interleave(lambda x: tf.data.Dataset.range(x), cycle_length={m}, block_length={k})"),
    ("scan", "number", "", ".scan(tf.constant({n}, tf.int64), lambda state, x: (state + x, state * 2 - x))"),
    ("window", "number", "", ".window({m}, shift={k}).flat_map(lambda part: part)"),
    ("window with stride", "number", "numbers",
     ".window({m}, shift={k}, stride={k}, drop_remainder=True).flat_map(lambda part: part.batch({m}))"),
    ("batch", "number", "numbers", ".batch({m})"),
    ("batch", "vector", "vectors", ".batch({m}, drop_remainder=True)"),
    ("batch", "pair", "pairs", ".batch({m})"),
    ("batch", "dictionary", "dictionaries", ".batch({m})"),
    ("batch", "couple", "couples", ".batch({m})"),
    ("batch", "length", "lengths", ".batch({m})"),
    ("padded_batch", "length", "lengths", ".padded_batch({m})"),
    ("padded_batch with values", "length", "lengths", ".padded_batch({m}, padded_shapes=[4], padding_values=-1)"),
    ("padded_batch", "number", "numbers", ".padded_batch({m})"),
    ("padded_batch without values", "pair", "pairs", ".padded_batch({m}, padded_shapes=([], [2]))"),
    ("padded_batch with some values", "pair", "pairs",
     ".padded_batch({m}, padded_shapes=([], [2]), padding_values=(7, None))"),
    ("padded_batch without remainder", "length", "lengths", ".padded_batch({m}, drop_remainder=True)"),
    ("unbatch", "numbers", "number", ".unbatch()"),
    ("unbatch", "pairs", "pair", ".unbatch()"),
    ("unbatch", "vector", "scalar", ".unbatch()"),
    ("unbatch", "couples", "couple", ".unbatch()"),
    ("unbatch", "dictionaries", "dictionary", ".unbatch()"),
    ("rebatch", "numbers", "", ".rebatch({m})"),
    ("rebatch to sizes", "numbers", "", ".rebatch([{m}, {k}], drop_remainder=True)"),
    ("rebatch", "pairs", "", ".rebatch({k})"),
    ("zip", "number", "couple", ".zip(tf.data.Dataset.range({n}).map(lambda x: x * 10))"),
    ("concatenate", "number", "", ".concatenate(tf.data.Dataset.range({m}))"),
    ("enumerate", "number", "couple", ".enumerate(start={k})"),
    ("repeat", "", "", ".repeat({k})"),
    ("take", "", "", ".take({n})"),
    ("skip", "", "", ".skip({k})"),
    ("shard", "", "", ".shard({m}, 1)"),
    ("cache", "", "", ".cache()"),
    ("prefetch", "", "", ".prefetch({k})"),
    ("shuffle of one", "", "", ".shuffle(1, seed={k})"),
    ("options", "", "", ".with_options(tf.data.Options())"),
)
# How a dataset that is not distributed is looked at.
LOOKS = {
    "list": "list({})", "cardinality": "{}.cardinality()", "single": "{}.take(1).get_single_element()",
    "numpy": "list({}.as_numpy_iterator())",
    "reduce": "{}.reduce(0, lambda count, _: count + 1)",
}


def transformed(w: Writer) -> None:
    """A chain of transformations, the elements after each of them, and another way to look at the last."""
    form = w.pick(*SOURCES)
    name = w.name("t")
    w.operation(f"a dataset of {form}")
    w.say(f"{name} = {_numbered(w, SOURCES[form])}")
    for _ in range(w.number(1, 4)):
        what, _, after, source = w.choose([row for row in TRANSFORMATIONS if row[1] in ("", form)])
        w.operation(f"{what} of {form}")
        form = after or form
        previous, name = name, w.name("t")
        w.say(f"{name} = {previous}{_numbered(w, source)}", f"list({name})")
    look = w.pick(*LOOKS)
    w.operation(f"{look} of a dataset of {form}")
    w.say(LOOKS[look].format(name))


def mixed(w: Writer) -> None:
    """A dataset made of several."""
    sources = ", ".join(_numbered(w, SOURCES["number"]) for _ in range(w.number(2, 3)))
    call = w.pick("zip", "choose_from_datasets", "sample_from_datasets")
    w.operation(call)
    w.say(f"list(tf.data.Dataset.{call}(({sources})))" if call == "zip" else
          f"list(tf.data.Dataset.{call}([{sources}], weights=[1.0] + [0.0] * {sources.count('range') - 1}))"
          if call == "sample_from_datasets" else
          f"list(tf.data.Dataset.{call}([{sources}], tf.data.Dataset.range({sources.count('range')})"
          f".repeat({w.number(1, 4)}), stop_on_empty_dataset={w.pick('True', 'False')}))")


def _numbered(w: Writer, source: str) -> str:
    return source.format(n=w.number(0, 9), m=w.number(1, 4), k=w.number(1, 3))


OPERATIONS = (dataset, dataset, dataset_from_function, transformed, transformed, mixed)
