"""The course of a federation: what is asked when, who is there, what is recorded."""
