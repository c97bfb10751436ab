"""What a client's side of the conversation takes."""

import pytest
from carrier import carrier

from federatedscope_ggeur.errors import MessageError


class TestARespondent:
    def test_refuses_requests_that_it_does_not_know(self):
        respondent = carrier().respondents[1]
        with pytest.raises(MessageError, match="'kind': unknown request 'open'"):
            respondent.answer("open", ())

    @pytest.mark.parametrize(
        ("kind", "parts"),
        [("statistics", 1), ("prepare", 1), ("share", 0), ("train", 2), ("score", 0)],
    )
    def test_refuses_another_number_of_parts(self, kind, parts):
        respondent = carrier().respondents[1]
        with pytest.raises(MessageError, match=f"'parts': {kind} with {parts} parts"):
            respondent.answer(kind, (b"x",) * parts)

    @pytest.mark.parametrize("kind", ["share", "train", "score"])
    def test_refuses_parts_that_are_no_message(self, kind):
        with pytest.raises(MessageError, match="the server refused"):
            carrier().respondents[1].answer(kind, (b"x",))
