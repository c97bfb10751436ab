"""Compare runs: tables with statistics, and figures."""

from .comparison import Comparison
from .labels import Difference, Spread, holm, paired
from .runs import FoundRun, Measure
from .table import Best, Row, Table
