"""Studies: runs over rows, data sets and seeds, tuned and resumed, and their files.

Nothing is imported here: processes that work start before torch is needed.
"""
