"""Processes that begin together share one folder of the cache, and it is complete."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybench.spec.workloads import TextSpec
from raybench.workloads import corpora, tokenizers
from tests.processes.starting import program
from tests.unit.workloads.small_texts import SMALL, WORDS
from tests.unit.workloads.test_published_images import RAW, write_fashion_mnist

# Says when all is imported; calls a function of this module whenever a line says so.
CODE = """
import json, os, sys
from tests.processes import test_shared_caches as here
print("ready", flush=True)
for line in sys.stdin:
    name, data, cache = json.loads(line)
    os.environ["XDG_CACHE_HOME"] = cache
    print(json.dumps(getattr(here, name)(data)), flush=True)
"""


def tokenised(data: str) -> list[Any]:
    from tests.unit.workloads.small_texts import text

    made = text(Path(data), **SMALL, input="real")
    return [str(made.dataset("train")._stored.folder), made._tokenizer.fast.get_vocab()]


def unpacked(data: str) -> str:
    from raybench.workloads.published_images import PUBLISHED_IMAGES

    return str(PUBLISHED_IMAGES["fashion_mnist"].array_folder(Path(data)))


@pytest.fixture(scope="module")
def two() -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that have their imports behind them."""
    processes = [program(CODE, stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def at_once(two: list[subprocess.Popen[str]], name: str, data: Path, cache: Path) -> list[Any]:
    """What both return; the second is told to begin before the first is asked for its answer."""
    for process in two:
        assert process.stdin is not None
        process.stdin.write(json.dumps([name, str(data), str(cache)]) + "\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in two if process.stdout]


def test_one_and_the_same_vocabulary(two: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    for split, times in (("train", 3), ("test", 1)):
        rows = [f'"{text} {number}",{label}\n' for number in range(times) for label, text in enumerate(WORDS)]
        (data / f"{split}_some.csv").write_text("".join(rows))
    first, second = at_once(two, "tokenised", data, cache)
    assert first == second
    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    here = tokenizers._train(corpus, SMALL["vocab_size"]).get_vocab()
    assert first[1] == here  # of another process, with other hashes
    assert not list((cache / "raybench").glob(".writing-*"))


def test_one_complete_folder_of_images(two: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path / RAW)
    cache = tmp_path / "cache"
    first, second = at_once(two, "unpacked", tmp_path, cache)
    assert first == second
    assert [path.name for path in (cache / "raybench").iterdir()] == [Path(first).name]
