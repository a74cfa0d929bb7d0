"""The images of a run: built from this repository with docker, and loaded onto the nodes of the cluster.

`python -m e2e.images` does that for the cluster of `KUBECONFIG`, for a run with `E2E_BUILT`.

`MILLPOND_PYTHON_IMAGE` and `MILLPOND_JAVA_IMAGE` name other base images; `E2E_BUILD_OPTIONS` has further options for
`docker build`, such as `--network host`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.clusters import Place, open_cluster
from e2e.commands import ROOT, WORK, CommandFailed, Lacking, found, run
from millpond.broker import jars
from millpond.errors import MillpondError
from release.images import NAMES_A_BASE, base_image
from tests.support.programs import prometheus, versitygw

__all__ = ("VERSIONS", "Images")

VERSIONS = ("v1", "v2", "v3", "bad", "hang", "failing")
"""The versions of the verifier."""

_BUILD_S = 600.0
_TAG = "e2e"


@dataclass(frozen=True)
class Images:
    """The images that docker builds, by their names on the nodes."""

    registry: str = "millpond"

    @property
    def operator(self) -> str:
        return f"{self.registry}/operator:{_TAG}"

    @property
    def worker(self) -> str:
        return f"{self.registry}/worker:{_TAG}"

    @property
    def broker(self) -> str:
        return f"{self.registry}/broker:{_TAG}"

    @property
    def flights(self) -> str:
        return f"{self.registry}/flights:{_TAG}"

    @property
    def spark(self) -> str:
        return f"{self.registry}/spark:{_TAG}"

    @property
    def counting(self) -> str:
        return f"{self.registry}/counting:{_TAG}"

    @property
    def counting_spark(self) -> str:
        """The same application on the image that makes snapshots."""
        return f"{self.registry}/counting-spark:{_TAG}"

    @property
    def objects(self) -> str:
        """An S3 server."""
        return f"{self.registry}/objects:{_TAG}"

    @property
    def prometheus(self) -> str:
        return f"{self.registry}/prometheus:{_TAG}"

    def verifier(self, version: str) -> str:
        """The image of a version of the verifier."""
        return f"{self.registry}/verifier:{_TAG}-{version}"

    @staticmethod
    def content(image: str) -> str:
        """Return the id of an image; empty when docker does not know it."""
        docker = found("docker")
        with contextlib.suppress(CommandFailed):
            return run(docker, "image", "inspect", "--format={{.Id}}", image).strip() if docker else ""
        return ""

    @classmethod
    def built_for(cls, place: Place) -> Images:
        """Build all images, and load them onto the cluster's nodes.

        Raises:
            Lacking: there is no docker.
            CommandFailed: an image could not be built.
        """
        images = cls(place.registry or "millpond")
        builder = _Builder()
        images._build(builder)
        builder.bring(place)
        return images

    def build_for_snapshots(self, place: Place) -> None:
        """Build the images that only snapshots need, and load them onto the cluster's nodes.

        Raises:
            Lacking: there is no docker, or no S3 server.
            CommandFailed: an image could not be built.
        """
        try:
            server = versitygw.build()
        except MillpondError as error:
            raise Lacking(f"e2e lacks an S3 server: {error}") from error
        python, java = os.environ.get("MILLPOND_PYTHON_IMAGE"), os.environ.get("MILLPOND_JAVA_IMAGE")
        builder, here = _Builder(), ROOT / "e2e"
        base = _Builder()  # only a base image
        base.build(self.spark, ROOT, ROOT / "spark" / "Dockerfile", {"BASE_IMAGE": java} if java else {})
        counting = _context("counting", [here / "counting" / "counting.py"])
        dockerfile = here / "counting" / "Dockerfile"
        builder.build(self.counting, counting, dockerfile, {"BASE_IMAGE": self.worker})
        builder.build(self.counting_spark, counting, dockerfile, {"BASE_IMAGE": self.spark})
        context = _context("objects", [server])
        dockerfile = here / "objectstore" / "Dockerfile"
        builder.build(self.objects, context, dockerfile, {"BASE_IMAGE": python} if python else {})
        builder.bring(place)

    def build_prometheus(self, place: Place) -> None:
        """Build the image of Prometheus, and load it onto the cluster's nodes.

        Raises:
            Lacking: there is no docker, or no Prometheus.
            CommandFailed: the image could not be built.
        """
        try:
            program = prometheus.install().prometheus
        except MillpondError as error:
            raise Lacking(f"e2e lacks Prometheus: {error}") from error
        python = os.environ.get("MILLPOND_PYTHON_IMAGE")
        context = _context("prometheus", [program])
        builder, dockerfile = _Builder(), ROOT / "e2e" / "prometheus" / "Dockerfile"
        builder.build(self.prometheus, context, dockerfile, {"BASE_IMAGE": python} if python else {})
        builder.bring(place)

    def _build(self, builder: _Builder) -> None:
        python, java = os.environ.get("MILLPOND_PYTHON_IMAGE"), os.environ.get("MILLPOND_JAVA_IMAGE")
        base = {"BASE_IMAGE": python} if python else {}
        builder.build(self.worker, ROOT, ROOT / "worker" / "Dockerfile", base)
        builder.build(self.operator, ROOT, ROOT / "operator" / "Dockerfile", base)
        worker = {"WORKER_IMAGE": self.worker}
        builder.build(self.flights, ROOT, ROOT / "examples" / "flights" / "Dockerfile", worker)
        here = ROOT / "e2e"
        context = _context("broker", [here / "broker" / "start.sh"], libs=jars.paths("kafka"))
        builder.build(self.broker, context, here / "broker" / "Dockerfile", {"BASE_IMAGE": java} if java else {})
        sources = [here / "verifier" / "verifier.py", ROOT / "tests" / "chaos" / "application.py"]
        context = _context("verifier", sources)
        for version in VERSIONS:
            dockerfile = here / "verifier" / "Dockerfile"
            builder.build(self.verifier(version), context, dockerfile, {**worker, "VERSION": version})


class _Builder:
    def __init__(self) -> None:
        docker = found("docker")
        if docker is None:
            raise Lacking("e2e lacks docker, which builds the images: install it, or name it with DOCKER.")
        self._docker = docker
        self._options = shlex.split(os.environ.get("E2E_BUILD_OPTIONS", ""))
        self._built: list[str] = []

    def build(self, image: str, context: Path, dockerfile: Path, arguments: Mapping[str, str]) -> None:
        if "BASE_IMAGE" not in arguments and NAMES_A_BASE.search(dockerfile.read_text()):
            arguments = {**arguments, "BASE_IMAGE": base_image(self._docker, dockerfile)}
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        run(
            self._docker, "build", "--quiet", *self._options, *given, f"--tag={image}", f"--file={dockerfile}", context,
            timeout_s=_BUILD_S,
        )  # fmt: skip
        self._built.append(image)

    def bring(self, place: Place) -> None:
        """Load the built images onto the cluster's nodes."""
        if place.kind is not None:
            kind = found("kind")
            assert kind is not None
            run(kind, "load", "docker-image", *self._built, "--name", place.kind, timeout_s=_BUILD_S)
            return
        for image in self._built:
            run(self._docker, "push", "--quiet", image, timeout_s=_BUILD_S)


def _context(name: str, files: Iterable[Path], **directories: Sequence[Path]) -> Path:
    """Create a directory for docker with only these files."""
    context = WORK / "context" / name
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, context)
    for directory, content in directories.items():
        (context / directory).mkdir()
        for file in content:
            shutil.copy2(file, context / directory)
    return context


def main() -> int:
    """Build all images that the default run needs, and load them onto the nodes of the cluster."""
    if not os.environ.get("KUBECONFIG"):
        sys.stderr.write("Set KUBECONFIG to the cluster whose nodes get the images.\n")
        return 2
    try:
        with open_cluster() as place:
            Images.built_for(place).build_for_snapshots(place)
    except (Lacking, CommandFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
