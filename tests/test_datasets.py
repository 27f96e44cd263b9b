"""The digits are whole, evenly split, and scaled as documented."""

import doctest

import numpy as np
import pytest

from optirs_web.datasets import digits, load_digits

CLASS_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
FOLDS = range(5)


def rows(images, labels):
    return sorted((int(label), image.tobytes()) for image, label in zip(images, labels, strict=True))


@pytest.mark.parametrize("fold", FOLDS)
def test_train_and_test_together_are_the_whole_data_set(fold):
    split = load_digits(fold)
    assert len(split.train_images) == len(split.train_labels)
    assert len(split.test_images) == len(split.test_labels)
    labels = np.concatenate([split.train_labels, split.test_labels])
    assert np.bincount(labels).tolist() == CLASS_COUNTS


def test_the_data_set_is_shown_by_its_sizes():
    assert repr(load_digits()) == "<Digits: 1,437 training images, 360 test images>"


@pytest.mark.parametrize("fold", FOLDS)
def test_each_class_is_spread_evenly_over_the_folds(fold):
    in_fold = np.bincount(load_digits(fold).test_labels, minlength=10)
    assert np.all(np.abs(in_fold - np.array(CLASS_COUNTS) / 5) < 1)


def test_every_image_is_a_test_image_of_exactly_one_fold():
    tests = [load_digits(fold) for fold in FOLDS]
    images = np.concatenate([split.test_images for split in tests])
    labels = np.concatenate([split.test_labels for split in tests])
    whole = load_digits(0)
    assert rows(images, labels) == rows(
        np.concatenate([whole.train_images, whole.test_images]),
        np.concatenate([whole.train_labels, whole.test_labels]),
    )


def test_no_image_is_in_both_parts_of_a_split():
    split = load_digits(0)
    assert not {image.tobytes() for image in split.train_images} & {image.tobytes() for image in split.test_images}


def test_images_are_float32_from_0_to_1_in_sixteenths():
    images = load_digits(0).train_images
    assert images.dtype == np.float32
    assert images.shape == (1437, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert np.all(images * 16 == np.rint(images * 16))


def test_labels_are_int32():
    split = load_digits(0)
    assert split.train_labels.dtype == split.test_labels.dtype == np.int32


def test_the_first_image_is_the_zero_of_the_source():
    image = load_digits(2).train_images[0] * 16
    assert image[:8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


@pytest.mark.parametrize("fold", [-1, 5, "0", None, 0.5])
def test_an_unknown_fold_is_refused_with_the_range(fold):
    with pytest.raises(ValueError, match="0 to 4"):
        load_digits(fold)


def test_the_example_in_the_documentation_runs():
    result = doctest.testmod(digits)
    assert result.attempted > 0
    assert result.failed == 0
