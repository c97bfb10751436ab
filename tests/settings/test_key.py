"""One setting: what a part is given of the value in a config."""

import pytest

from federatedscope_ggeur.settings import NOT_SET, Key, positive, text, whole


@pytest.mark.parametrize(
    ("rule", "value", "read"),
    [
        (whole(1), 3.0, 3),
        (whole(1, True), NOT_SET, None),
        (positive, 2.5, 2.5),
        (text, "a", "a"),
        # Refused where settings are checked, and left as it is here.
        (whole(1), 2.5, 2.5),
        (whole(1), "three", "three"),
    ],
)
def test_values_are_read_by_the_rule(rule, value, read):
    found = Key("name", 1.0, "What it means.", rule).read(value)
    assert found == read
    assert type(found) is type(read)
