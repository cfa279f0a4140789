"""Checkpoints and tokenizers from a directory: taken as they are, or refused in a line."""

# ruff: noqa: E501 - a case and its answer stand on one line

import shutil

import pytest
import torch

from raybench.spec.load import find_study, load_study
from raybench.spec.workloads import TextSpec
from raybench.workloads import build, check, corpora, hub, tokenizers
from tests.unit.workloads.refusals import refusal
from tests.unit.workloads.small_texts import text

pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.fixture
def checkpoints(tmp_path):
    """A small DistilBERT for four classes, the same without its classifier, and a tokenizer."""
    from transformers import (
        BertConfig,
        DistilBertConfig,
        DistilBertForMaskedLM,
        DistilBertForSequenceClassification,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=1000, dim=8, n_layers=1, n_heads=2, hidden_dim=16, num_labels=4, max_position_embeddings=64
    )
    with hub.quietly():
        DistilBertForSequenceClassification(config).save_pretrained(tmp_path / "good")
        DistilBertForMaskedLM(config).save_pretrained(tmp_path / "base")
        BertConfig().save_pretrained(tmp_path / "other")
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("stocks fall,0\nteam wins,3\n")
    corpus = corpora.find(TextSpec(name="text", input="real"), tmp_path, "train")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.trained(corpus, 200).fast, pad_token="[PAD]", sep_token="[SEP]"
    )
    fast.add_tokens([f"extra{number}" for number in range(100)])
    fast.save_pretrained(tmp_path / "words")
    return tmp_path


def loaded(data, checkpoint="good", **fields):
    fields = {"model": "distilbert", "checkpoint": checkpoint, "sequence_length": 16} | fields
    return TextSpec(name="text", **fields), str(data)


def test_a_checkpoint_brings_its_weights_and_gets_a_head_where_it_has_none(checkpoints, capfd):
    from safetensors.torch import load_file

    for name in ("good", "base"):
        model = build(*loaded(checkpoints, name)).model()
        weights, stored = model.state_dict(), load_file(checkpoints / name / "model.safetensors")
        shared = [key for key in stored if key in weights]
        assert all(weights[key].equal(stored[key]) for key in shared)
        assert ("classifier.weight" in shared) == (name == "good")
        assert model.classifier.out_features == 4
        assert next(model.parameters()).dtype == torch.float32
    check(*loaded(checkpoints, "base", data_set="imdb", tokenizer="words"))
    assert capfd.readouterr() == ("", "")  # no bar, no report of transformers


def test_a_named_tokenizer_is_used(checkpoints):
    spec, data = loaded(checkpoints, input="real", tokenizer="words")
    check(spec, data)
    made = build(spec, data)
    assert [len(ids) for ids, _ in made.dataset("train").__getitems__([0, 1])] == [4, 4]
    shutil.copy(checkpoints / "words" / "tokenizer.json", checkpoints / "good")
    own = build(*loaded(checkpoints, input="real"))
    first, same = (each.dataset("train").__getitems__([0])[0][0].tolist() for each in (own, made))
    assert first == same
    size = tokenizers.named("words", checkpoints).size
    with torch.device("meta"):
        assert text(checkpoints, tokenizer="words").model().tokens.num_embeddings == size
    said = refusal(
        lambda: check(TextSpec(name="text", input="real", tokenizer="words", vocab_size=100), data)
    )
    assert said.startswith("workload.vocab_size: at least the tokenizer's ")


def _shortened(file):
    file.write_bytes(file.read_bytes()[:500])


def _without_a_weight(file):
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    del weights["distilbert.transformer.layer.0.ffn.lin1.weight"]
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_shortened, "(received 'good': Error while deserializing header"),
        (_without_a_weight, "1 missing or of another shape, distilbert.transformer.layer.0.ffn.lin1.weight"),
        (lambda file: file.unlink(), "Error no file named model.safetensors"),
        (lambda file: (file.parent / "config.json").write_text("{no"), "not a valid JSON file"),
        (lambda file: shutil.rmtree(file.parent), "hf download good --local-dir"),
    ],
)
def test_a_damaged_checkpoint_is_answered_in_a_line(checkpoints, harm, words):
    harm(checkpoints / "good" / "model.safetensors")
    said = refusal(lambda: check(*loaded(checkpoints)))
    assert said.startswith("workload.checkpoint: ")
    assert words in said


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"checkpoint": "other"}, "workload.checkpoint: a distilbert, as workload.model says (received 'other', a bert)"),
        ({"data_set": "imdb"}, "workload.checkpoint: a classifier of 2 classes, as the data set has (received 'good', of 4)"),
        ({"sequence_length": 65}, "workload.sequence_length: at most the checkpoint's 64 positions (received 65)"),
        ({"checkpoint": "/nowhere/x"}, "workload.checkpoint: a distilbert (config.json, model.safetensors) in a directory, absolute or under --data, or random (received '/nowhere/x': no such file or directory, or neither absolute nor under --data)"),
        ({"input": "real"}, "workload.tokenizer: a fast tokenizer (tokenizer.json) in a directory, absolute or under --data (received 'good': no tokenizer.json or vocabulary there)"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_does_not_fit_is_answered_in_a_line(checkpoints, fields, line):
    assert refusal(lambda: check(*loaded(checkpoints, **fields))) == line


def test_an_absent_tokenizer_is_answered_with_the_command_that_gets_it(data):
    said = refusal(lambda: check(TextSpec(name="text", input="real", tokenizer="google/some"), str(data)))
    assert said == (
        "workload.tokenizer: a fast tokenizer (tokenizer.json) in a directory, absolute or under --data, or "
        f"on huggingface.co: hf download google/some --local-dir {data}/google/some "
        "(received 'google/some': huggingface.co cannot be reached)"
    )


def test_a_directory_of_where_the_command_was_typed_is_no_ones(checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints)  # the workers have another current directory
    said = refusal(lambda: check(*loaded("/", "good")))
    assert "neither absolute nor under --data" in said


def test_the_study_of_fine_tuning_has_its_checkpoint_but_for_smoke_runs_and_by_choice():
    folder = find_study("distilbert_ag_news")
    assert load_study(folder).workload.checkpoint == "distilbert-base-uncased"
    assert load_study(folder, smoke=True).workload.checkpoint is None
    assert TextSpec(name="text", model="distilbert", checkpoint="random").lacks_checkpoint
