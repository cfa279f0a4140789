"""Tokenizers, one that is named or a WordPiece trained on the texts; and corpora as token numbers.

All of them are fast ones. Token numbers are made once, and stored as the flat arrays that ``tokens`` reads.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from raybench.errors import RequestError, first_line
from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads import corpora, data_files, hub
from raybench.workloads.corpora import Corpus, class_numbers
from raybench.workloads.tokens import Numbers

PAD, UNKNOWN, BEGIN, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
TRAINING = 1  # another number: another vocabulary from the same texts


@dataclass(frozen=True)
class Tokenizer:
    """Texts to token numbers."""

    identity: str  # the same for the same vocabulary and rules
    size: int  # entries of the vocabulary
    pad_id: int
    end_id: int | None  # between texts that follow each other
    fast: Any  # tokenizers.Tokenizer

    def encode(self, texts: list[str], length: int | None) -> list[list[int]]:
        """Each text cut to ``length`` tokens, special ones included; None: whole, with only its end."""
        self.fast.no_padding()
        if length is None:
            self.fast.no_truncation()
            end = [] if self.end_id is None else [self.end_id]
            encoded = self.fast.encode_batch_fast(texts, add_special_tokens=False)
            return [encoding.ids + end for encoding in encoded]
        self.fast.enable_truncation(length)
        return [encoding.ids for encoding in self.fast.encode_batch_fast(texts)]


def study_tokenizer(spec: TextSpec | CausalLMSpec, data: Path | None) -> Tokenizer:
    """The tokenizer of a study: the one it names, its checkpoint's, or one trained on its training texts.

    Raises ``RequestError`` for one that is not there, or has more entries than the study's vocabulary.
    """
    name = spec.tokenizer or getattr(spec, "checkpoint", None)
    if name is None:
        return trained(corpora.find(spec, data, "train"), spec.sizes.vocab_size)
    tokenizer = named(name, data)
    if spec.vocab_size is not None and tokenizer.size > spec.vocab_size:
        raise RequestError(
            f"workload.vocab_size: at least the tokenizer's {tokenizer.size} entries "
            f"(received {spec.vocab_size})"
        )
    return tokenizer


def vocab_size(spec: TextSpec | CausalLMSpec, data: Path | None) -> int:
    """Entries of the model's embedding: as the study says, else a named tokenizer's, else as published."""
    if spec.vocab_size is None and spec.tokenizer is not None:
        return study_tokenizer(spec, data).size
    return spec.sizes.vocab_size


def trained(corpus: Corpus, vocab_size: int) -> Tokenizer:
    """A lower-case WordPiece (Wu et al., 2016, as BERT uses it) of at most ``vocab_size`` entries.

    The same texts give the same tokenizer, out of the cache from the second time on.
    Raises ``RequestError`` for damaged files.
    """
    import tokenizers

    name = f"wordpiece-{corpus.key(vocab_size, TRAINING)}"
    folder = data_files.stored(name, lambda new: _train(corpus, vocab_size).save(str(new / "tokenizer.json")))
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Tokenizer(name, fast.get_vocab_size(), SPECIAL.index(PAD), SPECIAL.index(END), fast)


@lru_cache(maxsize=4)
def named(name: str, data: Path | None) -> Tokenizer:
    """The fast tokenizer in a directory or on the hub.

    Raises ``RequestError`` where there is none.
    """
    import tokenizers
    from transformers import AutoTokenizer

    try:
        folder = hub.local(name, data)
        # of a directory with a model alone transformers makes an empty tokenizer
        if folder is not None and not any((folder / file).is_file() for file in TOKENIZER_FILES):
            raise FileNotFoundError("no tokenizer.json or vocabulary there")
        loaded = hub.load_local_first(AutoTokenizer.from_pretrained, name, data)
        if not getattr(loaded, "is_fast", False):
            raise ValueError(f"a {type(loaded).__name__}, which is not a fast tokenizer")
        fast = tokenizers.Tokenizer.from_str(loaded.backend_tokenizer.to_str())
    except Exception as error:
        what = hub.requirement("a fast tokenizer (tokenizer.json)", name, data)
        raise RequestError(f"workload.tokenizer: {what} (received {name!r}: {first_line(error)})") from error
    fast.no_truncation()
    fast.no_padding()
    identity = hashlib.sha256(fast.to_str().encode()).hexdigest()[:16]
    end = loaded.eos_token_id if loaded.eos_token_id is not None else loaded.sep_token_id
    return Tokenizer(identity, len(loaded), loaded.pad_token_id or 0, end, fast)


def _train(corpus: Corpus, vocab_size: int) -> Any:
    """The trainer numbers the pieces in the order of a hash table, and breaks ties by number.

    So all single characters are given to it in a fixed order, as if they were special tokens, and a new
    tokenizer takes the vocabulary over: then the same texts give the same vocabulary in every process.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter[str]()
    for text in _all_texts(corpus):
        counts.update(normalizer.normalize_str(text))
    characters = [(-count, character) for character, count in counts.items() if not character.isspace()]
    # each one twice, at the beginning of a word and inside: they may fill half of the vocabulary
    alphabet = sorted(character for _, character in sorted(characters)[: vocab_size // 4])
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=[*SPECIAL, *(f"##{character}" for character in alphabet)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(_all_texts(corpus), trainer)
    tokenizer = tokenizers.Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    ends = [(token, tokenizer.token_to_id(token)) for token in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    return tokenizer


def _all_texts(corpus: Corpus) -> Iterator[str]:
    for texts, _ in corpora.row_batches(corpus):
        yield from texts


def tokenize_texts(corpus: Corpus, tokenizer: Tokenizer, length: int) -> tuple[Path, int]:
    """The folder with every text's tokens, at most ``length`` of them, and class; the number of classes.

    Raises ``RequestError`` for damaged files, and for labels that are missing or unknown.
    """

    def write(new: Path) -> None:
        ids: list[Numbers] = []
        lengths: list[int] = []
        labels: corpora.Labels = []
        for texts, raw_labels in corpora.row_batches(corpus):
            encoded = tokenizer.encode(texts, length)
            lengths += map(len, encoded)
            ids.append(_flat(encoded))
            labels += raw_labels
        np.save(new / "ids.npy", np.concatenate(ids))
        np.save(new / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        np.save(new / "labels.npy", class_numbers(corpus, labels))

    folder = data_files.stored(f"texts-{corpus.key(tokenizer.identity, length)}", write)
    return folder, corpus.num_classes or int(np.load(folder / "labels.npy").max()) + 1


def tokenize_stream(corpus: Corpus, tokenizer: Tokenizer) -> Path:
    """The folder with all texts' tokens, one text after the other, each with the tokenizer's end.

    Raises ``RequestError`` for damaged files.
    """

    def write(new: Path) -> None:
        ids = [_flat(tokenizer.encode(texts, None)) for texts, _ in corpora.row_batches(corpus)]
        np.save(new / "ids.npy", np.concatenate(ids))

    return data_files.stored(f"stream-{corpus.key(tokenizer.identity)}", write)


def _flat(encoded: list[list[int]]) -> Numbers:
    """The tokens of all texts in one array."""
    return np.fromiter(chain.from_iterable(encoded), dtype=np.int32, count=sum(map(len, encoded)))
