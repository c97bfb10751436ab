"""Valid messages of a book, which are spoilt as those of the core are."""

import torch

from federatedscope_ggeur.extras.book.chain import BookReceipt, BookUpload
from federatedscope_ggeur.extras.book.grid import Grid, GridStatistics

ROWS = torch.eye(4), torch.tensor([0, 0, 2, 2])
MESSAGES = (
    BookUpload(3, "art", GridStatistics.of_rows(*ROWS, 3, Grid.of_steps([], 4))),
    BookReceipt("{}"),
)
