"""Flower carries the messages: a real federation on a maintained engine.

The ServerApp leads the course. The ClientApp only carries bytes to the resident, the
site's own process, which alone reads data, settings and secrets.
"""
