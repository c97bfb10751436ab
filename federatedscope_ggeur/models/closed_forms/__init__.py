"""Models in closed form, one file each. All modules of this folder are imported."""

from federatedscope_ggeur.extras import parts_of
from federatedscope_ggeur.settings import import_modules

from .auto import LARGER_PART, PARTLY_CONFOUNDED, UNLINKED, confounded_share
from .base import (
    CLOSED_FORMS,
    NEEDS,
    ClosedForm,
    Known,
    Seen,
    Solved,
    Statistics,
    build_closed_form,
    linear_head,
    register_closed_form,
)
from .components import ComponentBook, Components, ScoredRows
from .left_out import (
    LOSS_UNITS,
    LeftOut,
    best_temperature,
    in_units,
    is_right,
    left_out_confidences,
    left_out_hits,
    left_out_logits,
    left_out_losses,
    log_losses,
    spread_of_scores,
    temperatures,
)

import_modules(__name__, __path__)
CLOSED_FORMS.expect(parts_of(CLOSED_FORMS.field))
