"""Real texts through the real loader on two ranks: a classifier and a decoder, their tokens counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.workloads import build, check
from tests.ranks.trials import ALL, SHORT, run_trials
from tests.unit import studies

SMALL = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 500}


def request_for(
    data: Path, workload: TextSpec | CausalLMSpec, variants: tuple[Variant, ...] = ALL, **setting: Any
) -> StepsRequest:
    """Three rounds of two steps on two ranks."""
    return studies.request(
        role="scaling" if variants == ALL else "search",
        workload=workload,
        optimizer=OptimizerSpec(name="adamw", learning_rate=1e-3),
        setting=Setting(**({"batch_size": 8} | setting)),
        world_size=2,
        variants=variants,
        measure=MeasureSpec(steps=2, warmup_steps=2, min_rounds=3, timeout_seconds=60),
        data=str(data),
    )


def rank_measures(*requests: StepsRequest) -> list[Outcome]:
    """Trials in a row in the same process."""
    communicators = Communicators("gloo")
    results = run_trials(requests, communicators, GroupCache())
    communicators.drop_team()
    return results


def test_texts_are_measured_and_their_tokens_counted(pair, data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    real: dict[str, Any] = SMALL | {"input": "real", "samples": 400}
    text = {"name": "text", "padding": "longest"} | real
    encoder, distilbert = TextSpec(**text), TextSpec(**text, model="distilbert", feed_forward_dim=16)
    decoder = CausalLMSpec(name="causal_lm", sequence_length=32, **real)
    synthetic = CausalLMSpec(name="causal_lm", sequence_length=32, **SMALL)
    check(encoder, str(data_dir))  # as the command does, before there are ranks
    requests = [
        request_for(data_dir, encoder, gradient_accumulation=2),
        request_for(data_dir, distilbert, SHORT, workers=1, static_graph=True),
        request_for(data_dir, decoder),
        request_for(data_dir, synthetic, SHORT, precision="bf16"),
    ]
    ranks = pair.call(rank_measures, *requests)
    for results in ranks:
        assert [(result.state, result.reason) for result in results] == [("complete", None)] * 4
    mean = build(encoder, str(data_dir)).tokens_per_sample()  # type: ignore[attr-defined]
    assert 20 < mean < 128
    measured = [result.result for result in ranks[0]]
    assert all(isinstance(each, StepsResult) and len(each.rounds) == 3 for each in measured)
    assert [measurement.epoch_samples for measurement in measured] == [400, 400, 400, None]
    assert [measurement.samples_per_step for measurement in measured] == [32, 16, 16, 16]
    tokens = [measurement.tokens_per_step for measurement in measured]
    assert tokens == pytest.approx([32 * mean, 16 * mean, 16 * 32, 16 * 32])
    for measurement in (measured[0], measured[2]):
        assert measurement.missing == {}
        for round_ in measurement.rounds:
            assert {block.variant for block in round_.blocks} == set(ALL)
        assert measurement.flops_per_step > 0
