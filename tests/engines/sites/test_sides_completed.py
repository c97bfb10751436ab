"""What Tab offers behind the commands of sites."""

from federatedscope_ggeur.commands.completion import completions


def offered(line: str) -> set[str]:
    """The words behind `line`, whose last one is being typed."""
    *words, prefix = line.split(" ")
    return set(completions(words, prefix)[0])


def test_both_sides_say_as_much_as_is_asked_and_serve_takes_settings():
    for side in ("serve", "join"):
        assert {"--log-level", "--quiet"} <= offered(f"{side} --")
    assert offered("serve --cfg x see") == {"seed"}
    assert not offered("join --cfg x see")
