"""CIFAR-10 and Fashion-MNIST: found under ``--data``, else downloaded by torchvision, and stored as arrays.

What is found (an archive, its extracted files, gzipped or not) is read and checked once, by torchvision, and
stored as NumPy arrays (``data_files``). The arrays are mapped into memory: the ranks of a machine and their
loaders' processes share one copy, and the next trial opens it at once.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from raybench.errors import RequestError, first_line
from raybench.workloads import data_files, hub
from raybench.workloads.data_files import candidate_folders, damaged


@dataclass(frozen=True)
class PublishedImages:
    """A data set of torchvision's: what is known of it without reading it, and how its files are found."""

    num_classes: int
    image_size: int
    mean: tuple[float, ...]  # of the training images, values from 0 to 1
    std: tuple[float, ...]
    padding: int  # of the random crop
    torchvision: str  # its class there
    place: str  # of its files, below the folder that the class is given
    files: tuple[str, ...]
    folder: str  # of its own, under --data
    archives: tuple[str, ...] = ()

    def array_folder(self, data: Path | None) -> Path:
        """The folder with the data set's arrays, made if it is not there; safe in many processes at once.

        Of "train" and "test" images of shape (n, channels, height, width) and labels of shape (n,).
        Raises ``RequestError`` where it is neither under ``data`` nor can be downloaded, for damaged files,
        and for a cache that cannot be written.
        """
        files = self.find(data)
        name = f"{self.torchvision.lower()}-{data_files.key(files)}"
        return data_files.stored(name, lambda new: self._write(files, new))

    def find(self, data: Path | None) -> tuple[Path, ...]:
        """Its files under ``data``, else in the cache, where torchvision downloads them."""
        place, why = data_files.cache_directory() / "downloads", ""
        if found := self._find(data) or self._find(place):
            return found
        data_set = self._class()
        url = data_set.url if hasattr(data_set, "url") else data_set.mirrors[0]
        if hub.reachable(url):
            try:
                place.mkdir(parents=True, exist_ok=True)
                with FileLock(place / f"{self.torchvision}.lock"):
                    data_set(str(place), download=self._find(place) is None)
                if found := self._find(place):
                    return found
            except (OSError, RuntimeError) as error:  # no connection, or other bytes than the published ones
                why = f"; downloading it failed: {first_line(error)}"
        raise self._missing(data, why)

    def _find(self, data: Path | None) -> tuple[Path, ...] | None:
        for folder in candidate_folders(data, self.folder):
            packed = (folder / self.place / f"{name}.gz" for name in self.files)
            files = [gz if gz.is_file() else gz.with_suffix("") for gz in packed]
            if files[0].is_file():
                return tuple(files)
            for archive in (folder / name for name in self.archives):
                if archive.is_file():
                    return (archive,)
        return None

    def _class(self) -> Any:
        import torchvision

        return getattr(torchvision.datasets, self.torchvision)

    def _write(self, files: tuple[Path, ...], folder: Path) -> None:
        with tempfile.TemporaryDirectory() as root:
            place = Path(root, self.place)
            place.mkdir(parents=True)
            try:
                for file in files:
                    if file.name in self.archives:
                        # Python 3.11 has filters since 3.11.4, and Debian 12 has 3.11.2
                        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                        shutil.unpack_archive(file, root, **safely)
                    elif file.suffix == ".gz":
                        (place / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
                    else:
                        (place / file.name).symlink_to(file.absolute())
                for name in ("train", "test"):
                    half = self._class()(root, train=name == "train")
                    images, labels = (np.asarray(each, dtype=np.uint8) for each in (half.data, half.targets))
                    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
                    if len(images) != len(labels):
                        raise ValueError(f"{len(labels)} labels for {len(images)} images")
                    np.save(folder / f"{name}_images.npy", np.ascontiguousarray(images))
                    np.save(folder / f"{name}_labels.npy", labels)
            except Exception as error:  # whatever bytes that are no image may lead to
                raise damaged(files[0] if len(files) == 1 else files[0].parent, first_line(error)) from error

    def _missing(self, data: Path | None, why: str) -> RequestError:
        where = "DIR" if data is None else str(data)
        load = f"torchvision.datasets.{self.torchvision}({where!r}, download=True)"
        received = "nothing: --data DIR says where" if data is None else where
        what = " or ".join((f"{self.place}/", *self.archives))
        return RequestError(
            f"data: a directory with {self.torchvision}: {what}; this downloads it: "
            f'python -c "import torchvision; {load}" (received {received}{why})'
        )


PUBLISHED_IMAGES = {
    "cifar10": PublishedImages(
        num_classes=10,
        image_size=32,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        padding=4,
        torchvision="CIFAR10",
        place="cifar-10-batches-py",
        files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"),
        folder="cifar10",
        archives=("cifar-10-python.tar.gz", "cifar-10-batches-py.tar.xz"),
    ),
    "fashion_mnist": PublishedImages(
        num_classes=10,
        image_size=28,
        mean=(0.2860,),
        std=(0.3530,),
        padding=0,
        torchvision="FashionMNIST",
        place="FashionMNIST/raw",
        files=tuple(
            f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
        ),
        folder="fashion_mnist",
    ),
}
