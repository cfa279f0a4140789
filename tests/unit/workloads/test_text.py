"""Classifiers of texts and the decoder: models, tokenizers, tokens, checkpoints."""

# ruff: noqa: E501 - a case and its answer stand on one line

import math
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads import build, cache, check
from raybench.workloads.protocol import tokens_of
from raybench.workloads.texts import corpora, hub, rows, tokenizers, tokenizing
from raybench.workloads.texts.tokens import Padding, TokenBlocks, TokenizedTexts
from tests.conftest import ROOT
from tests.unit.workloads.refusals import refusal

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 16, "vocab_size": 150}
WORDS = ["stocks fall again", "team wins the final match", "new chip", "talks on peace fail in the end"]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    tokenizers.named.cache_clear()
    return tmp_path / "cache" / "raybench"


@pytest.fixture
def data(tmp_path):
    """A small AG News: 12 training texts and 4 test texts."""
    for split, times in (("train", 3), ("test", 1)):
        rows = [f'"{text} {number}",{label}\n' for number in range(times) for label, text in enumerate(WORDS)]
        (tmp_path / f"{split}_some.csv").write_text("".join(rows))
    return tmp_path


def text(data=None, **fields):
    return build(TextSpec(name="text", **fields), data and str(data))


def causal_lm(data=None, **fields):
    return build(CausalLMSpec(name="causal_lm", **fields), data and str(data))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("made", "parameters"),
    [
        # as published: distilbert-base-uncased and bert-base-uncased with a head of two classes, gpt2
        (lambda: text(model="distilbert", data_set="imdb"), 66_955_010),
        (lambda: text(model="bert", data_set="imdb"), 109_483_778),
        (lambda: causal_lm(), 124_439_808),
        # embeddings (10,000 + 128) x 128, two layers, two norms' worth of the last, a head of four classes
        (lambda: text(), 10_128 * 128 + 2 * 132_480 + 256 + 129 * 4),
    ],
)
def test_models_have_their_published_sizes(made, parameters):
    with torch.device("meta"):
        model = made().model()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("model", ["encoder", "distilbert", "bert", "gpt2"])
def test_a_step_makes_the_loss_smaller_and_reaches_every_weight(model):
    made = (
        causal_lm(**SMALL, sequence_length=6) if model == "gpt2" else text(model=model, **SMALL, dropout=0.0)
    )
    torch.manual_seed(0)
    module = made.model().train()
    batch = made.batch(4, generator())
    assert batch["input_ids"].shape == (4, 6 if model == "gpt2" else 128)
    assert 0 < batch["input_ids"].min() <= batch["input_ids"].max() < 150
    assert batch["input_ids"].equal(made.batch(4, generator())["input_ids"])
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    before = made.loss(module, batch)
    before.backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    optimizer.step()
    assert made.loss(module, batch) < before
    assert made.samples(batch) == 4
    assert tokens_of(made, batch, 4) == made.tokens(batch) == batch["input_ids"].numel()


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
    assert made.loss(Counting(), {"input_ids": up}) == pytest.approx(0, abs=1e-5)
    up[1, 3] = 99  # wrong once itself, and once as what comes before: 2 of 10
    assert made.loss(Counting(), {"input_ids": up}) == pytest.approx(2 * 50 / 10, rel=1e-5)
    torch.manual_seed(0)
    first = made.loss(made.model().eval(), made.batch(8, generator()))
    assert first.item() == pytest.approx(math.log(150), rel=0.05)


def test_texts_are_padded_and_their_tokens_counted(data):
    fields = SMALL | {"input": "real", "sequence_length": 8}
    made = text(data, **fields, padding="longest")
    train, test = made.dataset("train"), made.dataset("test")
    assert (len(train), len(test)) == (12, 4)
    loader = DataLoader(train, batch_size=4, collate_fn=made.collate)
    batches = list(loader)
    assert [batch["labels"].tolist() for batch in batches] == [[0, 1, 2, 3]] * 3
    for batch in batches:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        assert ids.dtype == mask.dtype == batch["labels"].dtype == torch.int64
        assert ids.shape == mask.shape
        assert mask.sum(dim=1).max() == ids.shape[1] <= 8
        assert ids[mask == 0].eq(0).all()
        assert ids[:, 0].eq(tokenizers.SPECIAL.index("[CLS]")).all()
    real = sum(made.tokens(batch) for batch in batches)
    assert made.tokens_per_sample() == pytest.approx(real / 12)
    assert tokens_of(made, batches[0], 4) == pytest.approx(4 * real / 12)
    fixed = text(data, **fields, padding="fixed")
    assert fixed.collate([train[2]])["input_ids"].shape == (1, 8)
    assert fixed.tokens_per_sample() == made.tokens_per_sample()


def test_a_limit_takes_evenly_spread_samples(data):
    fields = SMALL | {"input": "real"}
    few = text(data, **fields, samples=4, test_samples=2)
    assert [few.dataset("train")[place][1] for place in range(4)] == [0, 3, 2, 1]
    assert [label for _, label in few.dataset("test").__getitems__([0, 1])] == [0, 2]
    lengths = [len(few.dataset("train")[place][0]) for place in range(4)]
    assert few.tokens_per_sample() == pytest.approx(np.mean(lengths))
    said = refusal(lambda: text(data, **fields, test_samples=5).dataset("test"))
    assert said == "workload.test_samples: at most the 4 samples there are (received 5)"


def test_a_loaders_process_gets_the_place_of_the_tokens_only(data):
    made = text(data, **SMALL, input="real")
    carried = pickle.dumps((made.dataset("train"), made.collate))
    assert len(carried) < 2000
    dataset, collate = pickle.loads(carried)
    assert collate([dataset[1]])["labels"].tolist() == [1]
    blocks = causal_lm(data, **SMALL, input="real", sequence_length=4)
    dataset, collate = pickle.loads(pickle.dumps((blocks.dataset("train"), blocks.collate)))
    assert collate([dataset[0], dataset[1]])["input_ids"].shape == (2, 4)


def test_reading_tokens_imports_no_library_of_the_hub():
    # every loader's process reads: datasets alone takes longer to import than it takes to start
    heavy = "datasets", "tokenizers", "transformers", "huggingface_hub", "pyarrow", "pandas"
    code = (
        f"import sys; import raybench.workloads.texts.tokens; print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_decoder_reads_the_texts_one_after_the_other(data):
    made = causal_lm(data, **SMALL, input="real", sequence_length=8)
    dataset = made.dataset("train")
    tokenizer = tokenizers.study_tokenizer(made._spec, data)
    read = torch.cat([dataset[place] for place in range(len(dataset))]).tolist()
    texts = [f"{text} {number}" for number in range(3) for text in WORDS]
    expected = [number for ids in tokenizer.encode(texts, None) for number in ids]
    assert read == expected[: len(expected) // 8 * 8]
    assert expected.count(tokenizer.end_id) == 12
    assert len(made.dataset("test")) < len(dataset)
    assert len(causal_lm(data, **SMALL, input="real", sequence_length=8, samples=3).dataset("train")) == 3


def test_what_is_tokenised_is_read_again_from_the_cache_until_the_file_changes(
    data, cache_folder, monkeypatch
):
    spec = TextSpec(name="text", **SMALL, input="real")
    check(spec, str(data))
    kept = {folder.name for folder in cache_folder.iterdir()}
    assert {name.split("-")[0] for name in kept} == {"wordpiece", "texts"}
    monkeypatch.setattr(rows, "row_batches", lambda corpus: pytest.fail("read again"))
    check(spec, str(data))
    assert build(spec, str(data)).dataset("train")[3][1] == 3
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder.parent))
    with (data / "train_some.csv").open("a") as file:
        file.write("one more,0\n")
    assert len(build(spec, str(data)).dataset("train")) == 13
    assert len(list(cache_folder.iterdir())) == 2 * len(kept)


def _begin_together(begin, data):
    time.sleep(max(0.0, begin - time.time()))
    made = text(data, **SMALL, input="real")
    return made.dataset("train")._folder, made._tokenizer().fast.get_vocab()


def test_processes_that_begin_together_share_one_and_the_same_vocabulary(data, cache_folder):
    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    here = tokenizers._train(corpus, SMALL["vocab_size"]).get_vocab()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        begin = time.time() + 4
        found = [future.result() for future in [pool.submit(_begin_together, begin, data) for _ in range(2)]]
    assert found[0] == found[1]
    assert found[0][1] == here  # of another process, with other hashes
    assert not list(cache_folder.glob(".writing-*"))


def test_a_trained_vocabulary_keeps_to_its_size_and_knows_the_texts(data):
    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    small, large = tokenizers.trained(corpus, 60), tokenizers.trained(corpus, 1000)
    assert small.size == 60 < large.size <= 1000
    assert (large.fast.token_to_id("[PAD]"), large.pad_id, large.fast.token_to_id("[SEP]")) == (
        0,
        0,
        large.end_id,
    )
    (ids,) = large.encode(["Stocks FALL unzen"], 16)
    words = [large.fast.id_to_token(number) for number in ids]
    assert words[:3] == ["[CLS]", "stocks", "fall"]
    assert words[-1] == "[SEP]"
    assert large.encode(["stocks fall"], 3) == [[2, ids[1], 3]]  # cut, with its ends
    assert large.encode(["ж"], 8) == [[2, 1, 3]]  # never seen: unknown


@pytest.fixture
def checkpoints(tmp_path):
    """A small DistilBERT for four classes, the same without its classifier, and a tokenizer."""
    from transformers import (
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
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("text,label\nstocks fall,0\nteam wins,3\n")
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
    assert own.dataset("train")[0][0].tolist() == made.dataset("train")[0][0].tolist()
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
        ({"model": "bert"}, "workload.checkpoint: a bert, as workload.model says (received 'good', a distilbert)"),
        ({"data_set": "imdb"}, "workload.checkpoint: a classifier of 2 classes, as the data set has (received 'good', of 4)"),
        ({"sequence_length": 65}, "workload.sequence_length: at most the checkpoint's 64 positions (received 65)"),
        ({"checkpoint": "/nowhere/x"}, "workload.checkpoint: a distilbert (config.json, model.safetensors) in a directory, absolute or under --data (received '/nowhere/x': no such directory, or neither absolute nor under --data)"),
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


def test_a_cache_that_cannot_be_written_is_named(data, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(data / "train_some.csv"))
    assert "XDG_CACHE_HOME" in refusal(lambda: check(TextSpec(name="text", input="real"), str(data)))
    assert cache.cached("anything") is None


def test_places_out_of_range_are_refused(data):
    made = text(data, **SMALL, input="real")
    assert isinstance(made.dataset("train"), TokenizedTexts)
    with pytest.raises(IndexError):
        made.dataset("train")[12]
    blocks = TokenBlocks(tokenizing.tokenize_stream(*_corpus_and_tokenizer(data)), 8)
    with pytest.raises(IndexError):
        blocks[len(blocks)]


def _corpus_and_tokenizer(data):
    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    return corpus, tokenizers.trained(corpus, 150)
