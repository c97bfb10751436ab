from .exchange import EvaluationExchange
