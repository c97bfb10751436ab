"""Valid messages of secure sums, which are spoilt as those of the core are."""

import torch

from federatedscope_ggeur.extras.secure_sums import messages

SESSION, ROSTER = bytes(range(16)), (1, 3, 7)
KEYS = tuple(bytes([k]) * 32 for k in ROSTER)
MESSAGES = (
    messages.SumKeysRequest(SESSION, ROSTER, 3, 5, 1.01, 2**20, 40),
    messages.MaskedRequest(
        *(SESSION, "means", ROSTER, KEYS, KEYS[::-1], (b"", b"3" * 64, b"")),
        classes=torch.tensor([0, 2]),
        counts=torch.tensor([5, 9]),
        vectors=torch.arange(9).view(3, 3) - 2**62,
    ),
    messages.SumKey(3, SESSION, KEYS[0], KEYS[1], b"3" * 64),
    messages.MaskedVector(3, SESSION, "means", torch.tensor([-1, 2**63 - 1, -(2**63)])),
)
