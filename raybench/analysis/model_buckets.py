"""The gradients of a study's model, and the buckets in which DDP sends them under each size asked for."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_buckets import Sizes
from raybench.analysis.simulate.timeline import BucketCap


@dataclass(frozen=True)
class Buckets:
    """What one bucket size comes to."""

    cap: BucketCap  # in MiB, or "default"
    sizes: Sizes  # in bytes, in the order in which they are sent
    is_measured: bool  # DDP itself has told them, else its rule
    same_as: BucketCap | None  # the study's first size with the same buckets; None: this one is the first


@dataclass(frozen=True)
class ModelBuckets:
    """The gradients of one rank in the headline's setting."""

    num_parameters: int | None  # numbers that are trained; None: an older record
    num_tensors: int | None  # that they are in; None: not told
    gradient_bytes: int
    rows: tuple[Buckets, ...]  # the headline's bucket size first, the study's others in their order

    @property
    def doubles(self) -> tuple[Buckets, ...]:
        """The bucket sizes that are the same thing as one before them."""
        return tuple(row for row in self.rows if row.same_as is not None)


def model_buckets(results: MeasuredStudy) -> ModelBuckets | None:
    """None where the headline has no buckets, or no trial tells them."""
    headline = results.headline
    if headline is None:
        return None
    setting, size = headline.config.setting, headline.config.world_size
    caps: list[BucketCap] = [setting.bucket_cap_mb, *results.study.knobs.values("bucket_cap_mb")]
    rows = list[Buckets]()
    for cap in dict.fromkeys(caps):
        asked = setting.model_copy(update={"bucket_cap_mb": cap})
        sizes = results.buckets.sizes(asked, size)
        if sizes is not None:
            first = next((row.cap for row in rows if row.sizes == sizes), None)
            rows.append(Buckets(cap, sizes, results.buckets.is_measured(asked), first))
    if not rows:
        return None
    every = [record.steps for record in results.measured if record.steps is not None]
    timelines = [each.gradient_timeline for each in every if each.gradient_timeline is not None]
    elements = (sum(each.parameter_bytes) // each.element_bytes for each in timelines if each.element_bytes)
    told = (each.num_parameters for each in every if each.num_parameters is not None)
    return ModelBuckets(
        num_parameters=next(told, None) or next(elements, None),
        num_tensors=len(timelines[0].parameter_bytes) if timelines else None,
        gradient_bytes=sum(rows[0].sizes),
        rows=tuple(rows),
    )
