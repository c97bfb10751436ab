"""Programs that are no modules of the package, such as those of .ci/."""

import importlib.util
from pathlib import Path


def loaded(path: Path):
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
