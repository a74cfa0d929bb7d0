"""The choice of Java: the environment's if it is new enough, else the wheel's, else a helpful error."""

from __future__ import annotations

import pytest

from millpond.broker import java
from millpond.broker.java import JavaNotFound

VERSIONS = {
    8: 'openjdk version "1.8.0_412"',
    11: 'openjdk version "11.0.23" 2024-04-16',
    17: 'openjdk version "17.0.15" 2025-04-15',
    21: 'java version "21" 2023-09-19 LTS',
    25: 'openjdk version "25-ea" 2025-09-16',
}


def launcher(home, tool: str, text: str):
    """Create a program that answers -version like a Java."""
    path = home / "bin" / tool
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "_bundled", list)
    return monkeypatch


@pytest.mark.parametrize("release", VERSIONS)
def test_java_home_is_taken_from_17_on(bare, tmp_path, release):
    """Kafka 4 needs Java 17: older versions are skipped, whatever the format of their version."""
    path = launcher(tmp_path / "home", "java", VERSIONS[release])
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    if release >= java.MINIMUM_VERSION:
        assert java.find_java() == path.resolve()
    else:
        with pytest.raises(JavaNotFound):
            java.find_java()


def test_newer_java_on_path_beats_old_java_home(bare, tmp_path):
    """The first launcher that is new enough wins."""
    launcher(tmp_path / "old", "java", VERSIONS[11])
    path = launcher(tmp_path / "new", "java", VERSIONS[21])
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    bare.setenv("PATH", str(tmp_path / "new" / "bin"))
    assert java.find_java() == path.resolve()


def test_bundled_java_is_used_without_a_system_java(bare, tmp_path):
    """A machine without Java needs only Python packages."""
    path = launcher(tmp_path / "wheel", "java", VERSIONS[25])
    bare.setattr(java, "_bundled", lambda: [path])
    assert java.find_java() == path


def test_launcher_that_fails_is_not_used(bare, tmp_path):
    """A broken link or a failing script is skipped like an old Java."""
    path = launcher(tmp_path / "home", "java", VERSIONS[17])
    path.write_text("#!/bin/sh\nexit 3\n")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(JavaNotFound, match=r"millpond\[broker\].*openjdk-17-jre-headless"):
        java.find_java()


def test_missing_compiler_names_the_jdk_package(bare, tmp_path):
    """Only a JDK can compile; the error names the Debian package."""
    launcher(tmp_path / "jre", "java", VERSIONS[17])
    bare.setenv("JAVA_HOME", str(tmp_path / "jre"))
    with pytest.raises(JavaNotFound, match="openjdk-17-jdk-headless"):
        java.find_jdk()
    launcher(tmp_path / "jre", "javac", "javac 17.0.15")
    assert java.find_jdk() == (tmp_path / "jre").resolve()


@pytest.mark.parametrize("release", VERSIONS)
def test_spark_gets_a_java_that_it_runs_on(bare, tmp_path, release):
    """From 17 on, but not too new; the wheel has no full runtime and is not used."""
    path = launcher(tmp_path / "home", "java", VERSIONS[release])
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    bare.setattr(java, "_bundled", lambda: pytest.fail("the wheel's Java lacks modules"))
    if release in (17, 21):
        assert java.find_jre() == path.resolve().parent.parent
    else:
        with pytest.raises(JavaNotFound, match=rf"from 17 to 23.*only Java {release} at .*openjdk-17-jre-headless"):
            java.find_jre()


def test_spark_without_any_java_names_the_package(bare):
    """In one sentence."""
    with pytest.raises(JavaNotFound, match=r"lead to no Java; install Debian's openjdk-17-jre-headless"):
        java.find_jre()
