"""What the driver has heard of the trial that it posted, and how that trial ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raybench.records.measurements import StepsResult
from raybench.records.messages import Begun, Kept, Message, Outcome, Progress
from raybench.records.trainings import TrainingResult
from raybench.worker.failures import first_cause


class PostedTrial:
    """Messages about one task of a worker group; those about any other are dropped.

    Ranks whose group cannot be saved each tell how they failed, and end. What such a rank says late must not
    end the next trial.
    """

    def __init__(self, number: int, on_progress: Callable[[Progress], None]) -> None:
        self._number, self._on_progress = number, on_progress
        self._kept: Kept | None = None
        self._failures: list[Outcome] = []
        self.begun = False  # every worker knows the trial
        self._ended: Outcome | None = None

    def hear(self, message: Message) -> None:
        """Take a message in."""
        content = message.content
        if message.task != self._number:
            return
        if isinstance(content, Begun):
            self.begun = True
        elif isinstance(content, Progress):
            self._on_progress(content)
        elif isinstance(content, Kept):
            self._keep(content)
        elif isinstance(content, Outcome):
            if content.ends_group:
                self._failures.append(content)
            else:
                self._ended = content

    @property
    def group_ends(self) -> bool:
        """Whether a rank has said that it ends: nobody will bring an outcome of all."""
        return bool(self._failures)

    def outcome(self) -> Outcome | None:
        """How the trial ended; None while that is open."""
        if self._ended is not None:
            return self._with_what_was_kept(self._ended)
        if self._failures:
            return self._with_what_was_kept(first_cause(self._failures))
        return None

    def lost(self, failure: Outcome) -> Outcome:
        """How the trial ended whose group was lost; ``failure`` is what the driver knows of that."""
        return self._with_what_was_kept(first_cause([*self._failures, failure]))

    def _keep(self, kept: Kept) -> None:
        if self._kept is not None:  # step times come with the first one
            step_times = self._kept.outcome.step_times
            kept = replace(kept, outcome=replace(kept.outcome, step_times=step_times))
        self._kept = kept

    def _with_what_was_kept(self, outcome: Outcome) -> Outcome:
        """A failure after the rounds or epochs costs what was still to come, not them."""
        kept = self._kept
        if outcome.state == "complete" or kept is None:
            return outcome
        result = kept.outcome.result
        assert isinstance(result, StepsResult | TrainingResult)
        reasons = dict.fromkeys(kept.open, f"{outcome.state} afterwards: {outcome.reason}")
        result = result.model_copy(update={"missing": {**result.missing, **reasons}})
        return replace(
            kept.outcome,
            result=result,
            wall_time_s=outcome.wall_time_s,
            ends_group=outcome.ends_group,
        )
