"""Models in closed form, a file each; every module of this folder is imported."""

from importlib import import_module
from pkgutil import iter_modules

from federatedscope_ggeur.models.closed_forms.base import (
    CLOSED_FORMS,
    ClosedForm,
    Seen,
    Solved,
    build_closed_form,
    linear_head,
    register_closed_form,
)

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = [
    "CLOSED_FORMS",
    "ClosedForm",
    "Seen",
    "Solved",
    "build_closed_form",
    "linear_head",
    "register_closed_form",
]
