"""The client of `octavo chat` and `octavo complete`: event streams, and servers that misbehave."""

import http.server
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cli.ask import Piece
from octavo.cli.complete import complete_command
from octavo.cli.remote import ServerSource, event_data, pieces_of
from octavo.errors import RequestError
from octavo.testing.server import free_port

MODELS = json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode()


def frames(*texts, end=b"data: [DONE]\n\n"):
    told = [json.dumps({"choices": [{"text": text, "finish_reason": None}]}) for text in texts]
    return b"".join(f"data: {frame}\n\n".encode() for frame in told) + end


class Canned(http.server.BaseHTTPRequestHandler):
    """Answers GET with the models and POST with what the server was given."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self._answer(200, self.server.models)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, json.loads(body), dict(self.headers)))
        self._answer(*self.server.canned)

    def _answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    """A server on this machine; set `canned` and `models`, see `asked`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned) as server:
        server.models, server.canned, server.asked = MODELS, (200, frames("a")), []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def answer(server, prompt="x", model=None, **params):
    return list(ServerSource(server.url, None, model).complete(prompt, params))


# ---------------------------------------------------------------------------------- event streams


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\r\n"), min_size=1), st.booleans())
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_every_event_comes_out_as_it_went_in(events, end):
    text = "".join(
        f"{f': a comment{end}{end}' if comment else ''}data: {data}{end}{end}"
        for data, comment in events
    )
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    sent = [data.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for data, _ in events]
    assert list(event_data(lines)) == sent


def test_events_of_many_lines_and_other_fields():
    lines = [b"event: x\n", b"data: a\n", b"data:b\n", b"\n", b"\n", b"data: cut off\n"]
    assert list(event_data(lines)) == ["a\nb"]


def test_frames():
    chat = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
    assert list(pieces_of(json.dumps(chat))) == [Piece("a")]
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    assert list(pieces_of(json.dumps(last))) == [Piece("", "stop")]
    assert list(pieces_of('{"choices": [], "usage": {}}')) == []


@pytest.mark.parametrize("data", ["", "[]", "5", '{"choices": 5}', '{"choices": [{}]}', "{}"])
def test_what_is_no_frame(data):
    with pytest.raises(RequestError, match="no frame"):
        list(pieces_of(data))


# ---------------------------------------------------------------------------------- servers


def test_what_is_sent(server):
    source = ServerSource(server.url + "/v1/", "key", None)
    assert source.name == "first"
    assert list(source.complete("x", {"top_p": 0.5})) == [Piece("a")]
    [(path, body, headers)] = server.asked
    assert path == "/v1/completions"
    assert body == {"prompt": "x", "model": "first", "stream": True, "top_p": 0.5}
    assert headers["Authorization"] == "Bearer key"
    list(source.chat([{"role": "user", "content": "y"}], {}))
    assert server.asked[1][0] == "/v1/chat/completions"


def test_the_command(server, capsys):
    server.canned = (200, frames("a", "é\n"))
    assert complete_command(["named", "--url", server.url, "--prompt", "x", "--seed", "4"]) == 0
    assert capsys.readouterr().out == "aé\n"
    body = server.asked[0][1]
    assert (body["model"], body["seed"], body["max_tokens"]) == ("named", 4, 256)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b'{"error": {"message": "too long"}}', "the server answers 400: too long"),
        (401, b'{"error": "no key"}', "the server answers 401: no key"),
        (502, b"<html>", "the server answers 502: <html>"),
        (503, b"", "the server answers 503: Service Unavailable"),
        (200, b'data: {"error": {"message": "failed"}}\n\n', "the server says: failed"),
        (200, frames("a", end=b""), "broke off"),
        (200, b"", "broke off"),
        (200, b"data: x\n\n", "no frame"),
    ],
)
def test_refusals_and_broken_streams(server, status, body, words):
    server.canned = (status, body)
    with pytest.raises(RequestError, match=words):
        answer(server)


def test_a_finish_reason_is_an_end_too(server):
    server.canned = (200, b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n')
    assert answer(server) == [Piece("a", "stop")]


def test_what_came_before_a_stop_is_enough(server):
    server.canned = (200, frames("a", "b", end=b""))
    asked = ServerSource(server.url, None, None).complete("x", {})
    pieces = iter(asked)
    assert next(pieces) == Piece("a")
    asked.close()
    assert len(list(pieces)) <= 1
    asked.close()


def test_other_servers(server):
    server.models = b"hello"
    with pytest.raises(RequestError, match="not with the OpenAI API"):
        ServerSource(server.url, None, None)
    server.models = b'{"data": []}'
    with pytest.raises(RequestError, match="name one as MODEL"):
        ServerSource(server.url, None, None)
    assert ServerSource(server.url, None, "m").name == "m"


def test_no_server():
    with pytest.raises(RequestError, match="cannot reach http://127"):
        ServerSource(f"http://127.0.0.1:{free_port()}", None, None)
