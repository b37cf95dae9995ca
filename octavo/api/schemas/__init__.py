"""Request and response bodies as pydantic models; the OpenAPI document is made from them."""
