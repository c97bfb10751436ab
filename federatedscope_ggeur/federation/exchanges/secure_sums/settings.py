"""What both sides of a secure sum are told."""

from __future__ import annotations

from dataclasses import dataclass

#: The stages, in order; each is one sum.
COUNTS, MEANS, POOLED = STAGES = ("counts", "means", "pooled")


@dataclass(frozen=True)
class SumSettings:
    """How statistics are summed.

    Attributes
    ----------
    num_classes, dim : int
        C, and D of the embeddings.
    min_samples : int
        The min-count threshold, which is one on the sum: no class of fewer rows over
        all clients is named.
    stages : tuple of str
        Of `STAGES`, the first ones: without a scatter, counts and means.
    min_clients : int
        Fewer make no sum; 3 at least.
    radius : float
        R: no row is longer.
    max_rows : int
        M: there are no more rows over all clients.
    fraction_bits : int
        f.
    agreed : bytes
        A digest of what else all sides have alike; it is bound into every mask.
    sends_shape : bool
        Whether clients get the pooled covariance in any form.
    trust : str
        "server", or the file of clients' verifying keys.
    signing_key : str
        A client's own file; ``{client}`` in it stands for its number.
    store : str
        The folder in which a client keeps what it has sent; "": the process' memory.
    new_roster : bool
        Other clients may take part than in an earlier sum over the same rows.
    class_names : tuple of str
        Of all classes, in the order of their numbers: what a client notes of its rows
        is by name.
    confirm : bool
        A client waits until its person has typed the words that another client's reads.
    """

    num_classes: int
    dim: int
    min_samples: int
    stages: tuple[str, ...] = STAGES
    min_clients: int = 3
    radius: float = 1.01
    max_rows: int = 2**20
    fraction_bits: int = 40
    agreed: bytes = b""
    sends_shape: bool = False
    trust: str = "server"
    signing_key: str = ""
    store: str = ""
    new_roster: bool = False
    class_names: tuple[str, ...] = ()
    confirm: bool = False

    def length(self, stage: str, named: int = 0) -> int:
        """Numbers of a client's vector of `stage`, of so many `named` classes."""
        if stage == COUNTS:
            return self.num_classes
        if stage == MEANS:
            return named * (self.dim + 1) + 1
        return self.dim * (self.dim + 1) // 2

    @property
    def longest(self) -> int:
        """Numbers of the longest vector."""
        return max(self.length(stage, self.num_classes) for stage in self.stages)
