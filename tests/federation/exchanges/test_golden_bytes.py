"""The bytes of messages stay what they were: digests of valid ones of every kind.

They were made by this file on the commit before secure sums were added (that of
totals when they got squares by dimension)::

    python tests/federation/exchanges/test_golden_bytes.py
"""

import hashlib

import pytest
from spoilt_messages import CLASSES, DIM, PAYLOADS, SCHEMA, pack

from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join

GOLDEN = {
    "StatisticsUpload": "51b0e933caa62b17",
    "TotalsUpload": "2d79bcb495c72913",
    "SpaceBroadcast": "9ac2b9a3732211af",
    "Geometry": "ffd9b12ec92e1c1d",
    "Prototypes": "b073f3a5046d7725",
    "PrepareReply": "4bec059e3b4f3ab2",
    "InitBroadcast": "20b23fc0c0bc36c8",
    "Broadcast": "01f2fadfb2ee4fb3",
    "ClientUpdate": "244ad048f1ace534",
    "ScoreReport": "40088628ca78743e",
    "LeaveOneOut": "42c0787bb93f213b",
    "HitCounts": "0b8bedd856e5c506",
    "LossQuery": "65bc07a3de430d0f",
    "LogLosses": "4c760a09518a774f",
    "ConfidenceQuery": "f04c34aa6b2494ef",
    "Confidences": "7914172e28aaf712",
    "PersonalQuery": "d39ce51645fdf82d",
    "PersonalLosses": "557dc06a08b699b5",
    "PersonalScore": "2eac35fcdd9b5f5a",
    "ReleaseRequest": "2342495ac9a5e367",
    "ReleaseVector": "c486554b43598a38",
}
JOIN = "8194f1e3bdf34c47"
#: Of the names of the settings that all sides have alike where no key is set.
SETTINGS = "06e2c828577ec281"


def digest_of(payload):
    held = payload.from_bytes(pack(payload), SCHEMA, "client 3")
    return hashlib.sha256(held.to_bytes()).hexdigest()[:16]


def join():
    handshake = Handshake(("a",) * CLASSES, DIM, "none", {"seed": "0"})
    one = Join(3, "art", handshake, Declared(5, 0, 2, 4.0))
    return hashlib.sha256(one.to_bytes()).hexdigest()[:16]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_messages_are_the_same_to_the_byte(payload):
    assert digest_of(payload) == GOLDEN[payload.__name__]


def test_so_is_the_first_one_of_a_client():
    assert join() == JOIN


def test_the_settings_that_all_sides_have_alike_are_the_same(config):
    from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings

    names = sorted(agreed_settings(config()))
    assert hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] == SETTINGS


if __name__ == "__main__":
    for each in PAYLOADS:
        print(each.__name__, digest_of(each))
    print(join())
