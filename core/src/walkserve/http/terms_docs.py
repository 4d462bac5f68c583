"""What OpenAPI says of the headers by which a client sets the terms of its request."""

from __future__ import annotations

from litestar.openapi.spec import Example, OpenAPIType, Parameter, Reference, Schema

from walkserve.http import client_ids, terms

PARAMETERS: list[Parameter | Reference] = [
    Parameter(
        name=terms.HEADER,
        param_in="header",
        description="Seconds that it may take; then it is a 504. Not more than the server's `--timeout`.",
        schema=Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0),
        examples={"seconds": Example(value=30)},
    ),
    Parameter(
        name=client_ids.HEADER,
        param_in="header",
        description="The client's own id for it: logged, told and sent back, never looked up.",
        schema=Schema(
            type=OpenAPIType.STRING, min_length=1, max_length=client_ids.MOST_CHARS, pattern=r"^[!-~]+$"
        ),
        examples={"id": Example(value="order-17")},
    ),
]
