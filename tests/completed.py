"""What Tab offers behind a command line."""

from federatedscope_ggeur.commands.completion import completions


def offered(line: str) -> set[str]:
    """The words behind `line`, whose last one is being typed."""
    *words, prefix = line.split(" ")
    return set(completions(words, prefix)[0])
