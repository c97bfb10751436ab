"""The course of a federation: order of requests, members, checkpoints and records."""
