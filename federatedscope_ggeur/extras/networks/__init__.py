"""Networks on pixels, in place of a head, and the methods that need one."""
