"""Finding and reading texts: every form in which they are passed on, and every way in which they are wrong."""

# ruff: noqa: E501 - a case and its answer stand on one line

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads import check, corpora, hub
from raybench.workloads.corpora import class_numbers, row_batches
from tests.unit.workloads.refusals import refusal

OFFICIAL = '"3","Wall St. Bears","Short-sellers, ""ultra-cynics"""\n"1","NA","null and 5"\n'
READ = (['Wall St. Bears Short-sellers, "ultra-cynics"', "NA null and 5"], [2, 0])


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No network, and a cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    corpora._load.cache_clear()


def write(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        parquet.write_table(pa.table(content), file)
    elif isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content, encoding="utf-8")


def spec(**fields):
    return TextSpec(name="text", **({"input": "real"} | fields))


def read(fields, data, split="train"):
    """All texts and classes of a corpus."""
    corpus = corpora.find(spec(**fields), data, split)
    parts = list(row_batches(corpus))
    numbers = class_numbers(corpus, [label for _, labels in parts for label in labels])
    return [text for texts, _ in parts for text in texts], numbers.tolist()


@pytest.mark.parametrize("place", ["", "ag_news/"])
@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("train.csv", OFFICIAL, READ),
        ("train_subset_5k.csv", '"Wall St., Bears",2\nnull,0\n', (["Wall St., Bears", "null"], [2, 0])),
        ("train.parquet", {"text": ["a b"], "label": [3]}, (["a b"], [3])),
        ("data/train-00000-of-00001.parquet", {"label": [1], "text": ["a"]}, (["a"], [1])),
    ],
)  # fmt: skip
def test_ag_news_is_found_in_each_form(tmp_path, place, file, content, expected):
    write(tmp_path / f"{place}{file}", content)
    assert read({}, tmp_path) == expected


def test_the_whole_comes_before_a_part_and_all_shards_are_read(tmp_path):
    write(tmp_path / "train.csv", "of another data set,0\n")  # --data itself comes after its folders
    folder = tmp_path / "imdb"
    write(folder / "train_5k.parquet", {"text": ["part"], "label": [1]})
    assert read({"data_set": "imdb"}, tmp_path) == (["part"], [1])
    for shard in (1, 0):
        name = f"plain_text/train-0000{shard}-of-00002.parquet"
        write(folder / name, {"text": [f"shard {shard}"], "label": [shard]})
    assert read({"data_set": "imdb"}, tmp_path)[0] == ["part"]
    (folder / "train_5k.parquet").unlink()
    assert read({"data_set": "imdb"}, tmp_path) == (["shard 0", "shard 1"], [0, 1])


def test_the_hubs_copy_is_used_where_there_is_no_local_one(tmp_path, hub_cache, monkeypatch):
    import datasets

    local, asked = datasets.load_dataset, []

    def load(path, *configuration, **options):
        if path != "fancyzhx/ag_news":
            return local(path, *configuration, **options)
        asked.append(path)
        write(tmp_path / "hub" / "train.parquet", {"text": ["hub"], "label": [3]})
        return local(str(tmp_path / "hub"))

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read({}, None) == (["hub"], [3])
    assert asked == ["fancyzhx/ag_news"]


@pytest.mark.parametrize("data_set", ["ag_news", "imdb"])
def test_missing_data_names_the_command_that_gets_it(tmp_path, data_set):
    repository = corpora.PUBLISHED_TEXTS[data_set].repository
    for data in (None, tmp_path):
        said = refusal(lambda data=data: check(spec(data_set=data_set), data and str(data)))
        assert said.startswith("workload.data_set: ")
        assert (
            f"hf download {repository} --repo-type dataset --local-dir {data or 'DIR'}/{repository}" in said
        )
        assert "huggingface.co cannot be reached" in said


def test_the_real_data_is_what_it_should_be(data_dir):
    texts, labels = read({}, data_dir)
    assert (len(texts), len(set(texts))) == (5000, 5000)
    assert np.bincount(labels).min() > 1000
    texts, labels = read({}, data_dir, "test")
    assert np.bincount(labels).tolist() == [1900] * 4
    assert texts[0].startswith("Fears for T N pension after talks Unions representing workers")
    texts, _ = next(row_batches(corpora.find(spec(data_set="imdb"), data_dir, "test")))
    assert all(len(text) > 20 for text in texts)


def own(**fields):
    return {"data_set": "mine"} | fields


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        ("text,label\na,0\n", {"text_columns": ["body", "text"]}, ["workload.text_columns: a column of mine: text (received 'body')"]),
        ("text,label\na,0\n", {"label_column": "y"}, ["workload.label_column: a column of mine: text, label (received 'y')"]),
        ("text,label\na,0\nb,-2\n", {}, ["data: label of ", "whole numbers from 0 (received -2 in row 2)"]),
        ("text,label\na,0\nb,7\n", {"num_classes": 3}, ["workload.num_classes: at least the 8 of the data set (received 3)"]),
        ("", {}, ["workload.data_set: ", "(received 'mine': "]),
        ("text,label\n", {}, ["workload.data_set: ", "corresponds to no data"]),
        ("text,label\na,b\n", {}, ["data: label of ", "whole numbers from 0 (received 'b' in row 1)"]),
        ("text,label\n12,0\n3.5,1\n", {}, ["data: text of ", "holds text (received 12.0 in row 1)"]),
        (b"text,label\n\xff\xfe,0\n", {}, ["workload.data_set: ", "(received 'mine': "]),
        ("text,label\na,0\n", {"samples": 2}, ["workload.samples: at most the 1 samples there are (received 2)"]),
    ],
)  # fmt: skip
def test_wrong_files_are_answered_in_a_line(tmp_path, hub_cache, content, fields, words):
    write(tmp_path / "mine" / "train.csv", content)
    said = refusal(lambda: check(spec(**own(**fields)), str(tmp_path)))
    assert said.startswith(words[0])
    assert all(word in said for word in words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged: "),
        (b"PAR1 and nothing", "is damaged: "),
        ({"text": ["a", None], "label": [0, 1]}, "holds text (received None in row 2)"),
        ({"text": [1, 2], "label": [0, 1]}, "holds text (received 1 in row 1)"),
        ({"text": ["a"], "label": pa.array([None], pa.int64())}, "(received None in row 1)"),
        ({"text": ["a"], "label": [4]}, "whole numbers from 0 to 3 (received 4 in row 1)"),
        ({"text": ["a"], "label": ["Sports"]}, "whole numbers from 0 to 3 (received 'Sports' in row 1)"),
        ({"text": ["a"]}, "label"),
    ],
)  # fmt: skip
def test_wrong_parquet_files_are_answered_in_a_line(tmp_path, content, words):
    write(tmp_path / "train.parquet", content)
    said = refusal(lambda: check(spec(), str(tmp_path)))
    assert said.startswith("data: ")
    assert words in said


def test_a_parquet_file_that_breaks_off_inside_is_damaged(tmp_path):
    write(tmp_path / "train.parquet", {"text": [json.dumps(list(range(500)))] * 50, "label": [1] * 50})
    content = bytearray((tmp_path / "train.parquet").read_bytes())
    content[4:200] = bytes(196)  # the footer is whole
    (tmp_path / "train.parquet").write_bytes(content)
    assert "is damaged: " in refusal(lambda: check(spec(), str(tmp_path)))


def test_other_columns_than_a_published_data_sets_are_refused(tmp_path):
    write(tmp_path / "train.csv", "a,b,c,d\n1,2,3,4\n")
    assert "received 4 columns, 'a,b,c,d'" in refusal(lambda: check(spec(), str(tmp_path)))
    write(tmp_path / "train.csv", "")
    assert "(received an empty file)" in refusal(lambda: check(spec(), str(tmp_path)))
    write(tmp_path / "train.csv", '"5","title","text"\n')
    assert "from 1 to 4 (received '5' in row 1)" in refusal(lambda: check(spec(), str(tmp_path)))


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """A cache of ``datasets``' own."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    corpora._load.cache_clear()
    return tmp_path / "datasets"


TRAIN = {"sentence": ["good", "bad"], "id": [1, 2], "label": [1, 0]}


@pytest.mark.parametrize("how", ["parquet", "csv", "jsonl", "save_to_disk"])
def test_any_directory_that_datasets_loads(tmp_path, hub_cache, how):
    import datasets

    splits = datasets.DatasetDict(
        train=datasets.Dataset.from_dict(TRAIN),
        test=datasets.Dataset.from_dict({"sentence": ["worse"], "id": [3], "label": [0]}),
    )
    folder = tmp_path / "org" / "name"
    if how == "save_to_disk":
        splits.save_to_disk(str(folder))
    else:
        folder.mkdir(parents=True)
        for name, rows in splits.items():
            getattr(rows, f"to_{how.removesuffix('l')}")(str(folder / f"{name}.{how}"))
    from raybench.workloads.text import Text

    for name, data in (("org/name", tmp_path), (str(folder), None)):
        assert read({"data_set": name}, data) == (["good", "bad"], [1, 0])
    made = Text(spec(data_set="org/name"), tmp_path)
    assert made.num_classes == 2
    assert (made.dataset("test").__getitems__([0])[0][1], len(made.dataset("train"))) == (0, 2)


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv", "mine.jsonl", "mine.parquet"])
def test_a_file_is_a_training_set(tmp_path, hub_cache, name):
    import pandas as pd

    frame, file = pd.DataFrame(TRAIN), tmp_path / name
    if name.endswith("jsonl"):
        frame.to_json(file, orient="records", lines=True)
    elif name.endswith("parquet"):
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False, sep="\t" if name.endswith("tsv") else ",")
    assert read({"data_set": name}, tmp_path) == (["good", "bad"], [1, 0])
    said = refusal(lambda: read({"data_set": name}, tmp_path, "test"))
    assert said.startswith("workload.data_set: one with rows and labels to test with")
    assert said.endswith("with train)")


def test_classes_by_feature_and_a_test_without_labels(tmp_path, hub_cache):
    """As GLUE has them: a test whose labels are kept back, so validation is what one tests with."""
    import datasets

    features = datasets.Features(
        {"sentence": datasets.Value("string"), "polarity": datasets.ClassLabel(names=["n", "p", "o"])}
    )
    parts = {"train": [2, 0], "test": [-1, -1], "validation": [1, 1]}
    datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict({"sentence": [name] * 2, "polarity": labels}, features=features)
            for name, labels in parts.items()
        }
    ).save_to_disk(str(tmp_path / "sst"))
    assert read({"data_set": "sst"}, tmp_path) == (["train"] * 2, [2, 0])
    assert read({"data_set": "sst"}, tmp_path, "test") == (["validation"] * 2, [1, 1])
    assert corpora.find(spec(data_set="sst"), tmp_path, "train").num_classes == 3
    stream = CausalLMSpec(name="causal_lm", data_set="sst", input="real")
    assert next(row_batches(corpora.find(stream, tmp_path, "test")))[0] == ["test"] * 2


def test_columns_that_are_not_there_or_not_plain(tmp_path, hub_cache):
    write(tmp_path / "two" / "train.parquet", {"question": ["a"], "answer": ["b"], "label": [0]})
    said = refusal(lambda: read({"data_set": "two"}, tmp_path))
    assert said == "workload.text_columns: a column of two: question, answer (received 'text')"
    assert read({"data_set": "two", "text_columns": ["question", "answer"]}, tmp_path) == (["a b"], [0])
    said = refusal(lambda: read({"data_set": "two", "label_column": "kind"}, tmp_path))
    assert said == "workload.label_column: a column of two: question, answer, label (received 'kind')"


@pytest.mark.promise("texts of the hub")
def test_a_data_set_of_the_hub(tmp_path, hub_cache, monkeypatch):
    import datasets

    local, asked, offline = datasets.load_dataset, [], datasets.config.HF_HUB_OFFLINE

    def load(path, *configuration, **options):
        if path != "org/name":
            return local(path, *configuration, **options)
        asked.append((*configuration, datasets.config.HF_HUB_OFFLINE))
        if datasets.config.HF_HUB_OFFLINE:
            raise ConnectionError("Couldn't reach 'org/name' on the Hub")
        write(tmp_path / "there" / "train.parquet", TRAIN)
        return local(str(tmp_path / "there"))

    monkeypatch.setattr(datasets, "load_dataset", load)
    said = refusal(lambda: check(spec(data_set="org/name"), str(tmp_path)))
    assert f"hf download org/name --repo-type dataset --local-dir {tmp_path}/org/name" in said
    assert "huggingface.co cannot be reached" in said
    monkeypatch.setattr(hub, "reachable", lambda: True)
    assert read({"data_set": "org/name:small"}, tmp_path) == (["good", "bad"], [1, 0])
    assert asked == [(None, True), ("small", True), ("small", False)]  # its cache comes first
    assert offline == datasets.config.HF_HUB_OFFLINE


def test_a_damaged_file_of_a_data_set(tmp_path, hub_cache):
    write(tmp_path / "mine.parquet", b"PAR1")
    assert "mine.parquet" in refusal(lambda: read({"data_set": "mine.parquet"}, tmp_path))
    write(tmp_path / "mine.txt", "x")
    assert "not among .csv" in refusal(lambda: read({"data_set": "mine.txt"}, tmp_path))


@pytest.mark.parametrize("name", ["here/mine", "./here/mine", "/nowhere/mine"])
def test_a_directory_that_workers_do_not_see(tmp_path, hub_cache, monkeypatch, name):
    write(tmp_path / "here" / "mine" / "train.parquet", TRAIN)
    monkeypatch.chdir(tmp_path)
    assert "neither absolute nor under --data" in refusal(lambda: read({"data_set": name}, None))
