"""Compare runs: tables with statistics, and figures."""

from .comparison import Comparison
from .measures import Measure
from .runs import FoundRun
from .statistics import Difference, Spread, holm, paired
from .table import Best, Row, Table
