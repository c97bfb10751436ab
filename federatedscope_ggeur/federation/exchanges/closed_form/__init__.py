from .exchange import ClosedFormExchange
