"""What is changed of a measured trial, and what follows for its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raybench.analysis.labels import setting_words
from raybench.analysis.whatif.buckets import BucketCap, assign
from raybench.analysis.whatif.model import StepModel
from raybench.analysis.whatif.schedule import Compute
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting

COMPRESSED_BYTES, USUAL_BYTES = 2, 4  # of an element of fp16 and bf16, and of fp32


@dataclass(frozen=True)
class Change:
    """Values in the place of the trial's own; None: its own."""

    bucket_cap_mb: BucketCap | None = None
    batch_size: int | None = None
    gradient_accumulation: int | None = None
    gradient_compression: str | None = None
    link_bits_per_s: float | None = None

    def setting(self, of: Setting) -> Setting:
        """The setting of the trial so changed."""
        knobs = {name: value for name, value in vars(self).items() if name != "link_bits_per_s"}
        return of.model_copy(update={name: value for name, value in knobs.items() if value is not None})

    def words(self, of: Setting) -> str:
        """The change of a trial of ``of``: "5 MiB buckets, 10 Gbit/s"; what is as in ``of`` is left out."""
        asked, setting = (
            {name: value for name, value in vars(self).items() if value is not None},
            self.setting(of),
        )
        rate = asked.pop("link_bits_per_s", None)
        differing = setting.differences(of)
        words = [setting_words(setting, [name for name in asked if name in differing])] if differing else []
        if rate is not None:
            words.append(f"{rate / 1e9:g} Gbit/s")
        return ", ".join(words) or f"as it is ({setting_words(of, asked)})"


@dataclass(frozen=True)
class ComputeOfBatch:
    """What the passes of a micro-batch take at another batch, over what they take at the trial's own."""

    forward: float  # all before the last backward pass
    backward: float
    half: float  # of an interval of either, relative
    words: str  # where it is from; empty: it is the trial's own batch


@dataclass(frozen=True)
class Rates:
    """What a change is taken to do beside the schedule; alternatives of it make an interval."""

    forward: float = 1.0  # by the batch
    backward: float = 1.0
    micro_batch_s: float = 0.0  # a further micro-batch, at the trial's own batch
    cast: float = 1.0  # of the copies that compression makes, over a copy of the gradients
    compressed: float = COMPRESSED_BYTES / USUAL_BYTES  # of the gradients' bytes
    s_per_byte: float | None = None  # of another link; None: the model's own


def changed(model: StepModel, config: Configuration, setting: Setting, rates: Rates) -> StepModel:
    """The model of a trial of ``config`` under another ``setting``.

    Forward and backward pass follow the batch; copies and optimizer do not. Of k micro-batches the last
    one's gradients travel, so each further one is time before. Compressing is one more copy of a bucket
    before it is sent, and one when it is back.
    """
    own, compute = config.setting, model.compute
    ready_s = tuple(each * rates.backward for each in compute.ready_s)
    more = setting.gradient_accumulation - own.gradient_accumulation
    before_s = max(compute.before_s + more * rates.micro_batch_s, 0.0) * rates.forward
    is_compressed, was = (each.gradient_compression != "none" for each in (setting, own))
    copies = (is_compressed - was) * rates.cast
    copied_s = _copied(model.parameter_bytes, setting.bucket_cap_mb, copies * compute.tail_s)
    share = model.bytes_share * rates.compressed ** (is_compressed - was)
    wire = model.wire
    if rates.s_per_byte is not None:
        wire = replace(wire, s_per_byte=rates.s_per_byte)
    return replace(
        model,
        compute=Compute(
            before_s,
            tuple(max(time_s + extra_s, 0.0) for time_s, extra_s in zip(ready_s, copied_s, strict=True)),
            max(compute.tail_s * (1 + copies), 0.0),
            compute.after_s,
        ),
        bytes_share=share,
        wire=wire,
    )


def _copied(parameter_bytes: Sequence[int], cap: BucketCap, copies_s: float) -> list[float]:
    """For each gradient the time in s that copies of buckets have taken until its own may be sent."""
    total, until = sum(parameter_bytes), 0.0
    found = [0.0] * len(parameter_bytes)
    for bucket in assign(parameter_bytes, cap):
        for index in bucket[:-1]:
            found[index] = until
        until += copies_s * sum(parameter_bytes[index] for index in bucket) / total
        found[bucket[-1]] = until
    return found
