"""Valid messages of noisy releases, which are spoilt as those of the core are."""

import torch

from federatedscope_ggeur.extras.differential_privacy import uploads

SESSION, CLASSES, DIM = bytes(range(16)), 3, 4
MESSAGES = (
    uploads.ReleaseRequest(SESSION, "spread", torch.full((DIM,), 0.5).double()),
    uploads.ReleaseVector(3, SESSION, "moments", torch.arange(CLASSES + DIM) - 2**40),
)
