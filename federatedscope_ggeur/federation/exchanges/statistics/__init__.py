from .exchange import StatisticsExchange
from .steps import Compress, Float32Means, Needed, Threshold
