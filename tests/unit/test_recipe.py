"""The recipe of a coreset: checked once, varied without change of the rest, plain data in a fixed order."""

import dataclasses

import pytest

import kernelcoreset as kc
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of

RECIPE = Recipe(3, kc.Gaussian(2.0), 20, z=1.5, draw="iid", seed=7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be at least 1; got 0"),
        ({"kernel": kc.Gaussian}, r"`kernel` must be a kernel object; got the class Gaussian. Write Gaussian\(...\)"),
        ({"size": 2}, r"`size` must be at least k \(3\); got 2. Ask for more coreset points or fewer clusters."),
        ({"size": 20.0}, "`size` must be a whole number; got 20.0"),
        ({"z": 0.5}, "`z` must be a finite number of at least 1; got 0.5. Use z=2 for k-means, z=1 for k-median."),
        ({"draw": "all"}, "`draw` must be one of 'ordered', 'iid', 'uniform'; got 'all'"),
        ({"seed": -1}, "`seed` must be at least 0; got -1"),
    ],
)
def test_a_recipe_is_checked_when_it_is_made(changes, message):
    with pytest.raises(kc.SettingError, match=message):
        dataclasses.replace(RECIPE, **changes)


def test_a_varied_recipe_differs_in_what_was_asked_for_alone():
    assert RECIPE.varied() == RECIPE
    assert RECIPE.varied(size=30) == dataclasses.replace(RECIPE, size=30)
    assert RECIPE.varied(seed=0) == dataclasses.replace(RECIPE, seed=0)
    with pytest.raises(kc.SettingError, match=r"`size` must be at least 1; got 0"):
        RECIPE.varied(size=0)


def test_settings_are_plain_data_in_the_order_of_the_file_format():
    kernel = {"kernel": "Gaussian", "sigma": 2.0}
    expected = [("k", 3), ("z", 1.5), ("kernel", kernel), ("size", 20), ("draw", "iid"), ("seed", 7)]
    assert list(RECIPE.settings.items()) == expected


def test_a_leaf_keeps_four_times_the_size_by_default():
    assert leaf_size_of(20) == 80
    assert leaf_size_of(20, 20) == 20
    with pytest.raises(kc.SettingError, match=r"`leaf_size` must be at least 20; got 19. A node keeps at least `size`"):
        leaf_size_of(20, 19)
