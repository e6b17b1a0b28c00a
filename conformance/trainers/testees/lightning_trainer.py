"""Lightning's Trainer with its strategy "ddp": `torchrun --nproc-per-node {replicas} lightning_trainer.py`."""

import logging
import os

import lightning
from caveats import LOGGED, averaged, padded, undivided, wrapped
from torch.utils.data import DataLoader, DistributedSampler
from torch_model import Model, Rows, optimizer_of, squares, unfreeze
from torchmetrics import MeanAbsoluteError
from trainer_jobs import answer, fail, jobs, seed_of, wants_to_stop

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self, job):
        super().__init__()
        self.job, self.model, self.mae, self.losses, self.rows = job, Model(job["model"]), MeanAbsoluteError(), [], {}

    def loss(self, x, y, mask):
        predicted = self.model(x)
        return squares(predicted - y, mask) / mask.sum() + self.model.penalty(), predicted

    def training_step(self, batch, number):
        fail(self.job, self.global_rank, self.global_step + 1)
        *batch, rows = batch
        self.rows.setdefault(self.global_step, []).extend(rows.tolist())
        loss, predicted = self.loss(*batch)
        self.mae(predicted, batch[1])
        self.log("mean_absolute_error", self.mae, on_step=False, on_epoch=True)
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        self.losses.append(self.trainer.callback_metrics["loss"].item())
        unfreeze(self.job, self.model, self.global_step)
        stop = wants_to_stop(self.job, self.global_rank, self.global_step)
        self.trainer.should_stop = self.trainer.strategy.reduce_boolean_decision(stop, all=False)

    def validation_step(self, batch, number):
        self.log("eval_loss", self.loss(*batch[:3])[0], sync_dist=True)

    def configure_optimizers(self):
        optimizer, schedule, _ = optimizer_of(self.job, self)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def loader(job, rows):
    """Batches of a process; the Trainer's own sampler of training would shuffle."""
    data = Rows(rows)
    sampler = DistributedSampler(data, job["replicas"], int(os.environ["RANK"]), shuffle=False)
    return DataLoader(data, job["batch"] // job["replicas"], job["shuffle"] is not None,
                      sampler if job["shuffle"] is None else None)


NO_SCALE = "its loss scaling (precision=\"16-mixed\") needs a GPU"

for job in jobs(lambda job: NO_SCALE if job["loss_scale"] else undivided(job)):
    checkpoint, clip = job["checkpoint"] or {}, job["clip"] or {}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=job["replicas"], strategy="ddp_find_unused_parameters_true", logger=False,
        max_epochs=job["epochs"] + ("restore" in checkpoint), accumulate_grad_batches=job["accumulate"],
        gradient_clip_val=clip.get("limit"), gradient_clip_algorithm=clip.get("by"),
        use_distributed_sampler=job["shuffle"] is not None, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False)
    lightning.seed_everything(seed_of(job), verbose=False)
    module = Module(job)
    trainer.fit(module, loader(job, job["rows"]), ckpt_path=checkpoint.get("restore"))
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    result = {"losses": module.losses, "metrics": metrics}
    if job["evaluate"]:
        [validated] = trainer.validate(module, loader(job, job["evaluate"]), verbose=False)
        result |= validated
    logged = LOGGED if job["evaluate"] and job["evaluate"]["mask"] else None
    if declared := padded(job) or wrapped(job) or averaged(job) or logged:
        result["declared"] = declared
    if "save" in checkpoint:
        trainer.save_checkpoint(checkpoint["save"])
    result["weights"], rows = module.model.weights(), [*module.rows.values()]
    answer(job, replica=trainer.global_rank, rows=rows, steps=len(rows), **result)
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        answer(job, **result, done=True)
