"""Bodies of so many parts that reading them would hold up everybody else."""

from itertools import islice

import httpx
import pytest

from exo.api.bodies.strict import LIST_MOST


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/ollama/api/chat"])
def test_a_body_of_too_many_parts_is_refused_before_it_holds_up_others(client: httpx.Client, path: str) -> None:
    message = {"role": "user", "content": "a"}
    body = {"model": "scripted", "max_tokens": 1} if path == "/v1/messages" else {"model": "scripted"}
    many = client.post(path, json={**body, "messages": [message] * (LIST_MOST + 1)})
    assert (many.status_code, f"there may be {LIST_MOST} at most" in many.text) == (400, True)
    more = client.post(path, json={**body, "messages": [message] * 100_001})
    assert (more.status_code, "objects: send fewer" in more.text) == (413, True)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/ollama/api/chat", "/place_instance"])
def test_many_unknown_parameters_are_told_by_their_number(client: httpx.Client, path: str) -> None:
    unknown = {f"x{number}": 1 for number in range(510_000)}
    some = client.post(path, json=dict(islice(unknown.items(), 300_000)))
    assert (some.status_code, "the body has 30000" in some.text) == (400, True)
    many = client.post(path, json=unknown)
    assert (many.status_code, "more than 500000 fields" in many.text) == (413, True)


@pytest.mark.parametrize(
    ("value", "name"), [("[" + "[]," * 200_000 + "[]]", "lists"), ("[" + "1," * 2_000_001 + "1]", "values")]
)
def test_many_lists_and_values_are_refused_before_they_are_read(client: httpx.Client, value: str, name: str) -> None:
    answer = client.post("/v1/chat/completions", content=f'{{"stop": {value}}}')
    assert (answer.status_code, f"000 {name}" in answer.text) == (413, True)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "stop"),
        ("/v1/completions", "stop"),
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
        ("/v1/messages", "messages"),
        ("/v1/messages", "system"),
    ],
)
def test_a_list_that_is_too_long_is_one_error_whatever_is_in_it(client: httpx.Client, path: str, field: str) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, field: [1] * 50_000}
    assert f"{field}: there may be " in client.post(path, json=body).text
