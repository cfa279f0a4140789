"""CIFAR-10 and Fashion-MNIST: found under ``--data``, else downloaded by torchvision, and stored as arrays.

What is found (an archive, its extracted files, gzipped or not) is read and
checked once, and stored as NumPy arrays (``data_files``). The arrays are mapped into memory: the ranks of a
machine and their loaders' processes share one copy, and the next trial opens it at once.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from raybench.errors import RequestError
from raybench.workloads import data_files, hub
from raybench.workloads.data_files import candidate_folders, damaged, file_stats, first_line

CIFAR10_FOLDER = "cifar-10-batches-py"
CIFAR10_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz", "cifar-10-batches-py.tar.xz")
# splits by the first part of their files' names
FASHION_MNIST_FILES = {"train": "train", "test": "t10k"}
IDX_MAGIC = {1: 2049, 3: 2051}  # of an idx file of bytes, by its number of dimensions
DAMAGED_ARCHIVE = (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error)

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageArrays:
    """One half of a data set: images of shape (n, channels, height, width), labels of shape (n,)."""

    images: Bytes
    labels: Bytes


@dataclass(frozen=True)
class PublishedFiles:
    """The files of a published data set, and what reads them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[tuple[Path, ...]], dict[str, ImageArrays]]


def cifar10(data: Path | None) -> PublishedFiles:
    """CIFAR-10 under ``data``, else downloaded. Raises ``RequestError`` where there is none."""
    what = f"{CIFAR10_FOLDER}/ or {' or '.join(CIFAR10_ARCHIVES[::2])}"
    return _find_or_download(_find_cifar10, data, "CIFAR-10", what, "CIFAR10")


def fashion_mnist(data: Path | None) -> PublishedFiles:
    """Fashion-MNIST under ``data``, else downloaded. Raises ``RequestError`` where there is none."""
    what = "FashionMNIST/raw/train-images-idx3-ubyte[.gz] and so on"
    return _find_or_download(_find_fashion_mnist, data, "Fashion-MNIST", what, "FashionMNIST")


def _find_cifar10(data: Path | None) -> PublishedFiles | None:
    for folder in candidate_folders(data, "cifar10", "cifar-10", "CIFAR10"):
        for batches in (folder / CIFAR10_FOLDER, folder):
            if (batches / "data_batch_1").is_file():
                names = [name for split in _cifar10_parts().values() for name, _ in split]
                return PublishedFiles(
                    "cifar10", tuple(batches / name for name in names), _read_cifar10_folder
                )
        for name in CIFAR10_ARCHIVES:
            if (folder / name).is_file():
                return PublishedFiles("cifar10", (folder / name,), _read_cifar10_archive)
    return None


def _find_fashion_mnist(data: Path | None) -> PublishedFiles | None:
    names = [
        f"{part}-{kind}-ubyte"
        for part in FASHION_MNIST_FILES.values()
        for kind in ("images-idx3", "labels-idx1")
    ]
    for place in candidate_folders(data, "fashion_mnist", "fashion-mnist"):
        for folder in (place / "FashionMNIST" / "raw", place):
            files = [_plain_or_gz(folder / name) for name in names]
            if files[0] is not None:
                expected = tuple(file or folder / name for file, name in zip(files, names, strict=True))
                return PublishedFiles("fashion_mnist", expected, _read_fashion_mnist)
    return None


def _find_or_download(
    find: Callable[[Path | None], PublishedFiles | None],
    data: Path | None,
    title: str,
    what: str,
    torchvision_name: str,
) -> PublishedFiles:
    """Under ``data``, else in the cache, where torchvision downloads it if there is a network."""
    place, why = data_files.cache_directory() / "downloads", ""
    found = find(data) or find(place)
    if found is None:
        import torchvision

        data_set = getattr(torchvision.datasets, torchvision_name)
        url = data_set.url if hasattr(data_set, "url") else data_set.mirrors[0]
        if hub.has_address(url) and not hub.is_offline():
            try:
                place.mkdir(parents=True, exist_ok=True)
                with FileLock(place / f"{torchvision_name}.lock"):
                    data_set(str(place), download=find(place) is None)
            except (OSError, RuntimeError) as error:  # no connection, or other bytes than the published ones
                why = f"; downloading it failed: {first_line(error)}"
            found = None if why else find(place)
    if found is None:
        raise _missing(data, title, what, torchvision_name, why)
    return found


def array_folder(published: PublishedFiles) -> Path:
    """The folder with the data set's arrays, made if it is not there; safe in many processes at once.

    Raises ``RequestError`` for damaged files and for a cache that cannot be written.
    """
    name = f"{published.name}-{data_files.key(published.files)}"
    folder = data_files.cached(name)
    if folder is not None:
        return folder
    splits = published.read(published.files)
    return data_files.store(name, lambda new: _write(splits, new))


def open_arrays(folder: Path, split: str) -> ImageArrays:
    """One half of what ``array_folder`` holds, mapped into memory, read-only."""
    images, labels = (np.load(folder / f"{split}_{part}.npy", mmap_mode="r") for part in ("images", "labels"))
    return ImageArrays(images, labels)


def _missing(data: Path | None, title: str, what: str, torchvision_name: str, why: str) -> RequestError:
    where = "DIR" if data is None else str(data)
    command = (
        f'python -c "import torchvision; torchvision.datasets.{torchvision_name}({where!r}, download=True)"'
    )
    received = "nothing: --data DIR says where" if data is None else where
    return RequestError(
        f"data: a directory with {title}: {what}; this downloads it: {command} (received {received}{why})"
    )


def _write(splits: dict[str, ImageArrays], folder: Path) -> None:
    for name, split in splits.items():
        np.save(folder / f"{name}_images.npy", split.images)
        np.save(folder / f"{name}_labels.npy", split.labels)


def _cifar10_parts() -> dict[str, list[tuple[str, str]]]:
    """The files of each half with their MD5s, as torchvision knows them."""
    from torchvision.datasets import CIFAR10

    halves = {"train": CIFAR10.train_list, "test": CIFAR10.test_list}
    return {half: [(name, digest) for name, digest in parts] for half, parts in halves.items()}


def _read_cifar10_folder(files: tuple[Path, ...]) -> dict[str, ImageArrays]:
    file_stats(files)
    return _cifar10_arrays({file.name: file.read_bytes() for file in files}, files[0].parent)


def _read_cifar10_archive(files: tuple[Path, ...]) -> dict[str, ImageArrays]:
    """Read the members' bytes; nothing of the archive is extracted."""
    (file,) = files
    wanted = {f"{CIFAR10_FOLDER}/{name}": name for part in _cifar10_parts().values() for name, _ in part}
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                name = wanted.get(member.name.removeprefix("./"))
                content = archive.extractfile(member) if name and member.isfile() else None
                if name and content is not None:
                    contents[name] = content.read()
    except DAMAGED_ARCHIVE as error:
        raise damaged(file, first_line(error).rstrip(":")) from error
    return _cifar10_arrays(contents, file)


def _cifar10_arrays(contents: dict[str, bytes], where: Path) -> dict[str, ImageArrays]:
    """Both halves out of the bytes of the published files, by name, each checked by its MD5."""
    splits = {}
    for half, parts in _cifar10_parts().items():
        images, labels = [], []
        for name, digest in parts:
            if name not in contents:
                raise damaged(where, f"it has no {name}")
            if hashlib.md5(contents[name], usedforsecurity=False).hexdigest() != digest:
                raise damaged(where / name, "its MD5 is not the published one")
            batch = pickle.loads(contents[name], encoding="latin1")  # the published bytes: no one else's
            images.append(np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3, 32, 32))
            labels.append(np.asarray(batch["labels"], dtype=np.uint8))
        splits[half] = ImageArrays(np.concatenate(images), np.concatenate(labels))
    return splits


def _plain_or_gz(file: Path) -> Path | None:
    packed = file.with_name(f"{file.name}.gz")
    return file if file.is_file() else packed if packed.is_file() else None


def _read_fashion_mnist(files: tuple[Path, ...]) -> dict[str, ImageArrays]:
    splits, pairs = {}, zip(files[::2], files[1::2], strict=True)
    for half, (images_file, labels_file) in zip(FASHION_MNIST_FILES, pairs, strict=True):
        images, labels = _idx(images_file, 3), _idx(labels_file, 1)
        if len(images) != len(labels):
            raise damaged(labels_file, f"{len(labels)} labels for {len(images)} images")
        splits[half] = ImageArrays(images[:, None], labels)
    return splits


def _idx(file: Path, dimensions: int) -> Bytes:
    """The bytes of an idx file (LeCun's format of MNIST): magic number, lengths, values."""
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read()
    except DAMAGED_ARCHIVE as error:
        raise damaged(file, first_line(error).rstrip(":")) from error
    length = 4 * (1 + dimensions)
    header = np.frombuffer(content[:length], dtype=">u4").tolist() if len(content) >= length else [0]
    if header[0] != IDX_MAGIC[dimensions]:
        raise damaged(file, f"it does not begin as an idx file of {dimensions} dimensions")
    values = np.frombuffer(content, dtype=np.uint8, offset=length)
    shape = tuple(header[1:])
    if values.size != np.prod(shape):
        raise damaged(file, f"{values.size} values where {'x'.join(map(str, shape))} are announced")
    return values.reshape(shape)
