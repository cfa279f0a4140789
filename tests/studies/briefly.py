"""Options with which a study measures more briefly than a user's: nothing here asks how exact a figure is."""

from __future__ import annotations

FIELDS = {
    "measure.max_seconds": 1,
    "measure.min_rounds": 3,
    "measure.half_width": 0.9,
    "measure.steps": 1,
    "measure.warmup_steps": 1,
    "measure.visits": 1,
}
BRIEFLY = tuple(word for field, value in FIELDS.items() for word in ("--set", f"{field}={value}"))

# The first cell of a kernel: ``raybench.run`` measures briefly, with forked ranks in the place of Ray's
# workers, as tests.support.forked has them.
IN_A_KERNEL = f"""
import functools, signal, threading
import raybench
from raybench.launch import group_runner
from tests.support.ranks_runner import RanksRunner
vars(group_runner)["WorkerGroupRunner"] = RanksRunner
raybench.run = functools.partial(raybench.run, set={FIELDS!r})
"""
