"""Attacks on a run's messages, to show what the messages reveal about rows.

The audit reports how much each attack finds. A passed audit is no proof of privacy.
"""
