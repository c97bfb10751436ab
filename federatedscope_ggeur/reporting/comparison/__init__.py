"""Compare runs: tables with statistics, and figures."""

from federatedscope_ggeur.reporting.comparison.comparison import Comparison
from federatedscope_ggeur.reporting.comparison.measures import Measure
from federatedscope_ggeur.reporting.comparison.runs import FoundRun
from federatedscope_ggeur.reporting.comparison.statistics import (
    Difference,
    Spread,
    holm,
    paired,
)
from federatedscope_ggeur.reporting.comparison.table import Best, Row, Table
