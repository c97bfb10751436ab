"""The weights in a checkpoint that FederatedScope wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, to_vector


def weights_of_fs(path: Path, model: Model, method: Method) -> Tensor:
    """Weights [P] for `head` from the file at `path`; no code in it is run.

    Raises
    ------
    ConfigError
        The file is of another kind or of another head, or holds NaN or infinity; or
        the server of `method` has no weights to send.
    """
    if not method.federated:
        raise ConfigError(
            f"federate.restore_from: '{path}' cannot be used: it holds weights alone, "
            f"and with the method {method.name} clients take none from the "
            "server"
        )
    try:
        # The older formats of torch.save are read by code that has run foreign code
        # before, weights_only or not; FederatedScope writes zip files.
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip file, which torch.save has written since 1.6")
        content = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(content["model"])
    # torch.load raises whatever its unpickler meets in a foreign file.
    except Exception as error:
        raise ConfigError(
            f"federate.restore_from: '{path}' cannot be used: it is neither a "
            f"checkpoint of this program nor FederatedScope's with the weights of this "
            f"head ({type(error).__name__}: {error})"
        ) from error
    weights = to_vector(model)
    if not torch.isfinite(weights).all():
        raise ConfigError(
            f"federate.restore_from: '{path}' cannot be used: its weights hold NaN or "
            "infinity"
        )
    return weights
