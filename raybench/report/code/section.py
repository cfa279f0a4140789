"""The last section of a report: what to use, as code for each framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raybench.analysis.findings.verifications import Verified
from raybench.analysis.labels import devices_words
from raybench.analysis.recommendation import Basis, Framework, Recommendation
from raybench.analysis.results import StudyResults
from raybench.report.code.accelerate import accelerate_snippet
from raybench.report.code.base import Snippet
from raybench.report.code.lightning import lightning_snippet
from raybench.report.code.ray_train import ray_snippet
from raybench.report.code.starting import variables_snippet
from raybench.report.code.torch_loop import torch_snippet
from raybench.report.code.torch_parts import Parts
from raybench.report.code.transformers import transformers_snippet
from raybench.report.format import percent, sentence, unshown_words
from raybench.report.parity_words import changed_words
from raybench.report.tables.verification import measured_words

SNIPPETS = {
    Framework.TORCH: torch_snippet,
    Framework.RAY: ray_snippet,
    Framework.LIGHTNING: lightning_snippet,
    Framework.ACCELERATE: accelerate_snippet,
    Framework.TRANSFORMERS: transformers_snippet,
}

AS_CODE = f" as code for {len(SNIPPETS)} frameworks, at the end of the report"
HINT_WIDTH = 80  # columns of a terminal


@dataclass(frozen=True)
class UseIt:
    """What to use, and why it."""

    sentences: tuple[str, ...]
    snippets: tuple[Snippet, ...]


def use_it(results: StudyResults, environment: Mapping[str, Any]) -> UseIt | None:
    """The recommended setting as code; None where the study recommends none.

    ``environment``: what environment.json holds; the names of arguments are those of its torch.
    """
    use = results.recommendation
    if use is None:
        return None
    version = torch_version(environment)
    code = [make(Parts(use, framework, version)) for framework, make in SNIPPETS.items()]
    return UseIt(tuple(_sentences(results, use)), (*code, variables_snippet(use)))


def torch_version(environment: Mapping[str, Any]) -> tuple[int, ...]:
    """Major and minor number of the torch that was measured; empty where it is not told."""
    version = str((environment.get("packages") or {}).get("torch", ""))
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def hint(results: StudyResults) -> str:
    """A line for the terminal; empty where there is no code."""
    use = results.recommendation
    if use is None:
        return ""
    what = "the default" if use.is_default else use.label
    words = f"Use it: {what}{AS_CODE}"
    return words if len(words) <= HINT_WIDTH else f"Use it: the setting above{AS_CODE}"


def _sentences(results: StudyResults, use: Recommendation) -> list[str]:
    gain = f" ({percent(use.gain.gain, sign=True)} samples/s)" if use.gain else ""
    whose = "the default's" if use.is_default else f"{use.label}'s"
    words = {
        Basis.CONFIRMED: f"The winner, {results.best_label}, measured again against the default{gain}.",
        Basis.VERIFIED: f"What the diagnosis proposes, {use.label}, measured against the default{gain}.",
        Basis.CHOSEN: f"The chosen setting, {results.best_label}{gain}.",
        Basis.UNCONFIRMED: f"The best, {results.best_label}, faster than the default by two trials "
        f"apart{gain}, not measured again against it.",
        Basis.NOT_SURE: "This is the default's code: nothing measured is surely faster. The best, "
        f"{results.best_label}, was not measured again against it{gain}.",
        Basis.ALONE: f"The best, {results.best_label}; the default was not measured beside it.",
        Basis.DEFAULT_IS_BEST: "This is the default's code: nothing that was tried is better.",
        Basis.NO_GAIN: f"This is {whose} code: {results.best_label}, measured again, is no gain{gain}.",
        Basis.NO_CHOICE: "Nothing else was measured: this is the code of what was.",
    }
    told = [words[use.basis], *_also_confirmed(results, use)]
    if use.basis is Basis.CONFIRMED and results.marginal_effects:
        told.append(sentence(f"{unshown_words(results.marginal_effects)}."))
    told += _one_device_words(results, use)
    if use.default_global_batch_size is not None:
        told.append(
            f"A step takes {use.config.global_batch_size:,} samples in place of "
            f"{use.default_global_batch_size:,}: that is a choice about speed, and the learning rate may "
            "have to follow."
        )
    told += _as_trained(results, use)
    told.append(
        "Arguments that are left out are at the framework's own default, which is what was measured; "
        "what a framework has no argument for is said in a comment."
    )
    return told


def _one_device_words(results: StudyResults, use: Recommendation) -> list[str]:
    """Where the costs say that one device is enough: the code below is for several all the same."""
    advice = results.device_advice
    speedup = results.scaling(advice.record).speedup if advice else None
    if use.config.world_size == 1 or speedup is None or speedup.low > 1:
        return []
    return [
        f"One device is advised above, as {devices_words(use.config.world_size)} are not measurably faster: "
        "the code is for those who use them all the same."
    ]


def _as_trained(results: StudyResults, use: Recommendation) -> list[str]:
    """What training says of a setting that learns as the recommended one, where it was trained."""
    size, changed = use.config.world_size, results.training.changed if results.training else ()
    key = use.config.setting.learning_key(size)
    like = (
        each
        for each in changed
        if each.group.world_size == size and each.group.config.setting.learning_key(size) == key
    )
    return [f"Trained: {changed_words(each)}." for each in like]


def _also_confirmed(results: StudyResults, use: Recommendation) -> list[str]:
    """The confirmed changes of the diagnosis that this code has not."""
    others = [
        f"{each.label} ({measured_words(each)} samples/s)"
        for each in results.verifications
        if each.verdict is Verified.CONFIRMED and not use.config.has(each.proposal.change)
    ]
    return (
        [f"Not in this code, and confirmed alone against the default: {'; '.join(others)}."] if others else []
    )
