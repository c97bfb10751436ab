"""The tables of the GGEUR paper as data: figures and settings.

Ma et al., Geometric Knowledge-Guided Localized Global Distribution Alignment for
Federated Learning, CVPR 2025 (arXiv 2503.06457).
"""

from .tables import PAPER_TABLES, PaperTable, Stated, paper_table, stated_at
