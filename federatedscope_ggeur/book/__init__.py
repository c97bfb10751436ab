"""A federation's book: its clients' statistics, and the head of any of them."""
