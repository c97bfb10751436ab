"""An ordinary Flower app, by Flower's public interface alone (flwr 1.21 and later).

The ServerApp leads the course. A ClientApp answers for a site. Flower starts a process
for each message, so what a site must remember lies in its folder.
"""
