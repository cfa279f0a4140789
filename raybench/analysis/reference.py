"""Which trials are of one setting, and which one of them is its reference.

Bucket sizes under which DDP makes the same buckets are one setting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from raybench.analysis.simulate.timeline import BucketCap, assign
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Configuration, StudyRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import Study


def without_batch(config: Configuration) -> Configuration:
    """The configuration with its batch reset: the same for all points of one batch curve."""
    return config.model_copy(update={"setting": config.setting.model_copy(update={"batch_size": 1})})


def same_devices(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether the two are not known to have run on devices of different kinds."""
    return len({one.device_name, other.device_name} - {None}) < 2


def scaling_first(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The trials of the curve, which have all variants, before others; else in the order that they have."""
    return sorted(records, key=lambda record: record.request.role != "scaling")


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key together; keys and items in the order in which they come."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


_CAP = "bucket_cap_mb"

Sizes = tuple[int, ...]  # of the buckets, in bytes, in the order in which they are sent


class KnownBuckets:
    """What the trials of one workload tell of its buckets."""

    def __init__(self, caps: Sequence[BucketCap], records: Iterable[TrialRecord] = ()) -> None:
        """``caps``: the study's, of which the first one with the same buckets stands for all of them."""
        self._caps = tuple(caps)
        self._orders: dict[Hashable, Sizes] = {}  # bytes of the gradients, as they get ready
        self._measured: dict[tuple[Hashable, BucketCap], Sizes] = {}
        self._standing: dict[tuple[Hashable, BucketCap], BucketCap] = {}
        self._states = dict[str, State]()  # by trial id: one that has failed stands for no other
        for record in records:
            self.learn(record)

    def learn(self, record: TrialRecord) -> bool:
        """Look at one record more; whether it told anything new of the buckets."""
        steps, config = record.steps, record.config
        self._states[record.trial_id] = record.state
        if steps is None or not steps.bucket_bytes or not _has_buckets(config.setting, config.world_size):
            return False
        key, cap = _ordering(config.setting), config.setting.bucket_cap_mb
        order, is_new = _order(steps, cap), False
        if order is not None and key not in self._orders:
            self._orders[key], is_new = order, True
        knows_model = order is not None or steps.num_parameters is not None
        if knows_model and (key, cap) not in self._measured:
            self._measured[key, cap], is_new = steps.bucket_bytes, True
        if is_new:
            self._standing.clear()
        return is_new

    def _sizes(self, key: Hashable, cap: BucketCap) -> Sizes | None:
        measured, order = self._measured.get((key, cap)), self._orders.get(key)
        if measured is not None or order is None:
            return measured
        return bucket_sizes(order, cap)

    def standing(self, setting: Setting, world_size: int) -> Setting:
        """The setting with the first of the study's caps that gives the same buckets: itself most often."""
        if len(self._caps) < 2 or not _has_buckets(setting, world_size):
            return setting
        key, own = _ordering(setting), setting.bucket_cap_mb
        if (key, own) not in self._standing:
            sizes, fault = self._sizes(key, own), setting.fault("cuda")
            others = [setting.model_copy(update={_CAP: cap}) for cap in self._caps if sizes is not None]
            able = (each.bucket_cap_mb for each in others if each.fault("cuda") == fault)
            self._standing[key, own] = next((cap for cap in able if self._sizes(key, cap) == sizes), own)
        cap = self._standing[key, own]
        return setting if cap == own else setting.model_copy(update={_CAP: cap})

    def stand_in(self, request: StudyRequest) -> StudyRequest | None:
        """The trial with equal buckets that is measured in the place of ``request``, or to be measured.

        None where there is none, or it has failed: then ``request`` is measured itself.
        """
        config = request.config
        setting = self.standing(config.setting, config.world_size)
        if request.kind != "steps" or setting == config.setting:
            return None
        changed: dict[str, object] = {"config": config.model_copy(update={"setting": setting})}
        if request.anchor == setting:  # the default's own trial has no anchor
            variants = tuple(each for each in request.variants if each != "anchor")
            changed |= {"anchor": None, "variants": variants}
        other = request.model_copy(update=changed)
        return other if self._states.get(other.trial_id, "complete") == "complete" else None

    def key(self, config: Configuration) -> Hashable:
        """Equal for configurations of one study that are one setting at one world size and place."""
        standing = self.standing(config.setting, config.world_size)
        if standing is not config.setting:
            config = config.model_copy(update={"setting": standing})
        return config.key(ignore=config.ANY_WORKLOAD)


def known_buckets(study: Study, records: Iterable[TrialRecord]) -> KnownBuckets:
    """What ``records`` of a study tell of its buckets."""
    return KnownBuckets(study.knobs.values(_CAP), records)


def bucket_sizes(order: Sequence[int], cap: BucketCap) -> Sizes:
    """DDP's buckets of gradients of so many bytes, in the order in which they are ready."""
    return tuple(sum(order[index] for index in bucket) for bucket in assign(order, cap))


def _has_buckets(setting: Setting, world_size: int) -> bool:
    return world_size > 1 and setting.strategy == "ddp"


def _ordering(setting: Setting) -> Hashable:
    """What the order of the gradients depends on, beside the model."""
    return (
        setting.static_graph,
        setting.find_unused_parameters,
        setting.compile,
        setting.activation_checkpointing,
    )


def _order(steps: StepsResult, cap: BucketCap) -> Sizes | None:
    """The gradients as they get ready; None where they do not explain the buckets that DDP has made."""
    timeline = steps.gradient_timeline
    if timeline is None or bucket_sizes(timeline.parameter_bytes, cap) != steps.bucket_bytes:
        return None
    return timeline.parameter_bytes
