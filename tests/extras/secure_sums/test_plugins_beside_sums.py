"""An exchange of a plugin beside secure sums."""

import pytest
from exchange_plugin import NAMED, SILENT, write_plugin
from private_words import SUMS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.errors import ConfigError

pytestmark = pytest.mark.usefixtures("forget_exchange")

OWN = [*SUMS, "ggeur.geometry", "pooled", "ggeur.prototypes", "others"]


def checked(folder, quickstart, **more):
    path = write_plugin(folder, quickstart, **more)
    return load_config(path, list(map(str, [*NAMED, *OWN])))


def test_secure_sums_refuse_one_that_does_not_say_what_it_reveals(quickstart, tmp_path):
    with pytest.raises(ConfigError, match=r"the exchange classes_held of .*REVEALS"):
        checked(tmp_path, quickstart, module=SILENT)


def test_under_secure_sums_what_it_reveals_is_a_warning(quickstart, tmp_path):
    privacy = privacy_of(checked(tmp_path, quickstart))
    assert (
        "the exchange classes_held of a plugin escapes the masks: how many classes "
        "each client holds" in privacy.warnings
    )
