"""A federation's book: the statistics of its clients, and heads made from them."""
