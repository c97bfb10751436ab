"""The course of a federation: requests in order, members, checkpoints, records."""
