"""Operations of random programs on checkpoints: what is written, changed, and read into other objects."""

from __future__ import annotations

from refdist.conformance.random_programs.writer import Writer

# How a status is asked whether all has been restored.
ASSERTIONS = ("assert_consumed", "assert_existing_objects_matched", "assert_nontrivial_match", "expect_partial")


def _objects(w: Writer) -> tuple[str, str]:
    """Arguments of a Checkpoint, and what they are called."""
    names = [w.variable().name for _ in range(w.number(1, 3))]
    arguments = [f"{key}={name}" for key, name in zip("abc", names, strict=False)]
    if w.chance(3):
        names.append(w.variable().name)
        form = w.pick("model=tf.train.Checkpoint(kernel={})", "items=[{}]", 'table={{"k": {}}}')
        arguments.append(form.format(names[-1]))
    return ", ".join(arguments), "a variable under two names" if len(set(names)) < len(names) else "variables"


def _change(w: Writer) -> None:
    for v in w.variables:
        w.say(f"_ = {v.name}.assign({w.constant(v.shape, v.dtype)})")


def _look(w: Writer) -> None:
    w.say(*(f"{v.name}.read_value()" for v in w.variables))


def written_and_read(w: Writer) -> None:
    """A file of `write` or `save`, read into the same objects or into others."""
    objects, what = _objects(w)
    writes = w.pick("write", "save")
    others, form = (objects, "the same") if w.chance(2) else (_objects(w)[0], "others")
    reads = w.pick("read", "restore") if writes == "write" else "restore"
    w.operation(f"a checkpoint of {what}, {writes}, {reads} into {form}")
    file, status, checkpoint = w.name("file"), w.name("status"), w.name("c")
    w.say(f"{checkpoint} = tf.train.Checkpoint({objects})", f"{file} = {checkpoint}.{writes}(path())")
    _change(w)
    reader = checkpoint if form == "the same" and w.chance(2) else f"tf.train.Checkpoint({others})"
    w.say(f"{status} = {reader}.{reads}({file})", *(f"_ = {status}.{assertion}()" for assertion in ASSERTIONS))
    _look(w)


def counted(w: Writer) -> None:
    """A checkpoint that is written and saved, so that one of its files has a counter and the other has not."""
    objects, what = _objects(w)
    w.operation(f"a checkpoint of {what}, written and then saved")
    checkpoint, first, second = w.name("c"), w.name("file"), w.name("file")
    w.say(f"{checkpoint} = tf.train.Checkpoint({objects})", f"{first} = {checkpoint}.write(path())",
          f"{second} = {checkpoint}.save(path())")
    for call in (f"read({first})", f"restore({second})", f"restore({first})"):
        w.say(f"_ = {checkpoint}.{call}.assert_consumed()", f"{checkpoint}.save_counter.numpy()")


def managed(w: Writer) -> None:
    """A manager that keeps the last files."""
    objects, what = _objects(w)
    w.operation(f"a manager of a checkpoint of {what}")
    manager, checkpoint = w.name("manager"), w.name("c")
    w.say(f"{checkpoint} = tf.train.Checkpoint({objects})",
          f"{manager} = tf.train.CheckpointManager({checkpoint}, path(), max_to_keep={w.number(1, 3)})")
    if w.chance(2):
        w.say(f"{manager}.restore_or_initialize()")
    for _ in range(w.number(1, 4)):
        w.say(f"_ = {manager}.save()")
        _change(w)
    w.say(f"len({manager}.checkpoints)", f"{manager}.latest_checkpoint == {manager}.checkpoints[-1]",
          f"{checkpoint}.save_counter.numpy()", f"_ = {checkpoint}.restore({manager}.checkpoints[0]).assert_consumed()")
    _look(w)


OPERATIONS = (written_and_read, written_and_read, counted, managed)
