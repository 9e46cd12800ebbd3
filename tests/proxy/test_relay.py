from __future__ import annotations

import json

import httpx
import pytest

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


def counter(proxy, name: str) -> float:
    lines = proxy.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_p_then_d_with_one_request_id(proxy, prefill, decode, path):
    reply = proxy.post(path, json=CHAT, headers={"Authorization": "Bearer secret"})
    assert reply.status_code == 200
    assert reply.json()["text"] == "D"
    (p_path, p_body, p_headers), (d_path, d_body, d_headers) = prefill.asked[0], decode.asked[0]
    assert p_path == d_path == path
    assert p_body["max_tokens"] == 1
    assert d_body["max_tokens"] == 8
    assert d_body["kv_transfer_params"] == prefill.params
    assert p_headers["x-request-id"] == d_headers["x-request-id"] == reply.headers["x-request-id"]
    assert p_headers["authorization"] == d_headers["authorization"] == "Bearer secret"


def test_the_client_may_bring_the_request_id(proxy, decode):
    assert (
        proxy.post("/v1/completions", json=CHAT, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"]
        == "mine-1"
    )
    assert decode.asked[0][2]["x-request-id"] == "mine-1"


def test_streaming_passes_events_as_they_come(proxy, decode):
    decode.chunk_delay_s = 0.05
    with proxy.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        assert json.loads(next(lines).removeprefix("data: ")) == {"text": "D0"}
        assert not decode.finished.is_set()  # not held back until the end
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert decode.asked[0][1]["stream"] is True


def test_no_params_from_p_is_a_plain_request_for_d(proxy, prefill, decode):
    prefill.params = None
    assert proxy.post("/v1/completions", json=CHAT).status_code == 200
    assert "kv_transfer_params" not in decode.asked[0][1]
    assert counter(proxy, 'lynx_proxy_fallbacks_total{reason="no_params"}') == 1


def test_several_samples_go_to_d_alone(proxy, prefill, decode):
    assert proxy.post("/v1/chat/completions", json=CHAT | {"n": 2}).status_code == 200
    assert not prefill.asked
    assert decode.asked[0][1]["n"] == 2


def test_a_refusal_of_p_is_passed_on(proxy, prefill, decode):
    prefill.status = 404
    reply = proxy.post("/v1/completions", json=CHAT)
    assert (reply.status_code, reply.json()) == (404, {"error": {"message": "P refuses"}})
    assert not decode.asked


@pytest.mark.parametrize("failure", ["status", "unreachable"])
def test_d_works_alone_when_p_fails(make_proxy, prefill, decode, free_port, failure):
    if failure == "status":
        prefill.status = 500
        proxy = make_proxy()
    else:
        proxy = make_proxy(prefill=(f"http://127.0.0.1:{free_port()}",))
    reply = proxy.post(
        "/v1/completions", json=CHAT | {"kv_transfer_params": {"token_times": True, "faults": {}}}
    )
    assert reply.json()["text"] == "D"
    assert decode.asked[0][1]["kv_transfer_params"] == {"token_times": True}
    assert counter(proxy, 'lynx_proxy_fallbacks_total{reason="unreachable"}') == 1


def test_without_fallback_a_dead_p_is_502(make_proxy, decode, free_port):
    proxy = make_proxy(prefill=(f"http://127.0.0.1:{free_port()}",), fallback=False)
    reply = proxy.post("/v1/completions", json=CHAT)
    assert reply.status_code == 502
    assert "prefill engine failed" in reply.json()["error"]["message"]
    assert not decode.asked


def test_a_dead_d_is_502(make_proxy, free_port):
    reply = make_proxy(decode=(f"http://127.0.0.1:{free_port()}",)).post("/v1/completions", json=CHAT)
    assert reply.status_code == 502
    assert reply.json()["error"]["type"] == "bad_gateway"
    assert "decode engine failed" in reply.json()["error"]["message"]


def test_a_refusal_of_d_is_passed_on(proxy, decode):
    decode.status = 429
    reply = proxy.post("/v1/completions", json=CHAT | {"stream": True})
    assert (reply.status_code, reply.json()) == (429, {"error": {"message": "D refuses"}})


def test_a_stream_that_breaks_ends_with_an_error_event(proxy, decode):
    decode.break_after = 2
    reply = proxy.post("/v1/completions", json=CHAT | {"stream": True})
    events = [line for line in reply.text.splitlines() if line]
    assert events[1] == 'data: {"text": "D1"}'
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == 502


def test_engines_take_turns_and_stand_in_for_dead_ones(make_proxy, prefill, decode, free_port):
    dead = f"http://127.0.0.1:{free_port()}"
    proxy = make_proxy(prefill=(dead, prefill.url), decode=(decode.url, dead))
    for _ in range(4):
        assert proxy.post("/v1/completions", json=CHAT).status_code == 200
    assert len(prefill.asked) == len(decode.asked) == 4


def test_time_limits(make_proxy, decode, prefill):
    decode.delay_s = 5
    assert make_proxy(request_timeout_s=0.2).post("/v1/completions", json=CHAT).status_code == 504
    assert decode.hung_up.wait(2)
    assert make_proxy(silence_timeout_s=0.2).post("/v1/completions", json=CHAT).status_code == 502
    prefill.delay_s, decode.delay_s = 5, 0
    assert make_proxy(prefill_timeout_s=0.2).post("/v1/completions", json=CHAT).json()["text"] == "D"


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"[1]", 400), (b'{"a": NaN}', 400), (b'"' + b"x" * 2000 + b'"', 413)],
)
def test_bodies_that_are_refused(make_proxy, prefill, content, status):
    reply = make_proxy(max_body_bytes=1000).post("/v1/completions", content=content)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == status
    assert not prefill.asked


def test_models_and_health(make_proxy, prefill, decode, free_port):
    proxy = make_proxy()
    assert proxy.get("/v1/models").json()["data"] == [{"id": "D"}]
    assert proxy.get("/health").status_code == 200
    prefill.healthy = False
    reply = proxy.get("/health")
    assert reply.status_code == 503
    assert reply.json()["engines"] == {prefill.url: "status 503", decode.url: "healthy"}
    gone = make_proxy(decode=(f"http://127.0.0.1:{free_port()}",))
    assert gone.get("/v1/models").status_code == 502
    assert gone.get("/health").status_code == 503


def test_the_environment_s_http_proxy_is_not_used(make_proxy, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert make_proxy().post("/v1/completions", json=CHAT).status_code == 200


def test_fallback_never_hides_that_the_client_is_wrong(proxy, prefill):
    prefill.status = 400
    with pytest.raises(httpx.HTTPStatusError):
        proxy.post("/v1/completions", json=CHAT).raise_for_status()


def test_a_slow_engine_is_not_asked_twice(make_proxy, decode):
    decode.delay_s = 1
    proxy = make_proxy(decode=(decode.url, decode.url), silence_timeout_s=0.2)
    assert proxy.post("/v1/completions", json=CHAT).status_code == 502
    assert len(decode.asked) == 1
