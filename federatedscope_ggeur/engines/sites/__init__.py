"""A folder carries the messages of a federation: no server at a port, no accounts.

The server writes ``to/<site>/NNNN.msg``, a site ``from/<site>/NNNN.msg``. Anybody may
carry the files: each is signed by its sender and sealed to its receiver.
"""
