"""Classifiers on embeddings, trained or computed in closed form."""

from .base import (
    CPU,
    OTHER_MODELS,
    Model,
    OtherModel,
    StageHook,
    add_autograd_gradient,
    chosen_other,
    register_other_model,
)
from .build import ModelSettings, build_model, two_kinds
from .calibration_draws import draw_features, put_last_layer, take_last_layer
from .closed_forms import (
    CLOSED_FORMS,
    NEEDS,
    ClosedForm,
    Known,
    build_closed_form,
    register_closed_form,
)
from .folding import fold, recast, unfold
from .heads import LinearHead, MixtureHead, MLPHead
from .own import OF_HEAD, OwnModels, head_bytes, own_bytes, own_tensors
from .vectors import (
    bind_vector,
    is_bound,
    load_vector,
    named_tensors,
    negative_variance,
    num_buffers,
    num_parameters,
    num_trainable,
    split_vector,
    stacks,
    to_vector,
    trainable_part,
)
