"""Models that clients keep as their own, and the files of all models of a run.

A score of how unlike all classes a row is: the relative Mahalanobis distance.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence

import torch
from safetensors.torch import save as save_safetensors
from torch import Tensor

from federatedscope_ggeur.errors import DataError

from .base import Model
from .vectors import named_tensors

#: The metadata field with the SHA-256 of the head that a client's model belongs to.
OF_HEAD = "of_head"


def own_tensors(
    model: Model, params: Tensor, shared: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """The tensors of a client's `params` [P + Q] that its own file keeps, by name.

    For a network with a `shared` model, only tensors that differ from it are kept.
    """
    own = {n: t.detach().cpu() for n, t in named_tensors(model, params).items()}
    if shared is None or not model.takes_images:
        return own
    # Copies: a view would keep the whole vector in memory.
    return {n: t.clone() for n, t in own.items() if not torch.equal(t, shared[n])}


class OwnModels:
    """One model for each client, and the shared model, if there is one.

    Parameters
    ----------
    model : Model
        The shared model. If there is none, any model of the same kind.
    tensors : mapping from client number to mapping from name to Tensor
        A client's own tensors, which replace those of the shared model.
    shared : bool
        Whether there is a shared model, which has the number 0.
    """

    def __init__(
        self,
        model: Model,
        tensors: Mapping[int, Mapping[str, Tensor]],
        shared: bool = True,
    ):
        self.model, self.tensors, self.shared = model, tensors, shared
        self._last: tuple[int, Model] = 0, model

    def of(self, number: int) -> Model:
        """The model of a client, in evaluation mode.

        Raises
        ------
        DataError
            The client's tensors do not fit the model.
        """
        if number == 0:
            return self.model
        if number != self._last[0]:
            model = copy.deepcopy(self.model)
            common = self.model.state_dict() if self.shared else {}
            try:
                model.load_state_dict({**common, **self.tensors[number]})
            except RuntimeError as error:
                raise DataError(
                    f"client {number}: its own model does not fit the run's settings: "
                    f"{' '.join(str(error).split())}"
                ) from error
            self._last = number, model.eval()
        return self._last[1]

    def logits(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """Logits [n, C] of `rows` [n, D], each row by the model of its number [n]."""
        different = numbers.unique().tolist()
        if len(different) == 1:
            model = self.of(different[0])
            return model.in_chunks(model, rows)
        dtype = next(self.model.parameters()).dtype
        logits = torch.zeros(len(rows), self.model.num_classes, dtype=dtype)
        for number in different:
            mine, model = numbers == number, self.of(number)
            logits[mine] = model.in_chunks(model, rows[mine])
        return logits


def head_bytes(model: Model, class_names: Sequence[str], encoder: str) -> bytes:
    """A model as safetensors bytes, with the names of classes and encoder.

    The same model always gives the same bytes.
    """
    return _bytes(model.state_dict(), _about(class_names, encoder))


def own_bytes(
    tensors: Mapping[str, Tensor],
    client: int,
    domain: str,
    head: bytes | None,
    class_names: Sequence[str],
    encoder: str,
) -> bytes:
    """A client's `own_tensors` as safetensors bytes.

    The metadata hold the client's number and domain, and the names of classes and
    encoder. If the tensors replace some of a `head`, they hold its SHA-256, too.
    """
    about = {"client": str(client), "domain": domain, **_about(class_names, encoder)}
    if head is not None:
        about[OF_HEAD] = hashlib.sha256(head).hexdigest()
    return _bytes(tensors, about)


def _about(class_names: Sequence[str], encoder: str) -> dict[str, str]:
    return {"class_names": json.dumps(list(class_names)), "encoder": encoder}


def _bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Tensors as safetensors bytes, with the entries of `metadata` in its order.

    The order of safetensors' own writer differs from process to process.
    """
    # safetensors refuses tensors that share memory, so each is cloned.
    data = save_safetensors({n: t.contiguous().clone() for n, t in tensors.items()})
    end = 8 + int.from_bytes(data[:8], "little")
    header = {"__metadata__": metadata, **json.loads(data[8:end])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + data[end:]
