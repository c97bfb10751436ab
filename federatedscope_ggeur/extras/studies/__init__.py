"""Studies: many runs that differ in method, data set or seed, with tuning.

This module imports nothing, because worker processes start before torch is imported.
"""
