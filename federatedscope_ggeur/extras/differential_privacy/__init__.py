"""Differential privacy: statistics released with noise, and ledgers of budgets."""
