"""Slips in checkpoints and in random numbers."""

from __future__ import annotations

from mutants.slips import Slip

_CHECKPOINT = "refdist/checkpoints/checkpoint.py"
_MANAGER = "refdist/checkpoints/manager.py"
_GENERATOR = "refdist/random/generator.py"
_STATE = "refdist/random/state.py"

SLIPS = (
    Slip("a variable that is made later keeps its initial value", "checkpoints.made-later", _CHECKPOINT,
         "            _assign(found, pending)\n", ""),
    Slip("shapes are compared while variables are assigned", "checkpoints.shapes-must-agree", _CHECKPOINT,
         "            variables.append((one, value))", "            one.assign(value)"),
    Slip("a value is converted to the dtype of the variable", "checkpoints.dtypes-must-agree", _CHECKPOINT,
         "            if value.dtype != one.dtype or not fits(",
         "            value = value.astype(one.dtype)\n            if not fits("),
    Slip("replicas write checkpoints", "checkpoints.not-in-replicas", _CHECKPOINT,
         "    if context_stack.frame().kind in (context_stack.REPLICA, context_stack.UPDATE):",
         "    if context_stack.frame().kind == context_stack.UPDATE:"),
    Slip("files are numbered from 0", "checkpoints.numbered", _CHECKPOINT,
         '        path = self._write(f"{prefix}-{number}", attempted, writes)',
         '        path = self._write(f"{prefix}-{number - 1}", attempted, writes)'),
    Slip("restore goes on with the numbers from before", "checkpoints.numbered", _CHECKPOINT,
         '        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}\n'
         "        return own if self._save_counter is None else",
         '        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}\n'
         "        return own if True else"),
    Slip("a manager keeps one file more than it should", "checkpoints.manager", _MANAGER,
         "len(self._managed) > self._keep:", "len(self._managed) > self._keep + 1:"),
    Slip("a manager knows only the files that it saved itself", "checkpoints.manager", _MANAGER,
         'for name in index.get("all", [])}', "for name in ()}"),
    Slip("a manager initializes also what it has restored", "checkpoints.manager-of-an-empty-folder", _MANAGER,
         "        if path is None and self._init is not None:", "        if self._init is not None:"),
    Slip("saving leaves the sum in each copy", "checkpoints.saving-changes-nothing", _CHECKPOINT,
         "            array = np.asarray(one.numpy())\n",
         "            array = np.asarray(one.numpy())\n"
         "            for part in one._copies:\n"
         "                part._array = one._read()\n"),
    Slip("replicas draw the same numbers", "random_numbers.replicas-differ", _GENERATOR,
         "            key = int(philox.bits(key, replica.replica_id_in_sync_group, 1, 8)[0])\n",
         "            key = key\n"),
    Slip("the stream of a replica depends on how many there are", "random_numbers.numbers-of-replicas", _GENERATOR,
         "philox.bits(key, replica.replica_id_in_sync_group, 1, 8)",
         "philox.bits(key, replica.num_replicas_in_sync, 1, 8)"),
    Slip("outside of replicas the stream is replica 0's", "random_numbers.outside-of-replicas", _GENERATOR,
         "        strategy, replica = self._state._strategy, context_stack.frame().replica\n",
         "        strategy, replica = self._state._strategy, context_stack.frame().replica\n"
         "        if strategy is not None and replica is None:\n"
         "            key = int(philox.bits(key, 0, 1, 8)[0])\n"),
    Slip("a draw advances by the numbers that were drawn", "random_numbers.state", _STATE,
         "+ count * philox.RESERVED", "+ count"),
    Slip("the key is the first number of the state", "random_numbers.states-of-replicas", _STATE,
         "    return frozen(np.array([counter & _MASK, counter >> 64 & _MASK, key],",
         "    return frozen(np.array([key, counter & _MASK, counter >> 64 & _MASK],"),
    Slip("a state that is passed is copied", "random_numbers.shared-variable", _GENERATOR,
         "        if isinstance(state, Variable):\n", "        if state is None:\n"),
    Slip("the upper bound is drawn, too", "random_numbers.uniform", _GENERATOR,
         "words.dtype.type(high - low)", "words.dtype.type(high - low + 1)"),
    Slip("a generator is split without going on", "random_numbers.split", _GENERATOR,
         '        keys = to_numpy(self._bits("Generator.split", [count], np.dtype(np.int64)))\n',
         "        keys = [int(self.key) + i for i in range(count)]\n"),
    Slip("the global generator is not replaced", "random_numbers.global", _GENERATOR,
         "    _global.value = generator\n", "    _global.value = _global.value or Generator.from_seed(0)\n"),
    Slip("skip counts blocks of four numbers", "random_numbers.skip", _GENERATOR,
         "        return self._skip(int(steps))", "        return self._skip(-(-int(steps) // 4))"),
    Slip("of a sum the first copy is saved", "checkpoints.on-read-sum", _CHECKPOINT,
         "np.asarray(one.numpy())\n", "np.asarray(one._copies[0]._array)\n"),
    Slip("without aggregation the first copy is saved", "checkpoints.on-read-none", _CHECKPOINT,
         "np.asarray(one.numpy())\n", "np.asarray(one._copies[0]._array)\n"),
    Slip("what was read waits for the next reading", "checkpoints.on-read-made-later", _CHECKPOINT,
         '        if not name.startswith("_"):\n            self._give(name, value)\n', ""),
    Slip("a seed of a reset is drawn from the old stream", "random_numbers.reset", _GENERATOR,
         "        self._state.assign(create_rng_state(seed, self._alg))",
         "        self._state.assign(create_rng_state(seed, self._alg) + self._state.read_value())"),
    Slip("the state of a generator is one for all replicas", "random_numbers.replicas-draw-independently", _GENERATOR,
         "synchronization=VariableSynchronization.ON_READ,", "synchronization=VariableSynchronization.AUTO,"),
    Slip("an unknown algorithm is the default one", "random_numbers.unknown-algorithms", _STATE,
         "    if found is None:\n", "    found = found or Algorithm.PHILOX\n    if found is None:\n"),
)
