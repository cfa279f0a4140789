"""What is to answer at once imports nothing that takes seconds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes.starting import Ready
from tests.unit.commands.test_predict import written

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
HEAVY = ("torch", "ray", "optuna", "pandas", "matplotlib")
QUICK = {
    "--help": ["--help"],
    "scaling --help": ["scaling", "--help"],
    "report --help": ["report", "--help"],
    "predict --help": ["predict", "--help"],
    "list": ["list"],
    "show": ["show"],
    "show --smoke": ["show", "resnet18_cifar10", "--smoke"],
    "show --fields": ["show", "--fields"],
    "scaling --dry-run": ["scaling", "--dry-run", "--device", "cpu"],
    "a wrong request": ["scaling", "--batch-sizes", "0"],
    "predict": ["predict", "FILE", "--price-per-device-hour", "1.5"],
}
LIGHT = {
    # what is imported or called, and what must not come with it
    "the package": (
        "import raybench; dir(raybench)",
        (*HEAVY, "numpy", "pydantic", "typer", "rich", "psutil"),
    ),
    "the public functions": ("from raybench import open, run; run.__doc__", HEAVY),
    "an environment": (
        "from raybench.machine.environment import capture; capture()",
        ("torch", "ray", "pandas", "numpy"),
    ),
    "analysis and report": (
        "import raybench.analysis, raybench.report.document, tests.support.planted",
        HEAVY,
    ),
    "records": ("import raybench.records.store", ("torch", "ray", "pandas", "pyarrow", "numpy")),
    # every loader's process reads: datasets alone takes longer to import than it takes to start
    "tokens": (
        "import raybench.workloads.tokens",
        ("datasets", "tokenizers", "transformers", "huggingface_hub", "pyarrow", "pandas"),
    ),
    "when a worker stops": (
        "import raybench.analysis.stats.stopping",
        ("scipy.optimize", "raybench.analysis.results", "pandas"),
    ),
}
WATCHED = """
import sys
from raybench.study import main
try:
    main()
finally:
    print("imported:", *(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.promise("light commands")
@pytest.mark.parametrize("name", QUICK)
def test_a_command_answers_without_torch_or_ray(name: str, bare: Ready, tmp_path: Path) -> None:
    typed = [str(written(tmp_path)) if word == "FILE" else word for word in QUICK[name]]
    done = bare.run(WATCHED.format(heavy=HEAVY), *typed)
    assert done.stderr.splitlines()[-1].split() == ["imported:"]
    assert done.returncode == (2 if name == "a wrong request" else 0), done.stderr
    assert (done.stdout != "") == (name != "a wrong request")
    assert not CONTROL.search(done.stdout)


@pytest.mark.parametrize("name", LIGHT)
def test_a_module_comes_without_what_is_heavy(name: str, bare: Ready) -> None:
    code, heavy = LIGHT[name]
    done = bare.run(f"import sys\n{code}\nprint([name for name in {heavy!r} if name in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")
