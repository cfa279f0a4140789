"""Tokenizers and tokens: what is counted, cut, kept in the cache and shared by processes."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from raybench.spec.workloads import TextSpec
from raybench.workloads import build, check, corpora, tokenizers
from raybench.workloads.batch_counts import tokens_of
from raybench.workloads.tokens import TokenBlocks, TokenizedTexts
from tests.unit.workloads.refusals import refusal
from tests.unit.workloads.small_texts import SMALL, WORDS, causal_lm, text

pytestmark = pytest.mark.usefixtures("cache_folder")


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
    real = sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert made.tokens_per_sample() == pytest.approx(real / 12)
    assert tokens_of(made, batches[0], 4) == pytest.approx(4 * real / 12)
    fixed = text(data, **fields, padding="fixed")
    assert fixed.collate(train.__getitems__([2]))["input_ids"].shape == (1, 8)
    assert fixed.tokens_per_sample() == made.tokens_per_sample()


def test_a_limit_takes_evenly_spread_samples(data):
    fields = SMALL | {"input": "real"}
    few = text(data, **fields, samples=4, test_samples=2)
    samples = few.dataset("train").__getitems__(range(4))
    assert [label for _, label in samples] == [0, 3, 2, 1]
    assert [label for _, label in few.dataset("test").__getitems__([0, 1])] == [0, 2]
    lengths = [len(tokens) for tokens, _ in samples]
    assert few.tokens_per_sample() == pytest.approx(np.mean(lengths))
    said = refusal(lambda: text(data, **fields, test_samples=5).dataset("test"))
    assert said == "workload.test_samples: at most the 4 samples there are (received 5)"


def test_a_loaders_process_gets_the_place_of_the_tokens_only(data):
    made = text(data, **SMALL, input="real")
    carried = pickle.dumps((made.dataset("train"), made.collate))
    assert len(carried) < 2000
    dataset, collate = pickle.loads(carried)
    assert collate(dataset.__getitems__([1]))["labels"].tolist() == [1]
    blocks = causal_lm(data, **SMALL, input="real", sequence_length=4)
    dataset = pickle.loads(pickle.dumps(blocks.dataset("train")))
    assert default_collate([dataset[0], dataset[1]]).shape == (2, 4)


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
    monkeypatch.setattr(corpora, "row_batches", lambda corpus: pytest.fail("read again"))
    check(spec, str(data))
    assert build(spec, str(data)).dataset("train").__getitems__([3])[0][1] == 3
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder.parent))
    with (data / "train_some.csv").open("a") as file:
        file.write("one more,0\n")
    assert len(build(spec, str(data)).dataset("train")) == 13
    assert len(list(cache_folder.iterdir())) == 2 * len(kept)


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


def test_a_cache_that_cannot_be_written_is_named(data, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(data / "train_some.csv"))
    assert "XDG_CACHE_HOME" in refusal(lambda: check(TextSpec(name="text", input="real"), str(data)))


def test_places_out_of_range_are_refused(data):
    made = text(data, **SMALL, input="real")
    assert isinstance(made.dataset("train"), TokenizedTexts)
    with pytest.raises(IndexError):
        made.dataset("train").__getitems__([12])
    blocks = TokenBlocks(tokenizers.tokenize_stream(*_corpus_and_tokenizer(data)), 8)
    with pytest.raises(IndexError):
        blocks[len(blocks)]


def _corpus_and_tokenizer(data):
    corpus = corpora.find(TextSpec(name="text", input="real"), data, "train")
    return corpus, tokenizers.trained(corpus, 150)
