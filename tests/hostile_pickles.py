"""What a file or a message of somebody else may hold, to have a program run."""

import os


class Runs:
    """Calls a function when it is unpickled; by default, makes a folder."""

    def __init__(self, argument, function=os.mkdir):
        self.argument, self.function = str(argument), function

    def __reduce__(self):
        return self.function, (self.argument,)
