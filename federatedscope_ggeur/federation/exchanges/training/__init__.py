from .exchange import TrainingExchange
