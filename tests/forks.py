"""The program behind `own_process.in_turn`: runs command lines, each in a fork.

Arguments: Python that imports what all of them need, and the command lines as JSON. The
exit status of each is printed. What a command says is in the file output_<number>.
"""

import atexit
import gc
import json
import os
import runpy
import sys
import threading


def main(first: str, calls: list) -> None:
    exec(first, {})
    gc.freeze()
    for number, (words, place) in enumerate(calls):
        if not os.fork():
            end(_status(number, words, place))
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)


def _status(number: int, words: list[str], place: str) -> int:
    """What the program of its own would exit with."""
    output = os.open(f"output_{number}", os.O_WRONLY | os.O_CREAT)
    os.chdir(place)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        _run(words)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _run(words: list[str]) -> None:
    """``python WORDS``."""
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def end(status: int) -> None:
    """What the interpreter does at exit, but for seconds of taking torch apart."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.path[0] = ""  # the working folder, as of python -m
    main(sys.argv[1], json.loads(sys.argv[2]))
