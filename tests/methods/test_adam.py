"""Adam of one vector beside torch's own."""

import pytest
import torch

from federatedscope_ggeur.methods.adam import Adam


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.999)])
def test_steps_are_those_of_torch(betas):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    vector, theirs = start.clone(), start.clone().requires_grad_(True)
    adam = Adam(vector, 0.1, betas)
    torchs = torch.optim.Adam([theirs], lr=0.1, betas=betas)
    schedule = torch.optim.lr_scheduler.StepLR(torchs, 3, 0.5)
    for step in range(10):
        gradient = torch.randn(20, generator=generator, dtype=torch.float64)
        theirs.grad = gradient.clone()
        adam.lr = 0.1 * 0.5 ** (step // 3)
        adam.step(gradient)
        torchs.step()
        schedule.step()
        torch.testing.assert_close(vector, theirs.detach(), rtol=1e-10, atol=1e-12)
