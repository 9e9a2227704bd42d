"""Callbacks that log a job's GPU memory to whatever logger the job has: TensorBoard, W&B, CSV.

    from memprof.callbacks import TransformersCallback
    trainer = transformers.Trainer(..., callbacks=[TransformersCallback()])

    from memprof.callbacks import LightningCallback
    trainer = lightning.Trainer(..., callbacks=[LightningCallback()])

They log what `memprof.scalars()` returns, with the trainer's own steps. In a process that `memprof
record` does not run, they log nothing. Neither library is imported before its callback is asked for.
"""

import sys

from memprof import _hook
from memprof._scalars import scalars

__all__ = ["LightningCallback", "TransformersCallback"]


def __getattr__(name):
    # The classes derive from classes of the libraries.
    makers = {"LightningCallback": _lightning, "TransformersCallback": _transformers}
    if name not in makers:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    made = globals()[name] = makers[name]()
    return made


def _transformers():
    from transformers import TrainerCallback

    class TransformersCallback(TrainerCallback):
        """Adds the scalars to what the Trainer logs."""

        @_hook.harmless
        def on_train_begin(self, args, state, control, **kwargs):
            # The Trainer hands one dictionary of logs from callback to callback, and puts the loggers'
            # before those of the user. To add to it, this one must be the first. The handler is not
            # among the arguments, so it is taken from the frame that calls. It walks a list while it
            # calls: another list takes its place.
            handler = getattr(self, "handler", None) or _caller(2)
            ours = getattr(handler, "callbacks", None)
            if isinstance(ours, list) and self in ours and ours[0] is not self:
                handler.callbacks = [self] + [c for c in ours if c is not self]

        @_hook.harmless
        def on_log(self, args, state, control, logs=None, **kwargs):
            if logs is not None:
                logs.update(scalars())

    return TransformersCallback


def _caller(depth):
    """`self` of the method that called, `depth` frames above this function's caller."""
    return sys._getframe(depth + 1).f_locals.get("self")


def _lightning():
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class LightningCallback(Callback):
        """Logs the scalars as often as the Trainer logs its own."""

        @_hook.harmless
        def on_train_batch_end(self, trainer, *args, **kwargs):
            every = getattr(trainer, "log_every_n_steps", 0) or 1
            step = trainer.global_step
            if step % every or step == getattr(self, "_logged", None):
                return  # an accumulated batch ends no step
            self._logged = step
            found = scalars()
            if not found or not getattr(trainer, "is_global_zero", True):
                return
            for logger in trainer.loggers:
                logger.log_metrics(found, step=step)

    return LightningCallback
