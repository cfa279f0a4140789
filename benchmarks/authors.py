"""What the authors of the published experiments would paste: tables of reports next to their own figures.

    python -m benchmarks.authors RESULTS... > benchmarks/authors.md

RESULTS are directories of the published studies, each made by ``raybench scaling NAME --smoke``. Nothing is
computed here: tables are those of ``report.md``.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from raybench.spec.load import studies_folder
from raybench.spec.plural import plural

# by study: what its author asked, and the titles of the tables that answer
ASKED = {
    "distilbert_ag_news": (
        "metric | 1 GPU | 2 GPUs | speed-up, and the epochs",
        ("One device and several", "Epochs"),
    ),
    "mlp_scaling": ("1 and 2 GPUs at a small and a large batch, and what communication takes", ("Scaling",)),
    "resnet50_cifar10": (
        "every metric with its change, phases with their shares, time and money saved",
        ("One device and several", "Phases", "Cost"),
    ),
    "strategies_resnet_cifar10": (
        "mode | epoch time | speed-up | efficiency",
        ("One device and several",),
    ),
    "transformer_ag_news": (
        "why several GPUs are slower than one",
        ("Scaling", "One device and several", "Where the time goes"),
    ),
    "transformer_ag_news_tuned": (
        "before and after: batch, accumulation, FP16 compression",
        ("Scaling", "Settings against the default"),
    ),
    "transformer_imdb": ("the same on long sequences", ("Scaling", "One device and several")),
}
HEAD = """# The authors' tables

What the authors of the published experiments would paste out of raybench's reports. The tables are of
`--smoke` runs on two cores, which test the tool: small models for a short time, so that no figure here
compares with the write-up's hardware. Without `--smoke` the studies have the write-ups' sizes. Made by
`python -m benchmarks.authors`.
"""
MOST_PUBLISHED = 8  # of a write-up's figures, measured ones first
HEADING = re.compile(r"^#+ ")
DATE = re.compile(r"-\d{8}-\d{6}$")  # of a directory's name


def tables_of(report: str, title: str) -> list[str]:
    """The first table under a heading of ``report``, in lines. Raises ``LookupError`` without one."""
    lines = report.splitlines()
    start = next(
        (n for n, line in enumerate(lines) if HEADING.sub("", line) == title and line[0] == "#"), None
    )
    if start is None:
        raise LookupError(f"no section {title!r}")
    rows = [n for n in range(start, len(lines)) if lines[n].startswith("|")]
    if not rows:
        raise LookupError(f"no table under {title!r}")
    end = next((n for n in range(rows[0], len(lines)) if not lines[n].startswith("|")), len(lines))
    return lines[rows[0] : end]


def published(name: str) -> list[str]:
    """The write-up's own figures of a study, each as it was printed."""
    with (studies_folder() / "published" / f"{name}.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["origin"] != "chosen" and not row["epoch"]]
    rows.sort(key=lambda row: row["origin"] != "measured")
    words = []
    for row in rows[:MOST_PUBLISHED]:
        what = f"{row['quantity']} {row['of']}".replace("_", " ").strip()
        devices = row["world_size"] and plural(int(row["world_size"]), "device")
        batch = row["batch_size"] and f"batch {row['batch_size']}"
        where = ", ".join(filter(None, (row["strategy"], devices, batch))) or row["hardware"]
        words.append(f"{what} {row['value']} {row['unit']} ({where}; {row['origin']})")
    return words


def page(directories: list[Path]) -> str:
    """The whole page, one section for each directory."""
    parts = [HEAD]
    for directory in directories:
        name = DATE.sub("", directory.name)
        report = (directory / "report" / "report.md").read_text()
        asked, titles = ASKED[name]
        hardware = next(line for line in report.splitlines()[1:] if line.strip())
        parts += [
            f"## {name}",
            f"Asked: {asked}.",
            f"Here: {hardware}.",
            f"Published: {'; '.join(published(name))}.",
        ]
        for title in titles:
            parts += [f"**{title}**", "\n".join(tables_of(report, title))]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page([Path(each) for each in sys.argv[1:]]), end="")
