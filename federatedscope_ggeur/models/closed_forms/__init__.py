"""Models in closed form, a file each; every module of this folder is imported."""

from federatedscope_ggeur.models.closed_forms.base import (
    CLOSED_FORMS,
    NEEDS,
    ClosedForm,
    Seen,
    Solved,
    Statistics,
    build_closed_form,
    linear_head,
    register_closed_form,
    weight_error_limit,
)
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
