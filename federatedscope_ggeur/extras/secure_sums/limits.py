"""Limits and names of the settings, which the manifest knows without torch."""

#: The largest number of fraction bits.
MOST_BITS = 52
#: The largest roster: every pair of clients has a key.
MOST_CLIENTS = 10_000
#: Clients trust the server to send them each other's keys.
SERVER = "server"
