"""Finds modules by the names that they had before they moved into extras."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

_PACKAGE = __package__


class FormerNames(Loader):
    """Imports a moved module when its former name is imported; see `Manifest.formerly`.

    It stands behind the finders of Python, so it is asked for missing modules only.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != _PACKAGE or not name:
            return None
        former = _all()
        is_package = any(one.startswith(f"{name}.") for one in former)
        if name in former or is_package:
            return spec_from_loader(fullname, self, is_package=is_package)
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
        if name in _all():
            # Python takes what stands here, so both names have one module.
            sys.modules[module.__name__] = import_module(_all()[name])


def _all() -> dict[str, str]:
    from federatedscope_ggeur.extras import all_of

    return all_of("formerly")
