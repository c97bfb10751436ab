"""What a client's side of the conversation takes."""

import pytest
from carrier import carrier

from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    GeometryCache,
)
from federatedscope_ggeur.federation.messages import Broadcast


class TestARespondent:
    def test_refuses_requests_that_it_does_not_know(self):
        handler = carrier().handlers[1]
        with pytest.raises(MessageError, match="'kind': unknown request 'open'"):
            handler.answer("open", ())

    @pytest.mark.parametrize(
        ("kind", "parts"),
        [("statistics", 1), ("prepare", 1), ("share", 0), ("train", 2), ("score", 0)],
    )
    def test_refuses_another_number_of_parts(self, kind, parts):
        handler = carrier().handlers[1]
        with pytest.raises(MessageError, match=f"'parts': {kind} with {parts} parts"):
            handler.answer(kind, (b"x",) * parts)

    @pytest.mark.parametrize("kind", ["share", "train", "score"])
    def test_refuses_parts_that_are_no_message(self, kind):
        with pytest.raises(MessageError, match="the server refused"):
            carrier().handlers[1].answer(kind, (b"x",))

    def test_answers_only_what_its_own_settings_ask_for(self, config):
        def answers(*settings):
            return run_settings(config(*settings), 3, 16, 3).answers

        always = {"prepare", "share", "train", "score"}
        assert answers("ggeur.steps", []) == always
        assert answers() == always | {"statistics"}
        closed = ["ggeur.closed_form", "lda", "ggeur.steps", []]
        assert answers(*closed) == always | {"statistics"}
        calibrated = ["ggeur.steps", [], "ggeur.calibrate", "ccvr"]
        assert answers(*calibrated) == always | {"calibrate"}

    @pytest.mark.parametrize("kind", ["statistics", "calibrate"])
    def test_refuses_what_they_do_not(self, kind):
        client, cache = carrier().handlers[1].client, GeometryCache()
        none = Embeddings(client.features[:0], client.labels[:0], client.domain)
        handler = ClientHandler(client, none, cache, answers=("train",))
        parts = (b"x",) if kind == "calibrate" else ()
        with pytest.raises(MessageError, match=f"'{kind}' is nothing that this client"):
            handler.answer(kind, parts)

    def test_calibrates_at_one_set_of_weights(self):
        carried = carrier()
        handler, server = carried.handlers[1], carried.server
        asked = Broadcast(4, server.params).to_bytes()
        assert handler.answer("calibrate", (asked,)) == handler.answer(
            "calibrate", (asked,)
        )
        other = Broadcast(4, server.params + 1).to_bytes()
        with pytest.raises(MessageError, match="second calibration, at other weights"):
            handler.answer("calibrate", (other,))
