"""What Tab offers behind the commands of sites."""

from completed import offered


def test_both_sides_say_as_much_as_is_asked_and_serve_takes_settings():
    for side in ("serve", "join"):
        assert {"--log-level", "--quiet"} <= offered(f"{side} --")
    assert offered("serve --cfg x see") == {"seed"}
    assert not offered("join --cfg x see")
