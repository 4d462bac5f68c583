"""What OpenAPI is told of a route that reads its body and writes its answer itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, RequestBody

from walkserve.http.terms_docs import PARAMETERS


def operation(body: Mapping[str, OpenAPIMediaType], answer: OpenAPIResponse) -> type[Operation]:
    """The operation of a route whose requests have terms.

    Args:
        body: By content type.
        answer: The good one.
    """

    @dataclass
    class WrittenOperation(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(content=dict(body), required=True)
            self.parameters = [*(self.parameters or ()), *PARAMETERS]
            self.responses = {**(self.responses or {}), "200": answer}

    return WrittenOperation
