"""Pictures of who holds what, and of how alike domains are, before a run."""
