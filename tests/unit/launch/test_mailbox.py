"""A trial is one call of the mailbox, from its posting to its outcome: Ray's dashboard shows it as a task."""

from __future__ import annotations

import asyncio
from typing import Any

from raybench.analysis.labels import task_words
from raybench.launch.mailbox import Mailbox
from raybench.records.messages import Begun, Message, Outcome, Progress, Task
from raybench.spec.knobs import Setting
from tests.unit.studies import asked, study


def test_a_trial_lasts_until_its_outcome_is_told() -> None:
    async def play() -> list[bool]:
        kind: Any = Mailbox
        mailbox = kind.__ray_metadata__.modified_class()
        task = Task(3, asked(study(), "search", Setting(batch_size=32), 2), (0, 1))
        trial = asyncio.ensure_future(mailbox.trial(task))
        assert await mailbox.take() is task
        ended = []
        for number, content in [
            (3, Begun()),
            (3, Progress("measure")),
            (2, Outcome("crashed", 1.0, "late, of the trial before")),
            (3, Outcome("crashed", 1.0, "planted")),
        ]:
            await mailbox.tell(Message(number, content))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append(trial.done())
        await mailbox.end()
        assert await mailbox.take() is None
        return ended

    assert asyncio.run(play()) == [False, False, False, True]


def test_a_task_is_named_by_what_it_is_for() -> None:
    request = asked(study(), "search", Setting(), 2)
    assert task_words(request) == f"search on 2 devices ({request.trial_id})"
