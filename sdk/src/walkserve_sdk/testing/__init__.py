"""What plugins are tested with. The toy runtime walks a declaration without weights and without torch."""

from walkserve_sdk.testing.toy import ToyRuntime
from walkserve_sdk.testing.toy_branches import Branch
from walkserve_sdk.testing.toy_calls import ToyCall
from walkserve_sdk.testing.toy_result import FanItem, StreamTotal, ToyResult, ToyStep

__all__ = ["Branch", "FanItem", "StreamTotal", "ToyCall", "ToyResult", "ToyRuntime", "ToyStep"]
