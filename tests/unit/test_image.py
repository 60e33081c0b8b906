"""Dockerfile: no test builds it, so what it promises is held against its text, the Makefile and the command."""

import re
import shlex
from pathlib import Path

import pytest

from tg_base.config import CliOverrides, ConfigWatcher
from tg_serve.command import serve

ROOT = Path(__file__).parents[2]
PREFIX = "/opt/tokengrid"
TOOLS = {"g++", "gcc", "make", "cmake", "git", "uv", "pip", "pytest", "mypy", "ruff"}


def stages() -> list[list[tuple[str, str]]]:
    """Each stage as its instructions: (word, the rest)."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for word, _, rest in lines:
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


BUILD, IMAGE = stages()


def of(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in of(IMAGE, "ENV") for pair in rest.split())


def test_both_stages_have_the_same_python() -> None:
    """The environment is copied, and its Python is a link to that of the base image."""
    assert of(BUILD, "FROM") == [f"{of(IMAGE, 'FROM')[0]} AS build"]


def test_it_is_installed_by_the_makefile_without_development_tools() -> None:
    assert of(BUILD, "RUN")[-1] == f"make install PREFIX={PREFIX}"
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ninstall:")[2].partition("\n\n")[0]
    assert "requirements-server.lock" in recipe
    assert "ready" not in recipe
    assert " -e " not in recipe, "the code is copied into the environment, not linked to a source that is not there"


def test_the_image_has_the_environment_and_no_tools() -> None:
    assert of(IMAGE, "COPY") == [f"--from=build {PREFIX} {PREFIX}"]
    words = {word for rest in of(IMAGE, "RUN") for word in shlex.split(rest)}
    assert not words & TOOLS
    assert image_environment()["PATH"].split(":")[0] == f"{PREFIX}/bin"


def test_who_runs_it_does_not_own_it() -> None:
    """COPY gives files to root where no `--chown` says otherwise; USER comes after, and for good."""
    [user] = of(IMAGE, "USER")
    assert int(user) > 0, "a name does not tell Kubernetes' `runAsNonRoot` that it is not root's"
    assert f"useradd --uid {user} --create-home tokengrid" in of(IMAGE, "RUN")[0]
    assert "chown" not in (ROOT / "Dockerfile").read_text("utf-8")
    last = [word for word, _ in IMAGE].index("USER")
    assert not {"RUN", "COPY", "ADD"} & {word for word, _ in IMAGE[last:]}
    assert of(IMAGE, "WORKDIR") == ["/home/tokengrid"]


def test_a_user_of_a_clusters_choice_has_a_home() -> None:
    """It has no entry in /etc/passwd, and the group 0: its home is that of the environment, which the group writes."""
    home = image_environment()["HOME"]
    assert of(IMAGE, "WORKDIR") == [home]
    assert f"chgrp 0 {home} && chmod 775 {home}" in of(IMAGE, "RUN")[0]


def test_nothing_in_it_is_for_anybody_to_write() -> None:
    """What `make install` leaves behind: uv's lock of an environment may be written by all."""
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ninstall:")[2].partition("\n\n")[0]
    assert "rm -f $(PREFIX)/.lock" in recipe.splitlines()[-1]


def test_a_published_port_reaches_it_and_outside_it_stays_local(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(IMAGE, "EXPOSE") == [str(ConfigWatcher().config.gateway.port)]
    assert of(IMAGE, "CMD") == ['["tg-serve"]']
    monkeypatch.delenv("TOKENGRID_HOST", raising=False)
    assert listens_on() == "127.0.0.1"
    monkeypatch.setenv("TOKENGRID_HOST", image_environment()["TOKENGRID_HOST"])
    assert listens_on() == "0.0.0.0"
    assert listens_on("--host", "127.0.0.1") == "127.0.0.1"


def listens_on(*arguments: str) -> str:
    """The address that `tg-serve` takes with the built-in configuration."""
    host = serve.make_context("tg-serve", list(arguments)).params["host"]
    return CliOverrides(host=host).apply(ConfigWatcher().config).gateway.host


def test_what_is_no_source_stays_out_of_the_build() -> None:
    ignored = set((ROOT / ".dockerignore").read_text("utf-8").split())
    assert ignored >= {".git", ".venv", ".cache", "dist", ".env", "tests"}
    assert not ignored & {"scripts", "LICENSE", "requirements-server.lock"}
