"""The console's page in headless Chromium: what a person sees and reaches by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from millpond.protocol.overview import ApplicationSummary
from tests.console.pond import GRAPH, Server, Source, overview
from tests.support.chromium import Page

Open = Callable[..., Page]

#: Makes the page ask at once, as when a person comes back to its tab.
POLL = "void document.dispatchEvent(new Event('visibilitychange'))"
HOSTILE = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"


def test_list_shows_applications_and_leads_to_one(page: Page, server: Server, source: Source) -> None:
    """A person sees the state of each application, and opens one by its name."""
    ill = ApplicationSummary(
        name="leaky", namespace="flights", degraded="NoBrokers", message="No broker answers.", workers_wanted=2
    )
    source.overviews["flights", "leaky"] = msgspec.structs.replace(overview(), summary=ill)
    page.open(server.url)
    page.wait_text("flights/pond", "Ready, Scaling", "4,958/s", "Degraded: NoBrokers", "No broker answers.")
    assert "2 in all, 1 not ready" in page.text
    page.run("document.querySelector('a[href=\"#/flights/pond\"]').click()")
    page.wait_text("Moves in progress")


def test_filter_leaves_the_applications_that_match(page: Page, server: Server, source: Source) -> None:
    """The list of many applications can be narrowed by name and by state."""
    source.overviews["flights", "lake"] = overview(name="lake")
    page.open(server.url)
    page.wait_text("flights/pond", "flights/lake")
    page.run("document.querySelector('#filter').focus()")
    page.send("Input.insertText", text="LAKE")
    page.wait("!document.body.innerText.includes('flights/pond')")
    assert "flights/lake" in page.text
    page.run("document.querySelector('#troubled').click()")
    page.wait_text("No application matches these filters.")


def test_application_shows_figures_moves_reasons_and_story(application: Open) -> None:
    """One screen says what runs, what moves and why, and what happened."""
    page = application()
    page.wait_text(
        "4,958/s",
        "6 of 6",
        "1_2 pond-2 → pond-1",
        "1_2 stays on pond-2 until pond-1's copy is within 10,000 records (lag 48,211)",
        "0_2 moves to pond-0 when pond-2 has handed it over",
        "Recommends only: 3 → 2 workers.",
        "pond-2 is drained: 2 tasks are still to be handed over.",
        "Worker pond-1 ended; pond-0 took over its 2 tasks. (2 times)",
        "node-1",
    )
    titles = page.run("[...document.querySelectorAll('#conditions .title')].map((each) => each.firstChild.data)")
    assert titles == ["In progress (ScalingIn)", "Standbys behind (Restoring)", "Ready (AllTasksRun)",
                      "Not degraded (Healthy)"]  # fmt: skip


def test_figures_are_live(application: Open, source: Source) -> None:
    """Two seconds later the page shows what the server knows then, on the edges of the picture, too."""
    page = application()
    edge = "[...document.querySelectorAll('#topology text[data-topic=flights] tspan')].map((each) => each.textContent)"
    assert page.run(edge) == ["1,238/s", "lag 15"]
    assert page.run("document.querySelector('#topology text[data-part=\"1\"]').textContent") == "3 of 3 running"
    before = overview()
    assert before.topology is not None
    edges = tuple(
        msgspec.structs.replace(each, lag=70_500) if each.lag is not None else each for each in before.topology.edges
    )
    source.overviews["flights", "pond"] = msgspec.structs.replace(
        before, topology=msgspec.structs.replace(before.topology, edges=edges), moves=(), at_ms=before.at_ms + 2_000
    )
    page.wait_text("No task moves.")
    page.wait(f"({edge})[1] === 'lag 70,500'")


def test_picture_changes_with_the_topology(application: Open, source: Source) -> None:
    """A rollout with another topology is drawn without a reload."""
    page = application()
    before = overview()
    nodes = tuple(
        msgspec.structs.replace(each, name="late", label="late") if each.name == "delayed" else each
        for each in GRAPH.nodes
    )
    changed = msgspec.structs.replace(GRAPH, nodes=nodes)
    source.overviews["flights", "pond"] = msgspec.structs.replace(before, topology=changed, drawing="another")
    page.run(POLL)
    page.wait("[...document.querySelectorAll('#topology .name')].some((each) => each.textContent === 'late')")


def test_tasks_are_told_apart_without_colour(application: Open) -> None:
    """Active tasks, standbys and warm-ups have different signs, and their names say what they do."""
    page = application()
    cells = page.run("[...document.querySelectorAll('#tasks [role=gridcell]')].map((each) => each.innerText)")
    assert ["".join(each.split()) for each in cells] == [
        "●0_0", "●1_0", "S1_1", "●0_1", "●1_1", "W1_2", "●0_2", "●1_2", "S1_0",
    ]  # fmt: skip
    labels = page.run("[...document.querySelectorAll('#tasks [role=gridcell]')].map((each) => each.ariaLabel)")
    assert labels[0] == "Task 0_0, active, running, 413/s, lag 0"
    assert labels[5] == "Task 1_2, warm-up, restoring, lag 48,211"


def test_keyboard_reaches_everything(application: Open, source: Source) -> None:
    """Tab goes through links and regions, arrow keys through tasks; the focus stays visible while figures change."""
    page = application()
    page.press("Tab")
    assert page.run("document.activeElement.innerText") == "Skip to the content"
    page.wait("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
    page.wait("document.activeElement.getBoundingClientRect().top >= 0")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "main"
    for _ in range(10):
        page.press("Tab")
        if page.run("document.activeElement.getAttribute('role')") == "gridcell":
            break
    focused = "document.activeElement.dataset.key"
    assert page.run(focused) == "0_0 active"
    for key, expected in (
        ("ArrowRight", "1_0 active"), ("ArrowDown", "1_1 active"), ("End", "1_2 warm-up pond-1"),
        ("ArrowRight", "1_2 warm-up pond-1"), ("ArrowUp", "1_1 standby pond-0"), ("Home", "0_0 active"),
    ):  # fmt: skip
        page.press(key)
        assert page.run(focused) == expected
    page.press("ArrowRight")
    page.wait_text("Task 1_0, active, running, 1,240/s, lag 0. Owner in Kafka: pond-0.")
    polls = source.polls
    page.run(POLL)
    page.wait_until(lambda: source.polls > polls)
    page.wait_text("Live")
    assert page.run(focused) == "1_0 active"


def test_page_says_that_its_figures_are_old(application: Open, server: Server, page: Page) -> None:
    """When the server is gone, the last figures stay, marked as old; when it is back, they are live again."""
    application()
    assert page.run("document.querySelector('#status').innerText") == "Live"
    # A request that is under way as the server ends may be cut off.
    page.expected += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
    server.pause()
    page.run(POLL)
    page.wait_text("No answer. What you see is out of date.", "Not live", "4,958/s")
    server.start()
    page.run(POLL)
    page.wait("document.querySelector('#status').innerText === 'Live'")
    assert page.run("document.querySelector('#banner').hidden")


def test_page_repeats_the_sentence_of_a_server_without_data(application: Open, source: Source, page: Page) -> None:
    """A replica that stands by says so."""
    application()
    page.expected.append("503")
    source.unavailable = "This replica of the operator stands by."
    page.run(POLL)
    page.wait_text("This replica of the operator stands by. What you see is out of date.")


def test_nothing_that_a_tenant_writes_becomes_markup(page: Page, server: Server, source: Source) -> None:
    """Names and messages of a hostile tenant are text, on the page and in the picture."""
    evil = overview(message=HOSTILE)
    assert evil.topology is not None
    nodes = tuple(
        msgspec.structs.replace(each, name=HOSTILE, label=HOSTILE) if each.name == "topic flights" else each
        for each in evil.topology.nodes
    )
    edges = tuple(
        msgspec.structs.replace(each, source=HOSTILE, topic=HOSTILE) if each.topic == "flights" else each
        for each in evil.topology.edges
    )
    evil = msgspec.structs.replace(
        evil,
        topology=msgspec.structs.replace(evil.topology, nodes=nodes, edges=edges),
        image=HOSTILE,
        events=tuple(msgspec.structs.replace(each, text=HOSTILE, reason=HOSTILE) for each in evil.events),
        moves=tuple(msgspec.structs.replace(each, reason=HOSTILE, target=HOSTILE) for each in evil.moves),
        workers=tuple(msgspec.structs.replace(each, trouble=HOSTILE, node=HOSTILE) for each in evil.workers),
        tasks=tuple(msgspec.structs.replace(each, note=HOSTILE, owner=HOSTILE) for each in evil.tasks),
    )
    source.overviews["flights", "pond"] = evil
    page.open(f"{server.url}#/flights/pond")
    page.wait("document.querySelector('#topology text.live .rate')?.textContent")
    page.wait("document.querySelector('#tasks [role=gridcell]').focus() || true")
    assert page.run("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
    assert page.text.count("onerror=") > 10
    page.run("location.hash = '#/'")
    page.wait_text("flights/pond")
    page.expected.append("404")
    page.run(f"location.hash = '#/flights/' + encodeURIComponent({HOSTILE!r})")
    page.wait_text("There is no application flights/<img")
    assert "stolen" not in page.run("document.title.replaceAll(/<.*>/gs, '')")
    assert page.run("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("stopped", [False, True], ids=["well", "ill"])
def test_contrast_is_enough(application: Open, source: Source, scheme: str, stopped: bool) -> None:
    """All text has the contrast of WCAG AA, 4.5, with its background, in both colour schemes."""
    if stopped:
        source.overviews["flights", "pond"] = ill_overview()
    page = application(scheme=scheme)
    page.run("document.querySelector('#tasks [role=gridcell]').focus()")
    poor = page.run(CONTRAST)
    assert poor == []
    backgrounds = {"light": "rgb(243, 245, 247)", "dark": "rgb(14, 18, 22)"}
    assert page.run("getComputedStyle(document.documentElement).backgroundColor") == backgrounds[scheme]


@pytest.mark.parametrize("width", [700, 1300])
def test_nothing_overflows(application: Open, page: Page, source: Source, width: int) -> None:
    """At both widths the page needs no horizontal scrolling, whatever the length of names."""
    long = "x" * 180
    seen = overview(message=long)
    source.overviews["flights", "pond"] = msgspec.structs.replace(
        seen,
        workers=tuple(msgspec.structs.replace(each, trouble=long) for each in seen.workers),
        events=tuple(msgspec.structs.replace(each, text=long) for each in seen.events),
        image=long,
    )
    application(width=width)
    wide = """[...document.querySelectorAll('body *')].filter((each) => !each.closest('.scroll > *, .skip')
      && each.getBoundingClientRect().right > innerWidth + 0.5).map((each) => each.outerHTML.slice(0, 200))"""
    assert page.run(wide) == []
    assert page.run("document.documentElement.scrollWidth") <= width
    page.run("location.hash = '#/'")
    page.wait_text("flights/pond")
    assert page.run(wide) == []


def test_page_works_below_another_path(page: Page, server: Server) -> None:
    """Behind the API server's proxy all its URLs have a path before them."""
    from tests.console.prefixed import below

    with below("/api/v1/namespaces/ns/services/http:millpond-console:8081/proxy", server.port) as url:
        page.open(f"{url}/console")
        page.wait_text("flights/pond", "Ready, Scaling")
        page.run("document.querySelector('a[href=\"#/flights/pond\"]').click()")
        page.wait("document.querySelector('#topology text.live .rate')?.textContent")


def ill_overview():
    """An application with every state that a task, a worker and a condition can have."""
    seen = overview()
    states = ("running", "restoring", "acquiring", "releasing", "", "running")
    kinds = ("alive", "gone", "starting")
    return msgspec.structs.replace(
        seen,
        summary=msgspec.structs.replace(
            seen.summary, ready=False, degraded="NoBrokers", tasks_running=2, workers_ready=0
        ),
        tasks=tuple(msgspec.structs.replace(each, state=state) for each, state in zip(seen.tasks, states, strict=True)),
        workers=tuple(
            msgspec.structs.replace(each, state=state, trouble="No broker answers.", volume_used=0.99)
            for each, state in zip(seen.workers, kinds, strict=True)
        ),
        conditions=tuple(msgspec.structs.replace(each, status="True") for each in seen.conditions),
    )


#: The texts whose contrast with the colour behind them is below 4.5, or 3 for large ones.
CONTRAST = """(() => {
  const numbers = (color) => (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = numbers(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return numbers(getComputedStyle(document.documentElement).backgroundColor);
  };
  const filled = (text) => {
    const shape = text.closest('g')?.querySelector('rect, path.store');
    const inBox = text.closest('.live[data-part]') || text.classList.contains('head');
    const box = inBox ? document.querySelector('.box') : null;
    return box || shape ? numbers(getComputedStyle(box ?? shape).fill) : behind(text.closest('div'));
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ['STYLE', 'SCRIPT', 'TITLE', 'title'].includes(element.nodeName)) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const drawn = element.closest('svg text');
    const found = contrast(numbers(drawn ? style.fill : style.color), drawn ? filled(drawn) : behind(element));
    if (found < 4.5) poor.push(`${walker.currentNode.data.trim().slice(0, 40)}: ${found.toFixed(2)}`);
  }
  return poor;
})()"""
