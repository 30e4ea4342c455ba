"""What the settings accept, and what they say about what they do not."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from exo.config import load_settings
from exo.errors import Fatal


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("EXO_")]:
        monkeypatch.delenv(variable)


def test_everything_has_a_default() -> None:
    settings = load_settings()
    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert (settings.api_host, settings.api_port) == ("127.0.0.1", 52415)
    assert settings.log_file.is_relative_to(settings.home)
    assert settings.models_dir.is_relative_to(settings.home)
    assert settings.cache_dir.is_relative_to(settings.home)


def test_a_variable_is_its_prefix_and_the_name_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_HOME", "/data/exo")
    monkeypatch.setenv("EXO_API_PORT", "8080")
    monkeypatch.setenv("EXO_OFFLINE", "1")
    settings = load_settings()
    assert (settings.home, settings.api_port, settings.offline) == (Path("/data/exo"), 8080, True)


def test_origins_are_told_from_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_CORS_ORIGINS", "http://localhost:3000,https://docs.example.com")
    assert load_settings().cors_origins == ("http://localhost:3000", "https://docs.example.com")
    for wrong in ("https://a b", "https://a.example/path", "localhost:3000"):
        monkeypatch.setenv("EXO_CORS_ORIGINS", wrong)
        with pytest.raises(Fatal, match="is no origin"):
            load_settings()


def test_allowed_hosts_are_names_without_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_ALLOWED_HOSTS", "exo.example.com, box,::1")
    assert load_settings().allowed_hosts == ("exo.example.com", "box", "::1")
    for wrong in ("box:52415", "https://box", "*.example.com", "a b"):
        monkeypatch.setenv("EXO_ALLOWED_HOSTS", wrong)
        with pytest.raises(Fatal, match=r"EXO_ALLOWED_HOSTS: '.*' is no name"):
            load_settings()


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_API_PORT", "")
    assert load_settings().api_port == 52415


def test_model_folders_are_separated_as_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_MODEL_FOLDERS", os.pathsep.join(["/models", "", "/more models"]))
    assert load_settings().model_folders == (Path("/models"), Path("/more models"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EXO_CLUSTER", "my.cluster"),
        ("EXO_CLUSTER", "*"),
        ("EXO_NATS_URL", "127.0.0.1:4222"),
        ("EXO_NATS_URL", "http://127.0.0.1:4222"),
        ("EXO_NATS_URL", "nats://"),
        ("EXO_NATS_URL", "nats://127.0.0.1:99999"),
        ("EXO_NATS_URL", "nats://127.0.0.1:port"),
        ("EXO_NATS_URL", "nats://[::1"),
        ("EXO_NATS_URL", "nats://a..b:4222"),
        ("EXO_NATS_URL", "nats://a b:4222"),
        ("EXO_API_PORT", "0"),
        ("EXO_API_PORT", "65536"),
        ("EXO_API_PORT", "http"),
        ("EXO_ENGINE", "torch"),
        ("EXO_ENGINE", "mlx,torch"),
        ("EXO_STEP_TIMEOUT", "0"),
        ("EXO_STEP_TIMEOUT", "nan"),
        ("EXO_STEP_TIMEOUT", "inf"),
        ("EXO_STEP_TIMEOUT", "soon"),
        ("EXO_OFFLINE", "perhaps"),
        ("EXO_LOG_LEVEL", "LOUD"),
    ],
)
def test_an_unusable_value_is_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Fatal) as refused:
        load_settings()
    assert variable in str(refused.value)
    assert "\n" not in str(refused.value)


def test_engines_are_named_in_the_order_in_which_they_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, engines in (("auto", ()), ("mlx", ("mlx",)), ("vllm, mlx,vllm", ("vllm", "mlx"))):
        monkeypatch.setenv("EXO_ENGINE", value)
        assert load_settings().engine == engines


def test_every_unusable_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_API_PORT", "0")
    monkeypatch.setenv("EXO_ENGINE", "torch")
    with pytest.raises(Fatal, match=r"EXO_API_PORT.*EXO_ENGINE"):
        load_settings()


def test_settings_do_not_change_under_a_process() -> None:
    with pytest.raises(ValidationError):
        load_settings().api_port = 1  # type: ignore[misc]


def test_the_word_none_means_no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_DEFAULT_MODEL", "none")
    assert load_settings().default_model == ""


def test_what_is_wrong_is_said_without_the_words_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXO_NATS_URL", "foo")
    with pytest.raises(Fatal, match=r"^settings: EXO_NATS_URL: it must look like nats://127\.0\.0\.1:4222$"):
        load_settings()
