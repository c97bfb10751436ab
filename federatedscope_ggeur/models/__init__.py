"""Classifiers on embeddings and image networks, trained or computed in closed form."""

from federatedscope_ggeur.models.base import (
    CPU,
    Model,
    StageHook,
    add_autograd_gradient,
)
from federatedscope_ggeur.models.build import ModelSettings, build_model, two_kinds
from federatedscope_ggeur.models.calibration_draws import (
    draw_features,
    put_last_layer,
    take_last_layer,
)
from federatedscope_ggeur.models.closed_forms import (
    CLOSED_FORMS,
    NEEDS,
    ClosedForm,
    build_closed_form,
    register_closed_form,
)
from federatedscope_ggeur.models.folding import fold, recast, unfold
from federatedscope_ggeur.models.linear import LinearHead
from federatedscope_ggeur.models.mixture import MixtureHead
from federatedscope_ggeur.models.mlp import MLPHead
from federatedscope_ggeur.models.networks import (
    NETWORKS,
    ImageNetwork,
    NetworkSettings,
    register_network,
)
from federatedscope_ggeur.models.own import (
    OF_HEAD,
    OwnModels,
    head_bytes,
    own_bytes,
    own_tensors,
)
from federatedscope_ggeur.models.text import (
    TEXT_MODELS,
    TextModelSettings,
    register_text_model,
)
from federatedscope_ggeur.models.vectors import (
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
