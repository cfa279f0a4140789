"""The study of fine-tuning from a checkpoint on disk: what a loop written by hand with transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.training import training_requests
from raybench.records.messages import Outcome
from raybench.records.requests import TrainingRequest
from raybench.records.results import TrainingResult
from raybench.spec.load import find_study, load_study
from raybench.spec.workloads import TextSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.worker.training.epoch_batches import shuffled
from raybench.worker.trial import run_trial
from raybench.workloads import build, corpora, hub, tokenizers
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, CPU

WORDS = ["stocks fall again", "team wins the final match", "new chip", "talks on peace fail in the end"]


def write_texts(data: Path) -> None:
    """A small AG News: 40 training texts and 8 test texts."""
    for split, times in (("train", 10), ("test", 2)):
        rows = [f'"{text} {number}",{label}\n' for number in range(times) for label, text in enumerate(WORDS)]
        (data / f"{split}_some.csv").write_text("".join(rows))


def write_checkpoint(data: Path) -> Path:
    """A pretrained DistilBERT without a classifier, and its tokenizer."""
    from transformers import DistilBertConfig, DistilBertForMaskedLM, PreTrainedTokenizerFast

    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    fast = tokenizers.trained(corpus, 200).fast
    folder = data / "pretrained"
    with hub.quietly():
        torch.manual_seed(7)
        config = DistilBertConfig(
            vocab_size=300, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=128
        )
        DistilBertForMaskedLM(config).save_pretrained(folder)
        own = PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="[PAD]", sep_token="[SEP]")
        own.save_pretrained(folder)
    return folder


def request_for(data: Path, strategy: str, devices: int) -> TrainingRequest:
    """The study as it ships, but for the checkpoint; on ``devices`` by ``strategy``."""
    given: dict[str, Any] = {
        "workload.checkpoint": "pretrained",
        "training.save_model": True,
        "training.seeds": [0],
        "knobs.strategy": strategy,
        "data": str(data),
    }
    study = load_study(find_study("distilbert_ag_news"), overrides=tuple(given.items()))
    plan = make_plan(study, Resources("cpu", devices, "a CPU"))
    return training_requests(plan)[-1]


def rank_fine_tunes(requests: list[TrainingRequest], results: Path) -> list[Outcome | None]:
    communicators = Communicators("gloo")
    found = [
        run_trial(
            request,
            BOTH[: request.config.world_size],
            communicators,
            CPU,
            GroupCache(),
            lambda progress: None,
            results=results,
        )
        for request in requests
    ]
    communicators.drop_team()
    return found


def by_hand(request: TrainingRequest, data: Path) -> list[tuple[float, float]]:
    """Training and test loss of each epoch on one device, with transformers and torch alone."""
    from transformers import AutoModelForSequenceClassification

    workload: Any = build(request.config.workload, str(data))
    train, test = workload.dataset("train"), workload.dataset("test")
    torch.manual_seed(0)
    with hub.quietly():
        model = AutoModelForSequenceClassification.from_pretrained(data / "pretrained", num_labels=4)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5, weight_decay=0.01)
    torch.manual_seed(0)
    losses = []
    for epoch in (1, 2, 3):
        model.train()
        order, total = shuffled(len(train), 0, epoch), 0.0
        for begin in range(0, len(order), 32):
            batch = workload.collate(train.__getitems__(order[begin : begin + 32]))
            loss = workload.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(batch["labels"])
        losses.append((total / len(train), loss_on(workload, model, test)))
    return losses


def loss_on(workload: Any, model: Any, test: Any) -> float:
    model.eval()
    with torch.no_grad():
        return float(workload.loss(model, workload.collate(test.__getitems__(list(range(len(test)))))))


def test_a_checkpoint_from_disk_is_fine_tuned_as_the_write_up_does(
    pair: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three epochs of AdamW at 2e-5, 32 samples a device; the model that comes out is kept."""
    from transformers import AutoModelForSequenceClassification

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = tmp_path / "data"
    data.mkdir()
    write_texts(data)
    write_checkpoint(data)
    requests = [request_for(data, "ddp", 1), request_for(data, "fsdp", 2)]
    assert [request.config.world_size for request in requests] == [1, 2]
    outcomes = pair.call(rank_fine_tunes, requests, tmp_path)[0]
    workload: Any = build(requests[0].config.workload, str(data))
    for request, outcome in zip(requests, outcomes, strict=True):
        assert outcome is not None
        assert outcome.reason is None
        result = outcome.result
        assert isinstance(result, TrainingResult)
        assert len(result.epochs) == 3
        assert result.model == f"models/{request.trial_id}"
        with hub.quietly():
            kept = AutoModelForSequenceClassification.from_pretrained(tmp_path / result.model)
        found = loss_on(workload, kept, workload.dataset("test"))
        assert found == pytest.approx(result.epochs[-1].test_loss, rel=1e-5)
    alone = outcomes[0].result
    expected = by_hand(requests[0], data)
    assert [(e.train_loss, e.test_loss) for e in alone.epochs] == [
        pytest.approx(e, rel=1e-5) for e in expected
    ]
