"""Finding data sets on disk: what is there, missing, damaged; and the cache that many processes share."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torchvision

from raybench.errors import RequestError
from raybench.workloads import data_files, hub
from raybench.workloads.published_images import PUBLISHED_IMAGES

RAW = "FashionMNIST/raw"
IDX_MAGIC = {1: 2049, 3: 2051}  # of an idx file of bytes, by its number of dimensions
CIFAR10, FASHION_MNIST = PUBLISHED_IMAGES["cifar10"], PUBLISHED_IMAGES["fashion_mnist"]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "raybench"


def halves(folder, split):
    return data_files.MappedArrays(folder, f"{split}_images", f"{split}_labels")


def idx(values):
    return struct.pack(f">{1 + values.ndim}I", IDX_MAGIC[values.ndim], *values.shape) + values.tobytes()


def write_fashion_mnist(folder, packed=True):
    """A Fashion-MNIST of 6 and 4 images, whose labels count up."""
    folder.mkdir(parents=True)
    for part, count in (("train", 6), ("t10k", 4)):
        labels = np.arange(count, dtype=np.uint8)
        images = np.broadcast_to(labels[:, None, None], (count, 28, 28))
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(values)
            file = folder / f"{part}-{kind}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.fixture
def small_cifar10(monkeypatch):
    """The files of a CIFAR-10 of 2 images each, known to torchvision by their MD5s."""
    contents, lists = {}, {"train": [], "test": []}
    for number, name in enumerate([f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]):
        data = np.full((2, 3072), number, dtype=np.uint8)
        contents[name] = pickle.dumps({"data": data, "labels": [number, number]})
        digest = hashlib.md5(contents[name]).hexdigest()
        lists["test" if name == "test_batch" else "train"].append([name, digest])
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "train_list", lists["train"])
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "test_list", lists["test"])
    contents["batches.meta"] = pickle.dumps({"label_names": []})
    meta = torchvision.datasets.CIFAR10.meta | {"md5": hashlib.md5(contents["batches.meta"]).hexdigest()}
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "meta", meta)
    return contents


def extract(contents, folder):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def archive(contents, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, f"w:{file.suffix[1:]}") as made:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))


def message(data_set, data):
    with pytest.raises(RequestError) as caught:
        data_set.array_folder(data)
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("place", ["", "cifar10"])
@pytest.mark.parametrize(
    "form", ["cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-batches-py.tar.xz"]
)
def test_cifar10_is_found_in_each_form(tmp_path, small_cifar10, place, form):
    target = tmp_path / "data" / place / form
    archive(small_cifar10, target) if "tar" in form else extract(small_cifar10, target)
    folder = CIFAR10.array_folder(tmp_path / "data")
    images, labels = halves(folder, "train").arrays
    assert images.shape == (10, 3, 32, 32)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert (halves(folder, "test").arrays[0] == 5).all()


@pytest.mark.parametrize("place", [RAW, f"fashion_mnist/{RAW}"])
@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_is_found_in_each_form(tmp_path, place, packed):
    write_fashion_mnist(tmp_path / "data" / place, packed)
    folder = FASHION_MNIST.array_folder(tmp_path / "data")
    images, labels = halves(folder, "train").arrays
    assert images.shape == (6, 1, 28, 28)
    assert images[:, 0, 3, 3].tolist() == labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(halves(folder, "test").arrays[1]) == 4


@pytest.mark.parametrize(
    ("data_set", "words"),
    [
        (CIFAR10, "datasets.CIFAR10("),
        (FASHION_MNIST, "datasets.FashionMNIST("),
    ],
)
def test_missing_data_names_the_command_that_downloads_it(tmp_path, data_set, words):
    assert words in message(data_set, tmp_path)
    assert repr(str(tmp_path)) in message(data_set, tmp_path)
    assert "--data DIR" in message(data_set, None)


def test_a_damaged_batch_is_never_read(tmp_path, small_cifar10):
    extract(small_cifar10 | {"data_batch_3": b"not what was published"}, tmp_path / "cifar-10-batches-py")
    said = message(CIFAR10, tmp_path)
    assert f"{tmp_path / 'cifar-10-batches-py'} is damaged: Dataset not found or corrupted" in said


def test_what_is_not_the_published_pickle_is_never_loaded(tmp_path, small_cifar10):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    archive(small_cifar10 | {"data_batch_1": pickle.dumps(Harm())}, tmp_path / "cifar-10-python.tar.gz")
    message(CIFAR10, tmp_path)
    assert not (tmp_path / "harm").exists()


def test_a_missing_batch_is_named(tmp_path, small_cifar10):
    del small_cifar10["data_batch_5"]
    extract(small_cifar10, tmp_path / "a" / "cifar-10-batches-py")
    archive(small_cifar10, tmp_path / "b" / "cifar-10-python.tar.gz")
    assert "data_batch_5" in message(CIFAR10, tmp_path / "a")
    assert "cifar-10-python.tar.gz is damaged" in message(CIFAR10, tmp_path / "b")


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-10-batches-py.tar.xz"])
@pytest.mark.parametrize("kept", [0, 100, 0.7])
def test_a_truncated_archive_is_named(tmp_path, small_cifar10, name, kept):
    archive(small_cifar10, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    assert f"{name} is damaged" in message(CIFAR10, tmp_path)


def test_damaged_idx_files_are_named(tmp_path):
    folder = write_fashion_mnist(tmp_path / RAW)
    images, labels = (folder / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    good = images.read_bytes()
    for bad in (
        good[:-9],
        good[: len(good) // 2],
        b"",
        b"<html>404</html>",
        gzip.compress(b"\0\0\x08\x01" * 9),
        gzip.compress(gzip.decompress(good)[:-1]),
    ):
        images.write_bytes(bad)
        assert f"{folder} is damaged" in message(FASHION_MNIST, tmp_path)
    images.write_bytes(good)
    labels.write_bytes(gzip.compress(idx(np.zeros(5, dtype=np.uint8))))
    assert "5 labels for 6 images" in message(FASHION_MNIST, tmp_path)
    labels.unlink()
    assert "train-labels-idx1-ubyte" in message(FASHION_MNIST, tmp_path)


def test_other_files_are_read_again_and_the_same_are_not(tmp_path, monkeypatch):
    folder = write_fashion_mnist(tmp_path / RAW)
    first = FASHION_MNIST.array_folder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(torchvision.datasets, "FashionMNIST", lambda *_: pytest.fail("read again"))
        assert FASHION_MNIST.array_folder(tmp_path) == first
    os.utime(folder / "train-images-idx3-ubyte.gz", ns=(0, 0))
    assert FASHION_MNIST.array_folder(tmp_path) != first


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    write_fashion_mnist(tmp_path / RAW)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "XDG_CACHE_HOME" in message(FASHION_MNIST, tmp_path)


def test_who_comes_second_takes_the_folder_of_the_first(tmp_path, cache_folder, monkeypatch):
    write_fashion_mnist(tmp_path / RAW)
    real, first = torchvision.datasets.FashionMNIST, []

    def read(root, train):
        if not first:
            first.append(root)
            FASHION_MNIST.array_folder(tmp_path)  # another process, all at once in between
        return real(root, train=train)

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", read)
    folder = FASHION_MNIST.array_folder(tmp_path)
    assert list(cache_folder.iterdir()) == [folder]
    assert len(halves(folder, "test").arrays[1]) == 4


def test_what_data_does_not_have_is_downloaded_once(tmp_path, cache_folder, monkeypatch):
    """A fake of torchvision's data set writes what the real one would."""
    downloads = []

    class Downloaded:
        mirrors = ("https://mirror.invalid/",)

        def __init__(self, root, download):
            downloads.append(download)
            if download:
                write_fashion_mnist(data_files.Path(root) / RAW, packed=False)

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", Downloaded)
    monkeypatch.setattr(hub, "reachable", lambda url: url == "https://mirror.invalid/")
    for data in (tmp_path, None):
        assert FASHION_MNIST.find(data)[0].is_relative_to(cache_folder / "downloads")
    assert downloads == [True]
    mine = write_fashion_mnist(tmp_path / "fashion_mnist" / RAW)
    assert FASHION_MNIST.find(tmp_path)[0].parent == mine


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_download_that_fails_or_is_not_wanted(tmp_path, monkeypatch, is_offline):
    def fails(root, download):
        raise RuntimeError("Dataset not found or corrupted.")

    fails.url = "https://host.invalid/"
    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fails)
    monkeypatch.setattr(hub, "reachable", lambda url: not is_offline)
    said = message(CIFAR10, tmp_path)
    assert said.startswith("data: a directory with CIFAR10")
    assert ("; downloading it failed: Dataset not found" in said) is not is_offline
