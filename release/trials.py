"""The parts of a release, tried in a clean environment as a user would."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from .commands import run
from .failures import ReleaseFailed
from .images import Image
from .sources import Sources

__all__ = ("try_chart", "try_images", "try_sdist", "try_wheel")

_APPLICATION = '''
"""An application of a user: it has only the installed wheel."""
import millpond as mp


def counts() -> mp.Topology:
    builder = mp.StreamsBuilder()
    words = builder.stream("words", key=mp.String, value=mp.String)
    words.group_by_key().count().to_stream().to("counts")
    return builder.build()


with mp.testing.TopologyTestDriver(counts()) as driver:
    words = driver.create_input_topic("words", key=mp.String, value=mp.String)
    out = driver.create_output_topic("counts", key=mp.String, value=mp.Long)
    for word in ("a", "b", "a"):
        words.pipe_input(word, word)
    assert out.read_key_values_to_list() == [("a", 1), ("b", 1), ("a", 2)]
print("processed")
'''


def try_wheel(wheel: Path, sources: Sources, scratch: Path) -> str:
    """Install the wheel with the locked packages into a new environment, and run an application there.

    Raises:
        ReleaseFailed: it cannot be installed, or the application fails.
    """
    python = _environment(scratch / "wheel")
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        sources.directory / "requirements-worker.lock",
    )
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    program = scratch / "wheel" / "application.py"
    program.write_text(_APPLICATION)
    _expect(run(python, "-I", program, where=scratch), "processed")
    _expect(run(python.parent / "millpond", "--version", where=scratch), sources.version)
    _expect(run(python.parent / "millpond", "settings", "commit", where=scratch), "commit.interval.ms")
    return "installed with the locked packages; an application runs"


def try_sdist(sdist: Path, wheel: Path, sources: Sources, scratch: Path) -> str:
    """Build a wheel from the sdist, and compare it with the wheel of the release.

    Raises:
        ReleaseFailed: it cannot be built, or its files differ.
    """
    import zipfile

    python = _environment(scratch / "sdist")
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        sources.directory / "requirements-build.lock",
    )
    run(
        python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch / "again",
        sdist,
        environment={"SOURCE_DATE_EPOCH": str(sources.epoch)},
    )  # fmt: skip
    with zipfile.ZipFile(scratch / "again" / wheel.name) as again, zipfile.ZipFile(wheel) as ours:
        # RECORD and WHEEL name hashes and the version of setuptools.
        differ = {each.filename for each in ours.infolist()} ^ {each.filename for each in again.infolist()}
        differ |= {name for name in ours.namelist() if name.endswith(".py") and ours.read(name) != again.read(name)}
    if differ:
        raise ReleaseFailed(f"The wheel made of the sdist has other files: {', '.join(sorted(differ)[:5])}.")
    return "gives the same files"


def try_chart(helms: Iterable[Path], archive: Path, scratch: Path) -> str:
    """Check the packaged chart with each Helm, and render it.

    Raises:
        ReleaseFailed: Helm does not accept it.
    """
    rendered = [
        run(helm, "template", "millpond", archive, "--namespace", "millpond-system", where=scratch) for helm in helms
    ]
    for each in rendered:
        _expect(each, "kind: Deployment")
    for helm in helms:
        run(helm, "lint", "--strict", archive, where=scratch)
    return f"accepted by {len(rendered)} versions of Helm"


def try_images(docker: str, images: Iterable[Image], version: str) -> str:
    """Run each image's program, without a network and with a read-only file system.

    Raises:
        ReleaseFailed: a program does not start.
    """
    shown = {
        "worker": ("--version", version),
        "operator": ("--help", "Run the operator"),
        "spark": ("--help", "napshot"),
    }
    for image in images:
        argument, expected = shown[image.name]
        _expect(
            run(
                docker,
                "run",
                "--rm",
                "--network=none",
                "--read-only",
                "--tmpfs=/tmp",
                "--cap-drop=ALL",
                image.reference,
                argument,
            ),
            expected,
        )
    return "run without rights, network or a writable file system"


def _environment(directory: Path) -> Path:
    run(sys.executable, "-m", "venv", directory)
    return directory / "bin" / "python"


def _expect(output: str, text: str) -> None:
    if text not in output:
        raise ReleaseFailed(f"A trial printed no '{text}', but: {output.strip()[-400:]}")
