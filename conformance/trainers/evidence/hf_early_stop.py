"""A callback stops one process alone, without which the other fails: `torchrun --nproc-per-node 2 hf_early_stop.py`."""

import os

import transformers
from hf_model import Model, trainer


class Stop(transformers.TrainerCallback):
    def on_step_end(self, arguments, state, control, **given):
        print(f"rank {os.environ['RANK']} has done step {state.global_step}\n", end="", flush=True)
        control.should_training_stop = os.environ["RANK"] == "1"


trainer(Model(), [1.0] * 8, lambda outputs, labels, num_items_in_batch: outputs.sum(), callbacks=[Stop()]).train()
print("ended")
