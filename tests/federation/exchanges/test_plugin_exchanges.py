"""An exchange of a plugin: asked, answered, recorded, kept, and told of."""

import pytest
from carrier import carrier, late, lost
from exchange_plugin import MODULE, NAME, NAMED, write_plugin
from outcomes import finished

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError, MessageError, PluginError
from federatedscope_ggeur.federation.exchanges import (
    EXCHANGES,
    Exchange,
    RequestKind,
    register_exchange,
)
from federatedscope_ggeur.reporting import Results
from federatedscope_ggeur.settings import Section

pytestmark = pytest.mark.usefixtures("forget_exchange")


@pytest.fixture
def config(config, quickstart, tmp_path, monkeypatch):
    """The checked config of a short run of four clients, with the plugin at hand."""
    monkeypatch.syspath_prepend(tmp_path)

    def checked(*settings, module=MODULE):
        write_plugin(tmp_path, quickstart, module=module)
        few = ["federate.client_num", 4, "ggeur.privacy.min_samples", 2]
        return config(*few, *settings)

    return checked


def held_by(going: Run) -> dict[str, int]:
    clients = going.data.clients
    return {str(c.number): len(c.train.labels.unique()) for c in clients}


def test_it_asks_counts_its_bytes_and_is_recorded(config):
    (going, results), plain = finished(config(*NAMED)), run(config())
    found = {"classes_held": {"classes": held_by(going)}}
    assert results.round0.exchanges == found
    assert [record.exchanges for record in results.rounds] == [found] * 3
    assert results.round0.exchanges_bytes_up > 0
    assert results.final.bytes_up > plain.final.bytes_up
    assert results.rounds[-1].accuracy == plain.rounds[-1].accuracy
    assert Results.from_json(results.to_json()).round0 == results.round0


def test_what_results_cannot_hold_is_told_with_the_exchange(config):
    module = MODULE.replace("{str(k): ", "{k: ")
    said = (
        r"exchange 'classes_held' \(.*, line \d+\) must record .*a key is 1, not text"
    )
    with pytest.raises(PluginError, match=said):
        run(config(*NAMED, module=module))


def test_it_is_neither_asked_nor_answered_where_it_is_not_named(config):
    asking = Run(config(*NAMED))  # registered from now on
    kind = asking.engine.coordinator.exchanges[-1].KINDS[0]
    plain = Run(config())
    with pytest.raises(MessageError, match=r"to answer 'classes_held'.*ggeur\.plugins"):
        plain.engine._handlers[1].answer(kind, ())
    results = plain.follow(lambda record: None)
    assert results.round0.exchanges == results.rounds[-1].exchanges == {}


def finish_half(config, tmp_path):
    place = ["federate.save_to", str(tmp_path / "checkpoint")]
    run(config(*NAMED, *place, "federate.total_round_num", "1"))


def test_a_run_that_goes_on_has_what_was_answered(config, tmp_path):
    whole = run(config(*NAMED))
    finish_half(config, tmp_path)
    again = config(*NAMED, "federate.restore_from", str(tmp_path / "checkpoint"))
    going = Run(again)
    asked = []
    going.engine.listen = lambda request, replies: asked.append(request.kind.name)
    results = going.follow(lambda record: None)
    assert "classes_held" not in asked
    assert [r.exchanges for r in results.rounds] == [r.exchanges for r in whole.rounds]
    assert results.rounds[-1].accuracy == whole.rounds[-1].accuracy


def test_one_cannot_go_on_without_it(config, tmp_path):
    finish_half(config, tmp_path)
    with pytest.raises(ConfigError, match="classes_held"):
        Run(config("federate.restore_from", str(tmp_path / "checkpoint")))


def test_the_privacy_line_names_it(config):
    told = "how many classes each client holds"
    privacy = Run(config(*NAMED)).history.results().privacy
    assert f"of the exchange classes_held: {told}" in privacy.server_sees
    assert privacy.warnings == []  # there are no masks to escape


@pytest.mark.parametrize("fault", [lost, late])
def test_one_that_missed_the_question_is_asked_when_it_is_back(config, fault):
    config(*NAMED)  # registers it
    carried = carrier(quorum=2, plugins=(NAME,))
    carried.faults["classes_held", 0, 2] = fault
    carried.round0()
    own = carried.coordinator.exchanges[-1]
    assert sorted(own.found) == [1, 3, 4]
    del carried.faults["classes_held", 0, 2]
    carried.membership.come_back(2)
    carried.rounds(1, 2)
    assert sorted(own.found) == [1, 2, 3, 4]


KIND = RequestKind("mine", "mine_request", "round0", (), lambda side: None)


def test_what_cannot_be_registered():
    class Mine(Exchange):
        KINDS = (KIND,)

    with pytest.raises(TypeError, match="must be a subclass of Exchange"):
        register_exchange("mine")(object)
    Mine.KINDS = (RequestKind("mine", "m", "soon", (), lambda side: None),)
    with pytest.raises(TypeError, match="'soon'; use one of round0, train, evaluate"):
        register_exchange("mine")(Mine)
    Mine.KINDS = (RequestKind("train", "m", "round0", (), lambda side: None),)
    with pytest.raises(ValueError, match="'train', but another exchange has"):
        register_exchange("mine")(Mine)
    Mine.KINDS, Mine.SETTINGS = (KIND,), type("Own", (Section,), {})
    with pytest.raises(TypeError, match=r"'mine' must have PREFIX = 'mine\.'"):
        register_exchange("mine")(Mine)
    Mine.SETTINGS = Section
    with pytest.raises(ValueError, match="'training' is already registered"):
        register_exchange("training")(Mine)


WITH_A_SETTING = MODULE.replace(
    "    CLIENT = Counter\n",
    """\
    CLIENT = Counter
    SETTINGS = Times

    @staticmethod
    def objections(run):
        yield Objection("classes_held.times", {"calibrate": ["none"]}, "which counts")
""",
).replace(
    "\n\n\nclass An",
    "\nfrom federatedscope_ggeur.settings import Objection, Section, key, whole\n\n\n"
    "class Times(Section):\n    PREFIX = 'classes_held.'\n"
    "    times: int = key(1, 'How often.', whole(1))\n\n\n"
    "class An",
)


def test_it_changes_no_run_that_does_not_name_it(config):
    @register_exchange("bringer")
    class Bringer(Exchange):
        @classmethod
        def states(cls, chosen):
            return {"brings_totals": True}

    assert demands_of(config()).own_statistics
    assert not demands_of(config("ggeur.plugins", [Bringer.__module__])).own_statistics


def test_it_brings_settings_that_all_sides_have_alike(config):
    cfg = config(*NAMED, "ggeur.classes_held.times", 3, module=WITH_A_SETTING)
    settings = Run(cfg).settings
    section = EXCHANGES["classes_held"].SETTINGS
    assert settings.demands.of(section).times == 3
    assert settings.agreed["ggeur.classes_held.times"] == "3"


def test_it_says_what_it_objects_to(config):
    problem = (
        r"ggeur\.calibrate: must be none with ggeur\.classes_held\.times: 1, which"
    )
    with pytest.raises(ConfigError, match=problem):
        config(*NAMED, "ggeur.calibrate", "ccvr", module=WITH_A_SETTING)
    message = r"ggeur\.classes_held\.times: must be a whole"
    with pytest.raises(ConfigError, match=message):
        config(*NAMED, "ggeur.classes_held.times", 0, module=WITH_A_SETTING)
