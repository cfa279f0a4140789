"""``python -m tests.ray.pasted_in_ray DEFAULT.py WINNER.py OUT.json ADDRESS``: two codes under Ray Train.

The winner's trainer trains as its code says, then its workers run epochs of both codes in turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray

from tests.ranks.pasted import pasted


def measure(config: dict[str, Any]) -> None:
    """What each worker runs in the place of the code's own loop, after it."""
    from ray.train import get_context

    import tests.ray.waiting_passes  # noqa: F401
    from tests.ranks.pasted import pasted, ratios

    default, winner = config["texts"]
    pasted(winner)["train_loop"]({"epochs": 1})
    found = ratios(default, winner)
    if get_context().get_world_rank() == 0:
        Path(config["out"]).write_text(json.dumps(found))


def main() -> None:
    texts = [Path(name).read_text() for name in sys.argv[1:3]]
    names = pasted(texts[1])
    names["train_loop"] = measure  # make_trainer's own arguments, workers and backend
    ray.init(address=sys.argv[4], log_to_driver=False)
    try:
        names["make_trainer"](texts=texts, out=sys.argv[3]).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
