"""torchvision's classifiers and the images that they are trained on."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from raybench.spec.workloads import VisionSpec
from raybench.workloads import check
from raybench.workloads.vision import ArrayImages, Preparation, Vision, random_crop
from tests.unit.workloads.refusals import refusal


def vision(data=None, **fields):
    return Vision(VisionSpec(name="vision", **fields), data)


@pytest.fixture
def small(tmp_path):
    """Five grey images of 8 pixels: image i is i/10 everywhere but for a black first column."""
    images = np.repeat(np.arange(5, dtype=np.uint8) * 25, 64).reshape(5, 1, 8, 8).copy()
    images[..., 0] = 0
    for split in ("train", "test"):
        np.save(tmp_path / f"{split}_images.npy", images)
        np.save(tmp_path / f"{split}_labels.npy", np.arange(5, dtype=np.uint8))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 32),
        ("resnext50_32x4d", 28),
        ("shufflenet_v2_x0_5", 28),
        ("mobilenet_v3_small", 28),
        ("squeezenet1_1", 32),
        ("googlenet", 32),  # with auxiliary outputs, unless told otherwise
        ("inception_v3", 75),
        ("swin_t", 32),
        ("vit_b_16", 32),
    ],
)
def test_any_classifier_trains_on_its_batches(name, size):
    made = vision(model=name, image_size=size, num_classes=7)
    with torch.device("meta"):  # shapes without numbers: the large ones would take seconds
        model = made.model().train()
    images, labels = made.batch(2, torch.Generator().manual_seed(0))
    assert images.shape == (2, 3, size, size)
    assert model(images.to("meta")).shape == (2, 7)
    made.loss(model, (images.to("meta"), labels.to("meta"))).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_step_makes_the_loss_smaller():
    torch.manual_seed(0)
    made = vision(model="resnet18", small_image_stem=False)
    model = made.model().train()
    batch = made.batch(8, torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    before = made.loss(model, batch)
    before.backward()
    optimizer.step()
    assert made.loss(model, batch) < before


def test_the_small_stem_of_resnets_keeps_the_resolution():
    images = torch.zeros(2, 3, 32, 32)
    for stem, side in ((True, 32), (False, 8)):
        model = vision(small_image_stem=stem).model()
        found = model.maxpool(model.relu(model.bn1(model.conv1(images))))
        assert found.shape == (2, 64, side, side)


def test_the_small_stem_means_nothing_to_others():
    with_stem, without = (vision(model="squeezenet1_1", small_image_stem=on).model() for on in (True, False))
    assert str(with_stem) == str(without)


@pytest.mark.parametrize(
    ("data_set", "size", "classes"),
    [("cifar10", 32, 10), ("fashion_mnist", 28, 10)],
)
def test_synthetic_images_have_the_data_sets_shape(data_set, size, classes):
    made = vision(data_set=data_set)
    images, labels = made.batch(3, torch.Generator().manual_seed(1))
    again, _ = made.batch(3, torch.Generator().manual_seed(1))
    assert images.shape == (3, 3, size, size)
    assert images.equal(again)
    assert labels.max() < classes == made.num_classes
    assert made.model().fc.out_features == classes


def test_correct_predictions_are_counted():
    output = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    assert vision().metric(output, (torch.zeros(3), torch.tensor([0, 1, 1]))) == 2


@pytest.mark.parametrize(
    ("received", "hint"),
    [
        ("resnet19", "resnet18"),
        ("ResNet50", "resnet50"),
        ("fasterrcnn_resnet50_fpn", "'fasterrcnn_resnet50_fpn'"),  # no classifier
        ("", "a classifier of torchvision.models"),
    ],
)
def test_a_name_that_is_no_classifier_is_refused_with_the_nearest(received, hint):
    said = refusal(lambda: vision(model=received))
    assert said.startswith("workload.model: ")
    assert hint in said


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [
        ("vgg11", None, "vgg11 takes (received 28: Given input size: (512x1x1)"),
        ("inception_v3", 64, "(received 64: Calculated padded input size"),
        ("vit_b_16", 28, "indivisible by patch size"),
        ("maxvit_t", 32, "not divisible by partition size 7"),
    ],
)
def test_images_too_small_for_the_model_are_refused(model, size, words):
    said = refusal(vision(model=model, image_size=size, data_set="fashion_mnist").check)
    assert said.startswith("workload.image_size: ")
    assert words in said


@pytest.mark.parametrize("data_set", ["cifar10", "fashion_mnist"])
def test_missing_data_is_refused_before_anything_starts(data_set, tmp_path):
    spec = VisionSpec(name="vision", data_set=data_set, input="real")
    for data in (None, str(tmp_path)):
        assert refusal(lambda data=data: check(spec, data)).startswith("data: ")


def test_images_are_normalised_and_grey_is_repeated(small):
    images = ArrayImages(small, "train", Preparation((0.5,), (0.25,)))
    ((image, label),) = images.__getitems__([2])
    assert (image.shape, image.dtype, label) == ((3, 8, 8), torch.float32, 2)
    assert image[:, 0, 1].tolist() == pytest.approx([(50 / 255 - 0.5) / 0.25] * 3)
    assert image[0, 0, 0] == pytest.approx(-2)


def test_augmented_images_keep_shape_and_range_and_repeat_with_the_seed(small):
    prepare = Preparation((0.0,), (1.0,), padding=2, flip=True, size=12)
    images = ArrayImages(small, "train", prepare)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(torch.stack([image for image, _ in images.__getitems__([0, 1, 2, 3, 4] * 4)]))
    assert drawn[0].shape == (20, 3, 12, 12)
    assert drawn[0].min() >= 0
    assert drawn[0].max() <= 1
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])


def test_a_random_crop_moves_each_image_by_itself():
    torch.manual_seed(0)
    images = torch.zeros(200, 1, 5, 5)
    images[:, :, 2, 2] = 1
    moved = random_crop(images, 1).nonzero()[:, 2:]
    assert len(moved) == 200  # no image lost its point, none has two
    assert {tuple(place) for place in moved.tolist()} == {(y, x) for y in (1, 2, 3) for x in (1, 2, 3)}


def test_a_crop_shows_what_torchvisions_would():
    torch.manual_seed(5)
    image = torch.randint(256, (1, 3, 6, 6), dtype=torch.uint8)
    every = {
        tuple(v2.functional.pad(image, [1])[..., y : y + 6, x : x + 6].flatten().tolist())
        for y in range(3)
        for x in range(3)
    }
    found = {tuple(random_crop(image, 1).flatten().tolist()) for _ in range(200)}
    assert found == every


def test_a_flip_turns_half_of_the_images(small):
    torch.manual_seed(0)
    images = ArrayImages(small, "train", Preparation((0.0,), (1.0,), flip=True))
    drawn = torch.stack([image for image, _ in images.__getitems__([4] * 400)])
    flipped = (drawn[:, 0, 0, 0] > 0).float().mean()
    assert 0.4 < flipped < 0.6


def test_a_loader_takes_whole_batches_and_a_pickle_carries_no_images(small):
    images = ArrayImages(small, "train", Preparation((0.0,), (1.0,)))
    batch, labels = next(iter(DataLoader(images, batch_size=4)))
    assert batch.shape == (4, 3, 8, 8)
    assert (labels.tolist(), labels.dtype) == ([0, 1, 2, 3], torch.int64)
    assert len(pickle.dumps(images)) < 2000
    assert pickle.loads(pickle.dumps(images)).__getitems__([3])[0][1] == 3


@pytest.mark.parametrize("data_set", [pytest.param("cifar10", marks=pytest.mark.long), "fashion_mnist"])
def test_the_published_images_are_complete_and_normalised(data_set, data_dir):
    made = vision(data_dir, data_set=data_set, input="real", augment=False)
    train, test = made.dataset("train"), made.dataset("test")
    assert (len(train), len(test)) == ({"cifar10": 50_000, "fashion_mnist": 60_000}[data_set], 10_000)
    labels = train._stored.arrays[1]
    assert np.bincount(labels).tolist() == [len(train) // 10] * 10
    # the published mean and standard deviation leave images of mean 0 and deviation 1
    images = torch.stack([image for image, _ in train.__getitems__(range(0, len(train), 25))])
    assert images.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=0.03)
    assert images.std(dim=(0, 2, 3)).tolist() == pytest.approx([1] * 3, abs=0.03)


def test_samples_are_the_first_training_images_only(data_dir):
    few, all_of_them = (
        vision(data_dir, data_set="fashion_mnist", input="real", samples=samples, augment=False)
        for samples in (12, None)
    )
    assert len(few.dataset("train")) == 12
    (last, _), (same, _) = (each.dataset("train").__getitems__([11])[0] for each in (few, all_of_them))
    assert last.equal(same)
    assert len(few.dataset("test")) == 10_000
    too_many = vision(data_dir, data_set="fashion_mnist", input="real", samples=60_001)
    assert "workload.samples" in refusal(lambda: too_many.dataset("train"))


def test_fewer_classes_than_the_data_has_are_refused(data_dir):
    assert "workload.num_classes" in refusal(lambda: vision(data_dir, num_classes=9).dataset("train"))
