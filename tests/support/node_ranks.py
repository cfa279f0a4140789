"""One rank on each local node, without Ray: trials one after the other over links of a known rate.

with LocalNodes(4, rate="100mbit", has_ray=False) as nodes:
    outcomes = run_on(nodes, requests, folder)
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from tests.support.local_nodes import LINK, LocalNodes

PORT = 29500
LONGEST_S = 1800.0


def run_on(nodes: LocalNodes, requests: Sequence[StepsRequest], folder: Path) -> list[Outcome]:
    """What each request brought, as the leader has it. Raises ``RuntimeError`` where a rank ends badly."""
    asked, answered = folder / "requests.pickle", folder / "outcomes.pickle"
    asked.write_bytes(pickle.dumps(list(requests)))
    size, address = len(nodes.nodes), nodes.nodes[0].address
    ranks = [
        nodes.popen(
            [sys.executable, "-m", "tests.support.node_ranks", str(asked), str(answered)],
            node,
            env={
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": address,
                "MASTER_PORT": str(PORT),
                "GLOO_SOCKET_IFNAME": LINK,
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank, node in enumerate(nodes.nodes)
    ]
    codes = [rank.wait(LONGEST_S) for rank in ranks]
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    found: list[Outcome] = pickle.loads(answered.read_bytes())
    return found


def main(asked: Annotated[Path, typer.Argument()], answered: Annotated[Path, typer.Argument()]) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist

    from raybench.worker.communicators import Communicators
    from raybench.worker.group_cache import GroupCache
    from tests.ranks.trials import run_trials

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    communicators = Communicators("gloo")
    outcomes = run_trials(pickle.loads(asked.read_bytes()), communicators, GroupCache())
    communicators.drop_team()
    if os.environ["RANK"] == "0":
        answered.write_bytes(pickle.dumps(outcomes))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
