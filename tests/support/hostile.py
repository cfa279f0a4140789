"""What nobody should type, and somebody will: strategies of hypothesis for studies, their text and options.

For tests and benchmarks; hypothesis is not among what raybench itself needs.
"""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from raybench.spec import validation
from raybench.spec.load import studies

FIELDS = tuple(row.name for row in validation.fields())
TABLES = tuple(dict.fromkeys(name.partition(".")[0] for name in FIELDS if "." in name))
# Each was found by trying, and each once ended in a traceback, a hang or a file left behind.
INTEGERS = (0, -1, 1, 2, 7, 1000, 2**31, 2 * 10**9, 2**53 + 1, 2**63 - 1, 2**63, 10**21, -(10**21), 16**3000)
FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-300, 1e308, 0.5, 3e8)
TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "x\udcff", "~nouser", "~", "/", "..", "a" * 5000, "/".join("ab" * 3000),
    "=cmd|' /C calc'!A0", "<img onerror=x>", "javascript:alert(1)", "\x1b[2J", "line\nline", "max", "default",
    "all", "mlp", "vision", "auto", "cuda", "\u202e", "9" * 5000, "a:b", "os:getcwd", "sys:exit",
)  # fmt: skip
OPTIONS = (
    "--output", "--resume", "--retry", "--world-sizes", "--batch-sizes", "--bucket-cap-mb", "--precision",
    "--scaling", "--grid", "--trials", "--time-budget", "--smoke", "--cpus-per-worker", "--steps",
    "--warmup-steps", "--runner", "--working-dir", "--data", "--profile", "--seed", "--quiet", "--set",
)  # fmt: skip
FLAGS = ("--resume", "--grid", "--smoke", "--profile", "--quiet")
SOUND = (1, 2, 32, 0.5, True, False, "weak", "grid", "optuna", "ablation", "ddp", "bf16", [1, 2], "max")
WORDS = (
    "1", "1,2", "all", "32,max", "default", "fp32", "weak", "10m", "crashed", "tune", "x.py", "-1", "1e9",
    ",,",
)  # fmt: skip


def scalars() -> st.SearchStrategy[Any]:
    """One value of TOML, or of Python, that may stand anywhere."""
    return st.one_of(
        st.sampled_from(INTEGERS),
        st.sampled_from(FLOATS),
        st.sampled_from(TEXTS),
        st.booleans(),
        st.integers(-3, 70),
        st.floats(),
        st.text(max_size=20),
        st.just(datetime.date(2026, 1, 1)),
        st.just(datetime.time(1, 2)),
    )


def values() -> st.SearchStrategy[Any]:
    """A scalar, a list, a table, or lists in tables, now and then very long or deep."""
    nested = st.recursive(
        scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.sampled_from((*TEXTS, *FIELDS)), inner, max_size=3),
        ),
        max_leaves=6,
    )
    long = st.builds(lambda value, count: [value] * count, scalars(), st.sampled_from((50, 1001, 30_000)))
    ascending = st.builds(lambda count: list(range(1, count)), st.sampled_from((3, 51, 1001, 30_000)))
    return st.one_of(nested, nested, long, ascending, st.sampled_from((17, 400, 3000)).map(_deep))


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """The tables of a study: often a sound one with a few fields that are not."""
    workload: Any = draw(
        st.one_of(
            *[st.just({"name": "mlp"})] * 4,
            st.sampled_from([{"name": name} for name in ("vision", "text", "causal_lm")]),
            st.builds(lambda path: {"factory": path}, st.sampled_from(TEXTS)),
            values(),
        )
    )
    data: dict[str, Any] = {"name": draw(st.just("study") | st.sampled_from(TEXTS)), "workload": workload}
    for field in draw(st.lists(st.sampled_from((*FIELDS, *TABLES)), max_size=4)):
        *path, last = field.split(".")
        here: Any = data
        for part in path:
            here = here.setdefault(part, {}) if isinstance(here, dict) else here
        if isinstance(here, dict):
            here[last] = draw(st.sampled_from(SOUND) | values())
    if draw(st.booleans()):
        variables = st.dictionaries(st.sampled_from(("A", "NCCL_ALGO", "RANK", *TEXTS)), values(), max_size=2)
        many = {f"V{number}": ["a", "b"] for number in range(40)}
        data["environment"] = draw(st.one_of(variables, st.just(many)))
    return data


@st.composite
def toml_texts(draw: st.DrawFn) -> bytes:
    """A study that comes with raybench, damaged: lines and bytes cut, doubled, changed, put in."""
    path = draw(st.sampled_from(sorted(studies().values())))
    content = bytearray(path.read_bytes())
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "cut", "double", "put")))
        if kind == "flip" and content:
            content[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del content[place : place + draw(st.integers(1, 40))]
        elif kind == "double":
            content[place:place] = content[place : place + 40]
        else:
            content[place:place] = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)))
    return bytes(content)


PIECES = (
    b"\nx = " + b"9" * 4301 + b"\n", b"\nx = 0x" + b"f" * 5000 + b"\n", b"\nx = " + b"[" * 400,
    b"[" * 100_000,
    b"\n" + b"a." * 3000 + b"a = 1\n", b"\n[[workload]]\n", b"\nworkload = [1]\n", b"\n[knobs]\n",
    b"\nseeds = 10\n",
    b'\nname = "\\u0000"\n', b"\xed\xa0\x80", b"\0", b"\nbatch_size = [" + b"1," * 30_000 + b"]\n",
    b"'''", b"\r",
    b"\ndata = '~nouser'\n", b"\nx = 1979-05-27T07:32:00Z\n",
    b"\nx = " + b"{a=" * 200 + b"1" + b"}" * 200 + b"\n",
    b"x" * 200_000,
)  # fmt: skip


@st.composite
def assignments(draw: st.DrawFn) -> str:
    """What follows ``--set``."""
    field = draw(st.one_of(st.sampled_from((*FIELDS, *TABLES, "a." * 3000 + "a", "", ".", "a..b")), _words()))
    pieces = st.sampled_from(PIECES).map(lambda piece: piece.decode(errors="surrogateescape").strip("\n"))
    value = draw(st.one_of(_words(), st.sampled_from(INTEGERS[:-1]).map(str), pieces, st.just("[1, 2]")))
    return f"{field}{draw(st.sampled_from(('=', '=', '=', '')))}{value}"


def _words() -> st.SearchStrategy[str]:
    # what a shell can pass on: no zero bytes, half characters as they stand for bytes that are no text
    return st.one_of(st.sampled_from(WORDS), st.sampled_from(TEXTS), st.text(max_size=12)).map(
        lambda text: (
            text.replace("\0", "").encode("utf-8", "replace").decode()
            if "\ud800" in text
            else text.replace("\0", "")
        )
    )


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """What follows ``scaling``: a study's name and options, each with what may follow it."""
    found = [draw(st.one_of(st.just("default"), st.sampled_from(sorted(studies())), _words()))]
    for option in draw(st.lists(st.sampled_from(OPTIONS), max_size=4)):
        found.append(option)
        if option == "--set":
            found.append(draw(assignments()))
        elif option not in FLAGS:
            long = st.sampled_from((",".join(map(str, range(1, 20_000))), "9" * 5000, "1," * 1500))
            found.append(draw(st.one_of(_words(), _words(), long)))
    return found
