"""The settings of secure sums, which server and clients share."""

from __future__ import annotations

from dataclasses import dataclass

from .summand import OTHER_STAGES, Summand

#: The stages, in order; each is one sum.
COUNTS, MEANS, POOLED = STAGES = ("counts", "means", "pooled")
#: The stages of all sums.
ALL_STAGES = (*STAGES, *OTHER_STAGES)


@dataclass(frozen=True)
class SumSettings:
    """The settings by which statistics are summed.

    Attributes
    ----------
    num_classes, dim : int
        The number of classes C and the dimension D of embeddings.
    min_samples : int
        The min-count threshold over all clients. A class with fewer rows is not summed.
    stages : tuple of str
        All of `STAGES`, or only counts and means if no scatter is needed. With a
        summand, its stages.
    min_clients : int
        The least number of clients in a roster, at least 3.
    radius : float
        R: the largest norm of a row.
    max_rows : int
        M: the largest number of rows over all clients.
    fraction_bits : int
        f: the bits behind the point of a summed number.
    agreed : bytes
        A digest of the other settings that all sides share. Every mask depends on it.
    sends_shape : bool
        Whether clients get the pooled covariance in some form.
    trust : str
        "server", or the file of clients' verifying keys.
    signing_key : str
        A client's key file; ``{client}`` in it stands for its number.
    store : str
        The folder of the client's journal; "" keeps the journal in memory.
    new_roster : bool
        Whether the roster may differ from that of an earlier sum over the same rows.
    class_names : tuple of str
        The names of all classes, in the order of their numbers. The journal uses names.
    confirm : bool
        Whether a client waits until a person has typed the words of another client.
    summand : Summand, optional
        What clients add in place of their exact statistics.
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
    summand: Summand | None = None

    def length(self, stage: str, named: int = 0) -> int:
        """How many numbers a client's vector has in `stage`, given `named` classes."""
        if self.summand is not None:
            return self.summand.length(stage)
        if stage == COUNTS:
            return self.num_classes
        if stage == MEANS:
            return named * (self.dim + 1) + 1
        return self.dim * (self.dim + 1) // 2

    @property
    def longest(self) -> int:
        """How many numbers the longest vector has."""
        return max(self.length(stage, self.num_classes) for stage in self.stages)
