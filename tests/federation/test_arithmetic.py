"""What a GPU is asked for while it trains."""

import pytest
import torch

from federatedscope_ggeur.federation.arithmetic import exact

CUDNN = torch.backends.cudnn


@pytest.mark.skipif(not CUDNN.is_available(), reason="this torch has no cuDNN")
def test_flags_are_set_for_a_gpu_alone_and_put_back():
    before = CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32
    with exact(torch.device("cuda")):
        assert CUDNN.deterministic
        assert not CUDNN.benchmark
        assert not CUDNN.allow_tf32
    assert (CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32) == before
    with exact(torch.device("cpu")):
        assert (CUDNN.deterministic, CUDNN.benchmark, CUDNN.allow_tf32) == before
