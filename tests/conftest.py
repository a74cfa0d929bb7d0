"""Fixtures for all tests: a real broker, topics of one's own, application ids nobody else has."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.cluster.fixtures import api, api_server, background, crds, namespace  # noqa: F401  (fixtures)
from tests.support import broker as support
from tests.support import choices, evidence, generated, kafka, preparing, seeds, set_up
from tests.support.fixtures import (  # noqa: F401  (fixtures)
    actionlint,
    helm,
    own_broker,
    own_brokers,
    processes,
    prometheus,
    standstills,
    versitygw,
)
from tests.support.measuring import figures as reported
from tests.support.measuring.figures import figures  # noqa: F401  (fixture)
from tests.support.needs import MARKERS, needs
from tests.support.patience import PATIENCE
from tests.support.scheduling import GroupScheduling, group_of, telling, write_plan

# Threads that outlive a test, such as simulated workers, may log to what pytest captured for it and has closed since.
logging.raiseExceptions = False

# A shell starts programs in the background with SIGINT ignored; programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Until all tests are collected: the imports of conftest files begin here.
gc.disable()

#: Most brokers live for seconds: what the JVM's second compiler and its parallel collector win comes too late for them.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OTHER_BROKER = "MILLPOND_TEST_BOOTSTRAP_SERVERS"
#: Of tests that need something. Spark's are one long group, which is not to be the last one.
_ORDER = ("spark", "java", "process", "broker", "apiserver")
_LATE = "set-up was late"
_SESSION = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run of tests."""
    group = parser.getgroup("millpond")
    group.addoption(
        "--seed", type=int, default=None, help="repeat the random choices of a run; its header tells its seed"
    )
    group.addoption("--quick", action="store_true", help="generate fewer cases: for an answer in a minute")
    group.addoption("--cases", type=int, help="run so many cases of each test at most, chosen by the seed")
    group.addoption("--soak", action="store_true", help="run the long tests in full length instead of a share of them")


@pytest.hookimpl(tryfirst=True)  # Hypothesis reads its seed when it is configured
def pytest_configure(config: pytest.Config) -> None:
    """Let pytest's main process own what its workers share."""
    generated.choose(quick=config.option.quick, soak=config.option.soak)
    reported.register(config)
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    if hasattr(config, "workerinput"):
        config.stash[_SESSION] = config.workerinput["millpond"]
        config.option.seed = int(config.stash[_SESSION]["seed"])
    else:
        if config.option.seed is None:
            config.option.seed = seeds.fresh()
        os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED)
        directory = Path(tempfile.mkdtemp(prefix="millpond-tests-"))
        support.open_session(directory)
        # Taken out of the environment: millpond itself refuses variables of its own that are no settings.
        bootstrap = os.environ.pop(_OTHER_BROKER, "")
        config.stash[_SESSION] = {
            "directory": str(directory), "bootstrap": bootstrap, "seed": str(config.option.seed)
        }  # fmt: skip
    # Sessions of `millpond dev` that others run, as other tests or a person, are not those of a test.
    process = os.environ.get("PYTEST_XDIST_WORKER", "main")
    runtime = Path(config.stash[_SESSION]["directory"]) / f"runtime-{process}"
    runtime.mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    seeds.RUN = config.option.seed
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)


def pytest_report_header(config: pytest.Config) -> str:
    """Tell how to repeat this run."""
    return f"seed {config.option.seed}: pytest --seed {config.option.seed} makes the same random choices"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Keep groups of tests together."""
    return GroupScheduling(config, log, Path(config.stash[_SESSION]["directory"]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each pytest-xdist worker what its main process knows."""
    node.workerinput["millpond"] = node.config.stash[_SESSION]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the run. Its broker ends with the process."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_SESSION]["directory"], ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with what it needs.

    One process runs all tests that wait for a real API server, beside others that compute; one runs all of Spark.
    """
    for marker in needs(getattr(item, "fixturenames", ())):
        item.add_marker(marker)
    if item.get_closest_marker("apiserver") and group_of(item) is None:
        item.add_marker(pytest.mark.xdist_group("apiserver"))
    elif item.get_closest_marker("spark") and group_of(item) is None:
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make nightly` runs, choose the shares of long tests, and put the others in order.

    Tests that need nothing come first, while what the others need is fetched and built. Long tests come before short:
    those with a higher limit of time, and those that are marked. Of several processes one has the real API server's
    tests to itself, and begins with them; short tests that need nothing come last, where the scheduler has a process
    begin too, so that some tests compute while others wait, and all processes end together.
    """
    if not config.option.soak:
        soaks = [each for each in items if each.get_closest_marker("soak")]
        apart = set(soaks)
        long = soaks + seeds.left_out(
            (each for each in items if each not in apart), config.option.seed, most=config.option.cases
        )
        apart.update(long)
        items[:] = [each for each in items if each not in apart]
        config.hook.pytest_deselected(items=long)
    several = hasattr(config, "workerinput")

    def place(item: pytest.Item) -> tuple[int, float, bool]:
        needed = {each.name for each in item.iter_markers()} & MARKERS.keys() - {"long", "share", "soak"}
        if several and group_of(item) == "apiserver":
            rank = 0
        elif needed <= {"slow"}:
            rank = 1 if needed or not several else len(_ORDER) + 3
        else:
            rank = 2 + next((at for at, marker in enumerate(_ORDER) if marker in needed), len(_ORDER))
        limit = item.get_closest_marker("timeout")
        return rank, -float(limit.args[0]) if limit and limit.args else 0.0, "slow" not in needed

    items.sort(key=place)
    for item in items:
        choices.record(f"test {seeds.plain(item.nodeid)}")
        limit = item.get_closest_marker("timeout")
        seconds = float(limit.args[0]) if limit and limit.args else float(config.getini("timeout"))
        # The end of a limit ends a process, and with it the run.
        item.add_marker(pytest.mark.timeout(PATIENCE * seconds), append=False)
    write_plan(Path(config.stash[_SESSION]["directory"]), items)
    needed = [each for each in preparing.PREPARED if any(item.get_closest_marker(each) for item in items)]
    if needed and not config.option.collectonly:
        preparing.start(Path(config.stash[_SESSION]["directory"]), needed)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the tests themselves: simulations call it often, and collection only adds objects.

    What is garbage by then is kept, too: to find it takes a tenth of the time of collecting all tests.
    """
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the test's time limit begins
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait until what the test needs is fetched and built."""
    run = Path(item.config.stash[_SESSION]["directory"])
    preparing.await_end(run, [each for each in preparing.PREPARED if item.get_closest_marker(each)])
    set_up.begin(run, item.nodeid)
    evidence.begin(run)
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note a test's time limit, which does not run during steps of its set-up."""
    set_up.limited(item, settings)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what one needs to understand a test that failed, and tell an error of its set-up from a failure."""
    report = yield
    if report.failed:
        if call.excinfo is not None and call.excinfo.errisinstance(set_up.SetUpError):
            report.user_properties.append((_LATE, True))
        used = {*getattr(item, "fixturenames", ()), *getattr(item, "funcargs", ())}
        used.update(mark.name for mark in item.iter_markers())
        own = vars(item.config)["_tmp_path_factory"].getbasetemp()
        run = Path(item.config.stash[_SESSION]["directory"])
        try:
            told = f"logs and seed are in {evidence.collect(item.nodeid, item.config.option.seed, used, own, run)}"
        except OSError as error:  # the failure itself is what matters
            told = f"logs and seed could not be kept: {error}"
        report.sections.append(("evidence", told))
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count a set-up that was late twice among the errors, not among the failures."""
    late = any(name == _LATE for name, _ in getattr(report, "user_properties", ()))
    return ("error", "E", "SET-UP") if late else None


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after all others
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Tell which steps of set-ups were repeated, and what was left out, why, and what helps."""
    yield
    if again := set_up.repeated(Path(config.stash[_SESSION]["directory"])):
        terminalreporter.section(f"set-up was repeated {len(again)} {'time' if len(again) == 1 else 'times'}")
        for each in again:
            terminalreporter.line(each)
    reasons = Counter(
        str(each.longrepr[2]).removeprefix("Skipped: ")
        for each in terminalreporter.stats.get("skipped", ())
        if isinstance(each.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("left out")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:6} {'test' if count == 1 else 'tests'}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Tell now and then what the first run on a machine takes its time for."""
    if hasattr(session.config, "workerinput"):
        return (yield)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    with telling(Path(session.config.stash[_SESSION]["directory"]), reporter):
        return (yield)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's own seed, told on its output."""
    own = seeds.derived(request.config.option.seed, request.node.nodeid)
    print(f"seed {own}, of the run's {request.config.option.seed}")
    return own


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether long tests run in full length."""
    return bool(pytestconfig.option.soak)


@pytest.fixture(scope="session")
def run_directory(pytestconfig: pytest.Config) -> Path:
    """A directory that all processes of this run of tests share."""
    return Path(pytestconfig.stash[_SESSION]["directory"])


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> support.Broker:
    """A Kafka broker shared by all tests: the embedded one, or `$MILLPOND_TEST_BOOTSTRAP_SERVERS`.

    Tests that stop or kill a broker start an `EmbeddedBroker` of their own.
    """
    session = pytestconfig.stash[_SESSION]
    if session["bootstrap"]:
        return support.Broker(session["bootstrap"])
    return support.shared_broker(Path(session["directory"]))


class CreateTopic(Protocol):
    """What the `create_topic` fixture gives."""

    def __call__(self, name: str = "topic", partitions: int = 1, **config: str) -> str:
        """Create a topic whose name starts with `name` and return its full, unique name."""


@pytest.fixture
def create_topic(broker: support.Broker) -> Iterator[CreateTopic]:
    """Create topics that no other test sees; config keys have `_` for `.`. They are deleted after the test."""
    created: list[str] = []

    def create(name: str = "topic", partitions: int = 1, **config: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        settings_of_topic = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(broker.bootstrap_servers, topic, partitions, settings_of_topic)
        created.append(topic)
        return topic

    yield create
    kafka.delete_topics(broker.bootstrap_servers, created)


@pytest.fixture
def app_id(request: pytest.FixtureRequest) -> Iterator[str]:
    """An `application.id` no other test has. If the test used the broker, the application's topics go with it."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    yield name
    if "broker" in request.fixturenames:
        address = request.getfixturevalue("broker").bootstrap_servers
        kafka.delete_topics(address, kafka.topic_names(address, prefix=f"{name}-"))
