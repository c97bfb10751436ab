"""Messages survive being cut into frames; other frames are refused by field."""

import json
import pickle
import tracemalloc
import zlib
from itertools import chain, repeat

import pytest
from own_process import python

from federatedscope_ggeur.engines.sites.transport.frames import (
    Envelope,
    Introduction,
    read_envelope,
    read_join,
    to_frames,
)
from federatedscope_ggeur.engines.sites.transport.settings import (
    TransportSettings,
    server_options,
)
from federatedscope_ggeur.errors import ConfigError, MessageError

SETTINGS = TransportSettings(max_message=1000, max_frame=64)
ROOMY = TransportSettings(max_message=2**24)
MESSAGE = Envelope("statistics", 7, (b"", b"a", b"b" * 64, bytes(range(256))))


def header(**changes) -> bytes:
    fields = {"version": 1, "kind": "k", "state": 0, "sizes": [], **changes}
    return b"H" + json.dumps(fields).encode()


def read(*frames: bytes, settings=SETTINGS):
    return read_envelope(iter(frames), settings, "client 3")


def test_the_transport_needs_neither_torch_nor_numpy():
    looks = (
        "import sys, federatedscope_ggeur.engines.sites.transport\n"
        "print({'torch', 'numpy', 'safetensors', 'federatedscope'} & {*sys.modules})"
    )
    assert python("-c", looks).stdout.strip() == "set()"


@pytest.mark.parametrize("max_frame", [1, 64, 4096])
def test_a_message_survives(max_frame):
    settings = TransportSettings(1000, max_frame)
    frames = to_frames(MESSAGE, settings)
    assert read_envelope(frames, settings, "client 3") == MESSAGE
    assert read_envelope(frames, settings, "client 3") is None


def test_no_frame_is_longer_than_its_limit():
    lengths = [len(frame) for frame in to_frames(MESSAGE, SETTINGS)][1:]
    assert lengths == [2, 65, 65, 65, 65, 65]


def test_a_join_message_names_its_sender():
    join, who = Envelope("join_in", 0, (b"hello",)), Introduction(3, "3:abc")
    frames = to_frames(join, SETTINGS, who)
    assert read_join(frames, SETTINGS, "a peer") == (join, who)


@pytest.mark.parametrize(
    ("envelope", "field"),
    [
        (Envelope("k", 0, (bytes(1001),)), "sizes"),
        (Envelope("k", 0, (b"",) * 65), "sizes"),
        (Envelope("k", -1), "state"),
        (Envelope("k", 1.0), "state"),
        (Envelope("not one word"), "kind"),
    ],
)
def test_what_no_receiver_would_take_is_an_error_of_the_sender(envelope, field):
    with pytest.raises(MessageError) as caught:
        to_frames(envelope, SETTINGS)
    assert (caught.value.field, caught.value.sender) == (field, "this process")


def test_a_message_of_exactly_the_limit_passes():
    largest = Envelope("k", 0, (bytes(400), bytes(600)))
    assert read(*to_frames(largest, SETTINGS)) == largest


def test_a_join_message_is_small_whatever_the_limit():
    who = Introduction(1, "")
    with pytest.raises(MessageError, match="limit of 57344"):
        to_frames(Envelope("join_in", 0, (bytes(57345),)), ROOMY, who)
    fits = Envelope("join_in", 0, (bytes(57344),))
    assert read_join(to_frames(fits, ROOMY, who), ROOMY, "a peer") == (fits, who)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b"", "header"),
        (b"H", "header"),
        (b"garbage \xff\xfe", "header"),
        (pickle.dumps({"kind": "k"}), "header"),
        (b"H" + pickle.dumps({"kind": "k"}), "header"),
        (b"H\xff\xfe\x00", "header"),
        (b"H[]", "header"),
        (b"Hnull", "header"),
        (b"H" + b"[" * 8000, "header"),
        (b'H{"version":' * 600, "header"),
        (header(padding="x" * 9000), "header"),
        (header(more=1), "header"),
        (b'H{"version": 1, "kind": "k", "state": 0}', "header"),
        (header(number=1, token=""), "header"),
        (b"Dstray data", "header"),
        (b"Zstray data", "header"),
        *(
            (header(**{field: value}), field)
            for field, values in {
                "version": [2, True],
                "kind": ["", "k" * 65, "ä", "k\n", ["k"]],
                "state": ["0", None, True, float("nan"), 2**31],
                "sizes": [
                    *({"0": 1}, 5, [-1], [2.0], [True], [[1]], [1] * 65),
                    *([1001], [600, 600], [10**300]),
                ],
            }.items()
            for value in values
        ),
        (b'H{"version":1,"kind":"k","state":0,"sizes":[%s]}' % (b"9" * 8000), None),
        (b'H{"version":1,"kind":"k","sizes":[],"state":%s}' % (b"9" * 8000), None),
        (b'H{"version":1,"kind":"k","sizes":[],"state":1e999}', "state"),
    ],
)
def test_a_frame_that_is_no_header_is_refused(frame, field):
    with pytest.raises(MessageError, match="client 3") as caught:
        read(frame)
    # Releases of Python differ in which of them read an integer of 8000 digits.
    assert field in (caught.value.field, None)


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([], "ended inside a message"),
        ([b"D123"], "ended inside a message"),
        ([b"D12345"], "more than the 4 bytes"),
        ([b"D123", b"D45"], "more than the 1 bytes"),
        ([b"D"], "empty frame"),
        ([b""], "expected a frame of data"),
        ([header()], "expected a frame of data"),
        ([pickle.dumps(b"1234")], "expected a frame of data"),
        ([b"Z" + zlib.compress(b"1234")], "expected a frame of data"),
    ],
)
def test_data_that_was_not_announced_is_refused(frames, problem):
    with pytest.raises(MessageError, match=problem) as caught:
        read(header(sizes=[4]), *frames)
    assert caught.value.field == "part 0"


def test_tiny_frames_take_no_more_memory_than_their_data():
    size = 100_000
    frames = chain([header(sizes=[size])], repeat(b"Dxy", size // 2))
    tracemalloc.start()
    try:
        part = read_envelope(frames, ROOMY, "client 3").parts[0]
        assert tracemalloc.get_traced_memory()[1] < 5 * size
    finally:
        tracemalloc.stop()
    assert part == b"xy" * (size // 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "model_para"),
        *(("number", wrong) for wrong in (0, -3, "3", 3.0, 2**31)),
        *(("token", wrong) for wrong in (None, "x" * 201)),
        ("sizes", [57345]),
    ],
)
def test_a_stream_begins_with_a_proper_join_message(field, value):
    frame = header(**{"kind": "join_in", "number": 3, "token": "", field: value})
    with pytest.raises(MessageError) as caught:
        read_join(iter([frame]), ROOMY, "a peer")
    assert caught.value.field == field


@pytest.mark.parametrize("frames", [[], [header(kind="join_in")]])
def test_a_stream_without_an_introduction_is_refused(frames):
    with pytest.raises(MessageError, match="a peer"):
        read_join(iter(frames), ROOMY, "a peer")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("max_message", 0), ("max_frame", -1)),
        *(("keepalive", float("nan")), ("join_deadline", float("inf"))),
    ],
)
def test_settings_are_checked(field, wrong):
    with pytest.raises(ConfigError):
        TransportSettings(**{"max_message": 1000, field: wrong})


def test_a_stop_of_half_a_minute_is_no_loss():
    """Whenever it begins: a ping may be on its way."""
    options = dict(server_options(TransportSettings(max_message=1000)))
    for name in ("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"):
        assert 30_000 < options[name] <= 60_000
