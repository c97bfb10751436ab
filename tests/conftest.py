"""What tests of several rooms share: settings of pytest. Fixtures are in
`shared_fixtures`."""

import gc
import os
from pathlib import Path

import hypothesis

# How long an example takes says more of the machine than of the code. The examples are
# the same each time, so that none fails by luck. --hypothesis-profile many: as in CI;
# search: others.
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.register_profile("many", deadline=None, derandomize=True)
hypothesis.settings.register_profile(
    "few", hypothesis.settings.get_profile("many"), max_examples=12
)
hypothesis.settings.load_profile("few")

# On Python 3.9 and 3.10 a program is started by a fork, which gRPC's own handlers may
# abort. gRPC reads this when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def pytest_configure(config):
    """The process that only gives tests out to others imports no torch for it."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        config.pluginmanager.import_plugin("shared_fixtures")


# Collecting tests makes much that stays: looking through it again and again takes a
# tenth of that time.
gc.disable()


def pytest_collection_modifyitems(items):
    """Tests of the whole come first: they take longest, and at the end all would wait
    for them."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.parent != here)


def pytest_collection_finish():
    gc.enable()
    gc.freeze()
