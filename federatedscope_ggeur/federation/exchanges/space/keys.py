"""Settings of the space of training."""

from federatedscope_ggeur.geometry import SPACES, SpaceSettings
from federatedscope_ggeur.settings import Key, one_of, positive_share

KEYS = (
    Key(
        "space",
        SPACES[0],
        "The coordinates of training, made from totals of the clients' rows. "
        "standard: centred and scaled, so that one rate suits all embeddings; "
        "dimensions with different units are scaled separately. raw: the embeddings "
        "as they are. whitened: equally wide in all directions within classes. The "
        "final model works on raw embeddings.",
        one_of(*SPACES),
        shared=True,
    ),
    Key(
        "whitened.shrinkage",
        SpaceSettings.shrinkage,
        "The whitened space: share of the spherical covariance in the common one of "
        "classes, above 0 and at most 1.",
        positive_share,
        shared=True,
    ),
)
