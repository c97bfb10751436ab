"""Settings of the space of training."""

from federatedscope_ggeur.geometry import SPACES, SpaceSettings
from federatedscope_ggeur.settings import Key, one_of, positive_share

KEYS = (
    Key(
        "space",
        SPACES[0],
        "Coordinates of the embeddings in training, from totals of the clients' rows. "
        "standard: centred and scaled so that one learning rate suits all embeddings; "
        "dimensions in different units are scaled one by one. raw: the embeddings as "
        "they are. whitened: equal variance within classes in all directions. The "
        "saved head takes raw embeddings in each case.",
        one_of(*SPACES),
        shared=True,
    ),
    Key(
        "whitened.shrinkage",
        SpaceSettings.shrinkage,
        "The whitened space: weight of the spherical covariance in the one that is "
        "whitened, above 0 and at most 1.",
        positive_share,
        shared=True,
    ),
)
