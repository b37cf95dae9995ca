"""POST /tokenize, POST /detokenize, GET /tokenizer_info."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from octavo.api.limits import read, read_as
from octavo.api.routes.replies import json_reply
from octavo.api.schemas.answers import Detokenized, Tokenized
from octavo.api.schemas.utility import DetokenizeBody, TokenizeChat, TokenizeText
from octavo.serving.chat import Chat, tokenise_chat
from octavo.serving.context import Context
from octavo.serving.models import check_model


async def tokenize(request: Request) -> Response:
    """Token ids of a text, or of a chat as the template writes it."""
    context: Context = request.app.state.context
    body, raw = await read_as(context, request, _schema)
    check_model(body.model, context.served.name)
    if isinstance(body, TokenizeChat):
        chat = Chat(raw["messages"], raw.get("tools"))
        tokens = await context.run(tokenise_chat, context, body, chat, True)
    else:
        special = body.add_special_tokens is not False
        encode = partial(context.prompts.encode, any_length=True)
        tokens = await context.run(encode, body.prompt, special)
    names = None
    if body.return_token_strs:
        names = await context.run(_names, context, tokens)
    return json_reply(Tokenized(len(tokens), context.rules.limits.max_model_len, tokens, names))


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    context: Context = request.app.state.context
    body, _ = await read(context, request, DetokenizeBody)
    check_model(body.model, context.served.name)
    return json_reply(Detokenized(await context.run(_text, context, body.tokens)))


def _schema(raw: object) -> type[TokenizeText | TokenizeChat]:
    return TokenizeChat if isinstance(raw, dict) and "messages" in raw else TokenizeText


def _names(context: Context, tokens: list[int]) -> list[str]:
    return [context.served.tokenizer.token_str(token_id) for token_id in tokens]


def _text(context: Context, tokens: list[int]) -> str:
    context.prompts.check_ids(tokens, "tokens")
    return context.served.tokenizer.decode(tokens)


async def tokenizer_info(request: Request) -> Response:
    """The tokenizer's configuration and the chat template."""
    context: Context = request.app.state.context
    info = {"model_max_length": context.served.model_len} | context.served.tokenizer.info()
    return json_reply(info)
