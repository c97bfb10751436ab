"""A client of FederatedScope's streams that loses its server: it comes back, with
pauses, and not for ever. A place that is taken is tried again, a refusal is not."""

import time
from contextlib import closing

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    ALREADY_JOINED,
    ConnectionLost,
    Envelope,
    Hub,
    Refused,
    link,
    open_link,
)
from federatedscope_ggeur.engines.sites.transport.settings import TransportSettings
from federatedscope_ggeur.errors import GGEURError

grpc = pytest.importorskip("grpc", reason="distributed mode needs grpcio")


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def test_pauses_double_up_to_half_a_minute():
    one = link.Rejoining()
    lost = ConnectionLost("broken off")
    pauses = [one.pause(lost) for _ in range(link.LIMIT)]
    assert pauses[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(pauses[6:]) == {30.0}
    with pytest.raises(GGEURError, match="joined again 20 times"):
        one.pause(lost)


def test_a_connection_that_lasted_counts_as_a_new_beginning(clock):
    one = link.Rejoining()
    lost = ConnectionLost("broken off")
    assert [one.pause(lost), one.pause(lost)] == [0.5, 1.0]
    one.joined()
    clock[0] += 61
    assert one.pause(lost) == 0.5


class Server:
    """Answers attempts to join, one after the other, by an error or not at all."""

    def __init__(self, *answers):
        self.answers, self.tries = list(answers), 0

    def __call__(self, *args):
        self.tries += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise Refused(answer)
        return self

    def close(self):
        """It has nothing to close."""


TAKEN = f"client 1 {ALREADY_JOINED}"


@pytest.fixture
def join(monkeypatch):
    """Join again after a first connection; `server` stands in for the stream."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "monotonic", lambda: float(sum(waited)))

    def go(server, first=None) -> int:
        one = link.SiteLink("127.0.0.1:1", TransportSettings(2**20), 600.0)
        if first is not None:
            monkeypatch.setattr(link, "open_link", first)
            one.join(1, Envelope("join_in"))
        monkeypatch.setattr(link, "open_link", server)
        one.join(1, Envelope("join_in"))
        return server.tries

    return go


@pytest.mark.slow
def test_a_place_that_is_taken_is_tried_again_until_the_deadline(join):
    """The server notices a silent loss only after a while."""
    assert join(Server(TAKEN, TAKEN, None), first=Server(None)) == 3
    with pytest.raises(Refused, match=ALREADY_JOINED):
        join(never := Server(TAKEN), first=Server(None))
    assert never.tries > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "again"), [(TAKEN, False), ("other", False), ("other", True)]
)
def test_any_other_refusal_ends_the_client(join, answer, again):
    """Whoever joins for the first time under a number that is taken is another one."""
    server = Server(answer, None)
    with pytest.raises(Refused):
        join(server, first=Server(None) if again else None)
    assert server.tries == 1


@pytest.mark.slow
@pytest.mark.parametrize("alive", [True, False])
def test_a_silent_server_is_given_up_and_one_with_nothing_to_say_is_not(alive):
    class Link:
        """Hears that the server is there, or does not, and in the end a message."""

        silence, waits = 0.0, 0

        def receive(self, seconds):
            self.waits += 1
            self.silence = 0.0 if alive else self.silence + seconds
            return Envelope("nothing_of_ours") if self.waits == 5 else None

    one = link.SiteLink("127.0.0.1:1", TransportSettings(2**20), 2.0)
    one.link = stream = Link()
    if alive:
        assert one.receive().kind == "nothing_of_ours"
        return
    said = r"127\.0\.0\.1:1 .* for 2 s .*deadline\.silence"
    with pytest.raises(GGEURError, match=said):
        one.receive()
    assert stream.waits == 1


@pytest.mark.slow
def test_signs_of_life_of_a_real_server_end_the_silence():
    settings = TransportSettings(2**20, keepalive=0.1)
    with closing(Hub("127.0.0.1", 0, 1, settings)) as hub:
        one = open_link(f"127.0.0.1:{hub.port}", 1, Envelope("join_in"), settings)
        ended, before, until = 0, 0.0, time.monotonic() + 300
        while ended < 3 and time.monotonic() < until:
            assert one.receive(0.02) is None
            ended, before = ended + (one.silence < before), one.silence
        assert ended == 3
        one.close()
