from .exchange import StatisticsExchange
