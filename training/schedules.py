"""Learning-rate schedules: those of Hugging Face, tried before the run starts, and the one of Vaswani et al. 2017.

Hugging Face's `inverse_sqrt` is, for update t = 1, 2, ... after w warm-up steps, with s = `timescale` (default w):
    learning_rate * (t - 1) / w                     while t <= w
    learning_rate * sqrt(s / (t - 1 - w + s))       after that.
Vaswani et al. 2017, section 5.3, is factor * d_model^-0.5 * min(t^-0.5, t * w^-1.5): the same curve one update earlier
(Hugging Face's first update has rate 0), with its peak, at t = w, set to factor * (d_model * w)^-0.5.
"""

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import SchedulerType, TrainingArguments, get_scheduler


def vaswani_peak(d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Return the greatest rate of the schedule, that of update `warmup_steps`."""
    return factor * (d_model * warmup_steps) ** -0.5


def vaswani_schedule(optimizer: Optimizer, warmup_steps: int) -> LambdaLR:
    """Return the schedule of Vaswani et al. 2017 for an optimiser whose learning rate is `vaswani_peak`.

    Raises:
        ValueError: no warm-up: the rate of the first update would have no bound.
    """
    if warmup_steps < 1:
        raise ValueError(f"warmup_steps={warmup_steps}: the schedule of Vaswani et al. 2017 needs at least 1")
    return LambdaLR(optimizer, lambda done: min((done + 1) / warmup_steps, (warmup_steps / (done + 1)) ** 0.5))


def check_schedule(arguments: TrainingArguments) -> None:
    """Make the schedule of `arguments` once for nothing, so that what it refuses is refused before the run.

    Raises:
        ValueError: `lr_scheduler_kwargs` that this schedule does not take, or lacks.
    """
    kind, kwargs = SchedulerType(arguments.lr_scheduler_type), arguments.lr_scheduler_kwargs
    steps = max(arguments.max_steps, 1000)
    try:
        get_scheduler(
            kind,
            torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=arguments.learning_rate),
            num_warmup_steps=arguments.get_warmup_steps(steps),
            num_training_steps=steps,
            scheduler_specific_kwargs=dict(kwargs) if isinstance(kwargs, dict) else None,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lr_scheduler_type={kind.value!r} does not work with lr_scheduler_kwargs={kwargs}: {error}"
        ) from error
