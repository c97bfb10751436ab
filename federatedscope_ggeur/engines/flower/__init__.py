"""Flower carries the messages of a federation on a maintained engine.

The ServerApp leads the course. The ClientApp only carries bytes to the resident, the
site's own process. Only the resident reads data, settings and secrets.
"""
