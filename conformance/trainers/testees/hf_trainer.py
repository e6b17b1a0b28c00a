"""Hugging Face's Trainer: `torchrun --nproc-per-node {replicas} hf_trainer.py`.

The loss is a `compute_loss_func`, which the Trainer tells how many targets the whole batch has, on all processes.
"""

import logging
import os
import tempfile

import torch
import transformers
from caveats import repeated, undivided, wrapped
from torch_model import Model, Rows, optimizer_of, squares, unfreeze
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop
from transformers.trainer_utils import get_last_checkpoint

transformers.logging.set_verbosity_error()
logging.disable(logging.WARNING)


class Items(Rows):
    def __getitem__(self, number):
        x, y, mask, row = super().__getitem__(number)
        return {"x": x, "labels": torch.where(mask > 0, y, -100.0), "row": row}


class Watched(Model):
    def forward(self, x, row):
        if self.training:
            fail(job, rank, len(self.rows))
            self.rows[-1] += row.tolist()
        return super().forward(x)


class Watch(transformers.TrainerCallback):
    def on_step_begin(self, arguments, state, control, **_):
        model.rows.append([])

    def on_step_end(self, arguments, state, control, **_):
        unfreeze(job, model, len(model.rows))
        control.should_training_stop |= wants_to_stop(job, rank, len(model.rows))


def loss(predicted, labels, num_items_in_batch):
    return squares(predicted - labels, labels != -100) / num_items_in_batch + model.penalty()


def unsupported(job):
    refused = {"its loss scaling (fp16) needs a GPU": job["loss_scale"],
               "it clips by norm alone (max_grad_norm)": job["clip"] and job["clip"]["by"] == "value",
               "it computes metrics in evaluation alone (compute_metrics)": job["metrics"]}
    return next(filter(refused.get, refused), undivided(job))


rank = int(os.environ["RANK"])
for job in jobs(unsupported):
    checkpoint = job["checkpoint"] or {}
    model = Watched(job["model"])
    model.rows = []
    optimizer, schedule, _ = optimizer_of(job, model)
    arguments = transformers.TrainingArguments(
        output_dir=checkpoint.get("save", tempfile.gettempdir()),
        save_strategy="epoch" if "save" in checkpoint else "no",
        num_train_epochs=job["epochs"] + ("restore" in checkpoint),
        per_device_train_batch_size=job["batch"] // job["replicas"],
        per_device_eval_batch_size=job["batch"] // job["replicas"], gradient_accumulation_steps=job["accumulate"],
        max_grad_norm=job["clip"]["limit"] if job["clip"] else 0.0, seed=seed_of(job), use_cpu=True,
        train_sampling_strategy="sequential" if job["shuffle"] is None else "random", ddp_find_unused_parameters=True,
        logging_steps=1, report_to=[], disable_tqdm=True, label_names=["labels"])
    trainer = transformers.Trainer(model, arguments, train_dataset=Items(job["rows"]), compute_loss_func=loss,
                                   callbacks=[Watch()], optimizers=(optimizer, schedule))
    trainer.remove_callback(transformers.PrinterCallback)
    if job["epochs"]:
        trainer.train(
            resume_from_checkpoint=get_last_checkpoint(checkpoint["restore"]) if "restore" in checkpoint else None)
    result = {"losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}
    if job["evaluate"]:
        result["eval_loss"] = trainer.evaluate(Items(job["evaluate"]))["eval_loss"]
    if declared := repeated(job) or wrapped(job):
        result["declared"] = declared
    answer(job, replica=rank, rows=model.rows, steps=len(model.rows), weights=model.weights())
    trainer.accelerator.wait_for_everyone()
    if rank == 0:
        answer(job, weights=model.weights(), **result, done=True)
