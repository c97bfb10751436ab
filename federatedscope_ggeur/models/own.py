"""Models that clients keep as their own, and the files of all models of a run.

A score of how unlike all classes a row is: the relative Mahalanobis distance.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence

import torch
from safetensors.torch import save
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
        found = torch.zeros(len(rows), self.model.num_classes, dtype=dtype)
        for number in different:
            mine, model = numbers == number, self.of(number)
            found[mine] = model.in_chunks(model, rows[mine])
        return found


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


_NAMES = ("centre", "matrix", "weight", "offset")


class Strangeness:
    """Scores how unlike all classes a row is, by the relative Mahalanobis distance.

    The score is ``min_c (x - mu_c)' A^-1 (x - mu_c) - (x - m)' B^-1 (x - m)``. It is
    large for rows of an unknown class. A is LDA's common covariance within classes. B
    is the covariance of all rows with the same shrinkage. m is the mean of all rows.

    Parameters
    ----------
    centre : Tensor of shape (D,)
        m.
    matrix : Tensor of shape (D, D)
        ``A^-1 - B^-1``.
    weight : Tensor of shape (C', D)
        ``A^-1 (mu_c - m)`` for each class with rows.
    offset : Tensor of shape (C',)
        ``(mu_c - m)' A^-1 (mu_c - m)``.

    References
    ----------
    Ren et al., "A simple fix to Mahalanobis distance for improving near-OOD detection",
    2021.
    """

    def __init__(self, centre: Tensor, matrix: Tensor, weight: Tensor, offset: Tensor):
        self.centre, self.matrix = centre, matrix
        self.weight, self.offset = weight, offset

    @classmethod
    def of(
        cls,
        centre: Tensor,
        offsets: Tensor,
        within_root: Tensor,
        total_root: Tensor,
        by: Tensor | None = None,
    ) -> Strangeness:
        """Make the score from the mean of all rows and two covariances.

        `centre` [D] is m, and `offsets` [C', D] are ``mu_c - m``. `within_root` and
        `total_root` [D, D] are the lower Cholesky factors of A and B. If `by` [D] is
        given, all of them are of rows divided by `by`.
        """
        weight = torch.cholesky_solve(offsets.T, within_root).T
        offset = (weight * offsets).sum(dim=1)
        matrix = torch.cholesky_inverse(within_root) - torch.cholesky_inverse(
            total_root
        )
        if by is not None:
            matrix, weight = matrix / by / by[:, None], weight / by
            centre = centre * by
        return cls(centre, matrix, weight, offset)

    def scores(self, features: Tensor) -> Tensor:
        """The score of each row of `features` [n, D]: shape (n,), float64."""
        z = features.double() - self.centre
        classes = self.offset - 2 * z @ self.weight.T
        return ((z @ self.matrix) * z).sum(dim=1) + classes.amin(dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the score, by name."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> Strangeness:
        """Make the score from its tensors. A missing tensor raises `KeyError`."""
        return cls(*(tensors[name].double() for name in _NAMES))

    def to_bytes(self, of_head: str | None = None) -> bytes:
        """The score as safetensors bytes.

        `of_head` is the SHA-256 of the head to which the score belongs; it is stored,
        too.
        """
        tensors = {name: t.contiguous() for name, t in self.tensors().items()}
        return save(tensors, {OF_HEAD: of_head or ""})
