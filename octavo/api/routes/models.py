"""GET /v1/models and /v1/models/{id}."""

from starlette.requests import Request
from starlette.responses import Response

from octavo.api.routes.replies import json_reply
from octavo.api.schemas.answers import ModelCard, ModelList
from octavo.serving.context import Context
from octavo.serving.models import check_model


async def list_models(request: Request) -> Response:
    """The one model that is served."""
    return json_reply(ModelList([_card(request.app.state.context)]))


async def get_model(request: Request) -> Response:
    """That model by its name."""
    context: Context = request.app.state.context
    check_model(request.path_params["model"], context.served.name)
    return json_reply(_card(context))


def _card(context: Context) -> ModelCard:
    served = context.served
    return ModelCard(
        served.name,
        served.created,
        root=served.name,
        max_model_len=context.rules.limits.max_model_len,
    )
