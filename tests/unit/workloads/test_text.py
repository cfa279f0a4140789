"""Classifiers of texts and the decoder: their sizes, losses and predictions."""

import math

import numpy as np
import pytest
import torch

from raybench.workloads.batch_counts import samples_of, tokens_of
from raybench.workloads.tokens import Padding
from tests.unit.workloads.small_texts import SMALL, causal_lm, generator, text

pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.mark.parametrize(
    ("made", "parameters"),
    [
        # as published: distilbert-base-uncased with a head of two classes, gpt2
        (lambda: text(model="distilbert", data_set="imdb"), 66_955_010),
        (lambda: causal_lm(), 124_439_808),
        # embeddings (10,000 + 128) x 128, two layers, two norms' worth of the last, a head of four classes
        (lambda: text(), 10_128 * 128 + 2 * 132_480 + 256 + 129 * 4),
    ],
)
def test_models_have_their_published_sizes(made, parameters):
    with torch.device("meta"):
        model = made().model()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("model", ["encoder", "distilbert", "gpt2"])
def test_a_step_makes_the_loss_smaller_and_reaches_every_weight(model):
    made = (
        causal_lm(**SMALL, sequence_length=6) if model == "gpt2" else text(model=model, **SMALL, dropout=0.0)
    )
    torch.manual_seed(0)
    module = made.model().train()
    batch = made.batch(4, generator())
    again = made.batch(4, generator())
    ids, same = (batch, again) if model == "gpt2" else (batch["input_ids"], again["input_ids"])
    assert ids.shape == (4, 6 if model == "gpt2" else 128)
    assert 0 < ids.min() <= ids.max() < 150
    assert ids.equal(same)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    before = made.loss(module, batch)
    before.backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    optimizer.step()
    assert made.loss(module, batch) < before
    assert samples_of(made, batch, 4) == 4
    assert tokens_of(made, batch, 4) == ids.numel()


@pytest.mark.parametrize("model", ["encoder", "distilbert"])
def test_padding_changes_no_prediction(model):
    module = text(model=model, **SMALL).model().eval()
    samples = [(np.array([2, 9, 11, 3], dtype=np.int32), 0), (np.array([2, 70, 3], dtype=np.int32), 1)]
    short, long = Padding(None, 0)(samples), Padding(10, 0)(samples)
    assert (short["input_ids"].shape, long["input_ids"].shape) == ((2, 4), (2, 10))
    found = [
        module(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        for batch in (short, long)
    ]
    first, second = (getattr(each, "logits", each) for each in found)
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_correct_predictions_are_counted_whatever_the_model_returns():
    made, logits = text(), torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    batch = {"labels": torch.tensor([0, 1, 1])}
    from transformers.modeling_outputs import SequenceClassifierOutput

    assert made.metric(logits, batch) == 2
    assert made.metric(SequenceClassifierOutput(logits=logits), batch) == 2


def test_the_loss_of_a_decoder_is_that_of_the_next_token():
    made = causal_lm(**SMALL, sequence_length=6)

    class Counting(torch.nn.Module):
        """Is sure that every number is followed by the next one."""

        def forward(self, input_ids):
            logits = torch.nn.functional.one_hot((input_ids + 1) % 150, 150) * 50.0
            return type("Output", (), {"logits": logits})()

    up = torch.arange(1, 7).repeat(2, 1)
    assert made.loss(Counting(), up) == pytest.approx(0, abs=1e-5)
    up[1, 3] = 99  # wrong once itself, and once as what comes before: 2 of 10
    assert made.loss(Counting(), up) == pytest.approx(2 * 50 / 10, rel=1e-5)
    torch.manual_seed(0)
    first = made.loss(made.model().eval(), made.batch(8, generator()))
    assert first.item() == pytest.approx(math.log(150), rel=0.05)
