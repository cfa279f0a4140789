"""Measure a study of the corpus again and pack its results directory.

    python -m tests.corpus.make default
    python -m tests.corpus.make training --data DIRECTORY
    python -m tests.corpus.make two_nodes

Figures stay as they were measured. Host names and paths are replaced; the step
times of single steps (samples/), logs and checkpoints are left out: a report needs none of them. Ids of
trials are made of what was asked, paths included, so they are made again.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from raybench.records.record import TrialRecord
from tests.support.local_nodes import LocalNodes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STUDIES: dict[str, tuple[str, ...]] = {
    "default": (),
    # strong scaling, an ablation, and trainings on real data; a price, so that money is in the report
    "training": ("transformer_ag_news_tuned", "--set", "cost.price_per_device_hour=1.5"),
    "two_nodes": (
        "--set", 'scaling.placement=["spread"]',
        "--set", "cost.price_per_device_hour=1.5",
    ),
}  # fmt: skip
NODES, RATE = 2, "1gbit"
TIMEOUT_S = 900
KEPT = ("study.toml", "sweep.toml", "environment.json", "trials.jsonl", "epochs.csv")
ASKED = KEPT[:2]  # one of them
COMPRESSED = "trials.jsonl"
ANY_PATH = "/data"  # what takes the place of a path of the machine
PATH = re.compile(r"/(?:[\w.+-]+/)*[\w.+-]+")


def main() -> None:
    """Measure and pack the study that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path, help="the data sets, of the study `training`")
    parser.add_argument("--measured", type=Path, help="pack this results directory, measure nothing")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asked.measured or measure(asked.study, asked.data, Path(folder))
        pack(measured, HERE / asked.study)


def measure(name: str, data: Path | None, folder: Path) -> Path:
    """Run the study in ``folder``; its results directory."""
    command = [sys.executable, "-m", "raybench.study", "scaling", *STUDIES[name], "--smoke"]
    command += ["--output", name, *(("--data", str(data.absolute())) if data else ())]
    environment = {"PYTHONPATH": str(ROOT)}
    if name == "two_nodes":
        with LocalNodes(NODES, rate=RATE) as nodes:
            code = nodes.popen(command, cwd=folder, env=environment).wait(timeout=TIMEOUT_S)
        if code != 0:
            raise SystemExit(code)
    else:
        subprocess.run(command, cwd=folder, env=os.environ | environment, timeout=TIMEOUT_S, check=True)
    return folder / name


def pack(measured: Path, to: Path) -> None:
    """Copy what a report is drawn from, without the names of the machine that measured it."""
    texts = {name: (measured / name).read_text() for name in KEPT if (measured / name).exists()}
    lines = [json.loads(line) for line in texts["trials.jsonl"].splitlines()]
    anonymous = [_anonymous(each) for each in lines]
    asked = next(name for name in ASKED if name in texts)
    study = "".join(line for line in texts[asked].splitlines(keepends=True) if line[0] != "#")
    environment = json.dumps(_anonymous(json.loads(texts["environment.json"])), indent=2)
    texts |= {
        asked: PATH.sub(ANY_PATH, study),
        "environment.json": f"{environment}\n",
        "trials.jsonl": "".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in anonymous),
    }
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for name, text in texts.items():
        for old, new in _new_ids(lines, anonymous).items():
            text = text.replace(old, new)
        if name == COMPRESSED:
            (to / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        else:
            (to / name).write_text(text)


def _new_ids(lines: list[Any], anonymous: list[Any]) -> dict[str, str]:
    """The ids of trials by those before: they are made of what was asked, of which a path is a part."""
    before, after = (
        [TrialRecord.model_validate(copy.deepcopy(each)) for each in all_] for all_ in (lines, anonymous)
    )
    return {
        one.trial_id: other.request.trial_id
        for one, other in zip(before, after, strict=True)
        if one.trial_id == one.request.trial_id
    }


def unpack(name: str, to: Path) -> Path:
    """The results directory of the study ``name``, copied to ``to``."""
    shutil.copytree(HERE / name, to)
    packed = to / f"{COMPRESSED}.gz"
    (to / COMPRESSED).write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return to


def _anonymous(value: Any) -> Any:
    """The same JSON value without host names and paths; numbers are untouched."""
    if isinstance(value, dict):
        return {key: _anonymous(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_anonymous(each) for each in value]
    if not isinstance(value, str):
        return value
    if value == socket.gethostname():
        return "node-1"
    return PATH.sub(ANY_PATH, value) if value.startswith("/") else value


if __name__ == "__main__":
    main()
