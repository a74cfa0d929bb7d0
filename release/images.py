"""The container images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .commands import run
from .failures import ReleaseFailed
from .sources import Sources

__all__ = ("IMAGES", "NAMES_A_BASE", "Image", "base_image", "build", "differing")

IMAGES = ("worker", "operator", "spark")
NAMES_A_BASE = re.compile(r"^ARG BASE_IMAGE=(\S+?)@(sha256:[0-9a-f]{64})$", re.MULTILINE)
"""The line of a Dockerfile that names its base image by tag and digest."""


@dataclass(frozen=True)
class Image:
    """An image that was built.

    Attributes:
        name: worker, operator or spark.
        reference: its name for docker.
        base: the base image that it was built on.
        layers: the digests of the layers' contents, base layers first. They are equal for equal contents; the id of an
            image is not, since it contains the time of the build.
    """

    name: str
    reference: str
    base: str
    layers: tuple[str, ...]


def build(
    docker: str, sources: Sources, names: Iterable[str], registry: str, options: Iterable[str] = ()
) -> list[Image]:
    """Build images without docker's cache.

    Args:
        docker: the path of docker.
        sources: the sources.
        names: the images to build.
        registry: registry and repository that their names begin with.
        options: further options for `docker build`.

    Raises:
        ReleaseFailed: docker failed.
    """
    built = []
    for name in names:
        dockerfile = sources.directory / name / "Dockerfile"
        base = base_image(docker, dockerfile)
        reference = f"{registry}/millpond-{name}:{sources.version}"
        run(
            docker, "build", "--quiet", "--no-cache", *options, f"--build-arg=BASE_IMAGE={base}",
            f"--build-arg=SOURCE_DATE_EPOCH={sources.epoch}",
            f"--label=org.opencontainers.image.revision={sources.commit}",
            f"--label=org.opencontainers.image.version={sources.version}", f"--tag={reference}", f"--file={dockerfile}",
            sources.directory,
        )  # fmt: skip
        layers = json.loads(run(docker, "image", "inspect", "--format={{json .RootFS.Layers}}", reference))
        built.append(Image(name, reference, base, tuple(layers)))
    return built


def base_image(docker: str, dockerfile: Path) -> str:
    """Return the base image of a Dockerfile: by digest, or by tag where docker has only an image of its own for it.

    A machine without a registry cannot have an image by digest. One that was built there under the tag does as well.

    Raises:
        ReleaseFailed: the Dockerfile names no base image with a digest.
    """
    found = NAMES_A_BASE.search(dockerfile.read_text())
    if found is None:
        raise ReleaseFailed(f"{dockerfile} names no base image by digest: write ARG BASE_IMAGE=name:tag@sha256:....")
    tag, digest = found.groups()
    try:
        known = json.loads(run(docker, "image", "inspect", "--format={{json .RepoDigests}}", tag))
    except ReleaseFailed:
        return f"{tag}@{digest}"
    return f"{tag}@{digest}" if known else tag


def differing(first: Iterable[Image], second: Iterable[Image]) -> list[str]:
    """Return the names of images with other layers in the second build than in the first."""
    return [one.name for one, other in zip(first, second, strict=True) if one.layers != other.layers]
