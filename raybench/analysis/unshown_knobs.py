"""Knobs of a winner that the study does not show to help where its other knobs are as they are."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.choice import Best, default_setting
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import changes_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.speaking import InSameRounds, rate_ratio


@dataclass(frozen=True)
class UnshownKnob:
    """One knob of a winner that changes several."""

    label: str  # "5 MiB buckets"
    ratio: Estimate  # samples/s of the winner over those of the same without it
    is_paired: bool  # in the same rounds, else by two trials apart


def unshown_knobs(base: MeasuredStudy, best: Best | None, shared: InSameRounds) -> tuple[UnshownKnob, ...]:
    """Those of ``best`` without which it was measured too, and may be no slower.

    A confirmation is of all changes together against the default: who takes the winner over takes over what
    came along with it.
    """
    if best is None or best.is_default:
        return ()
    record = base.speaker(best.record)
    setting, default = record.config.setting, default_setting(base.study)
    changed = setting.differences(default)
    found = list[UnshownKnob]()
    for name, value in changed.items() if len(changed) > 1 else ():
        without = setting.model_copy(update={name: getattr(default, name)})
        other = base.speaker_of(record.config.model_copy(update={"setting": without}))
        if other is None or other is record:
            continue
        over = rate_ratio(record, other, base.scalings, shared, len(changed))
        if over.ratio.low <= 1:
            found.append(UnshownKnob(changes_words({name: value}), over.ratio, over.is_paired))
    return tuple(found)
