"""Values on their way out of a worker and into it: what is small is sent, what is large is lent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from walkserve import messages as m
from walkserve.worker.live import Live

_AS_IT_IS = (bool, int, float, str, m.Blob, m.Array, m.TensorRef, m.Named)


class Carrier(Protocol):
    """Lends tensors to other processes and takes theirs."""

    @property
    def held(self) -> int:
        """Tensors that are lent now."""

    def put(self, tensor: Any) -> m.Array | m.TensorRef: ...
    def take(self, value: m.Array | m.TensorRef) -> Any: ...
    def free(self, keys: list[int]) -> None: ...
    def forget(self, owner: str) -> None: ...


class Lending:
    """Between a worker's values and those in messages.

    Args:
        say: (address, message).
    """

    def __init__(self, carrier: Carrier, say: Callable[[str, m.Message], None]) -> None:
        self.carrier = carrier
        self._say = say
        self._lent: dict[int, Live] = {}  # key -> whose it is, of what is lent by ``lend``

    def send(self, value: Any) -> m.Value:
        """Make a value fit for a message. Whoever receives a reference frees it.

        Raises:
            TypeError: No message can hold it.
        """
        if value is None or isinstance(value, _AS_IT_IS):  # a tuple: `int | str` would be made for each value
            return value
        if isinstance(value, bytes):
            return m.Blob(value)
        if isinstance(value, list):
            if why := m.unfit(value):  # first: nothing has been lent yet
                raise TypeError(why)
            return [self.send(one) for one in value]
        if isinstance(value, dict):
            if why := m.unfit(value):
                raise TypeError(why)
            return m.Named({name: self.send(one) for name, one in value.items()})
        return self.carrier.put(value)

    def lend(self, live: Live, value: Any) -> m.Value:
        """The same for a reference that is freed at the latest when the request closes."""
        sent = self.send(value)
        for one in m.references(sent):
            live.exports.add(one.key)
            self._lent[one.key] = live
        return sent

    def free(self, keys: Iterable[int]) -> None:
        """Whoever had these read them, or can name them no more."""
        keys = list(keys)
        for key in keys:
            live = self._lent.pop(key, None)
            if live is not None:
                live.exports.discard(key)
        self.carrier.free(keys)

    def close(self, live: Live) -> None:
        """What is still lent of a request is not read any more."""
        self.free(live.exports)

    def receive(self, value: m.Value) -> Any:
        """The value of a message, as a component takes it."""
        match value:
            case m.Blob():
                return value.data
            case m.Array() | m.TensorRef():
                return self.carrier.take(value)
            case list():
                return [self.receive(one) for one in value]
            case m.Named(fields=fields):
                return {name: self.receive(one) for name, one in fields.items()}
            case _:
                return value

    def give_back(self, values: Iterable[m.Value]) -> None:
        """Tell the owners of what was lent that it is read, or will never be."""
        keys: dict[str, list[int]] = defaultdict(list)
        for value in values:
            for one in m.references(value):
                keys[one.owner].append(one.key)
        for owner, lent in keys.items():
            self._say(owner, m.FreeTensors(lent))


def _check_record(record: dict[Any, Any]) -> None:
    """Before anything of it is lent. Raises TypeError, which says where in it a message ends."""
    for name, one in record.items():
        if not isinstance(name, str):
            raise TypeError(f"a record has names, and {name!r} is a {type(name).__name__}")
        if isinstance(one, bytes | dict | m.Blob | m.Named):
            raise TypeError(f"{name}: a record may not hold a {type(one).__name__}")
        if isinstance(one, list):
            for item in one:
                if item is None or isinstance(item, list | dict | bytes | m.Blob | m.Named):
                    raise TypeError(f"{name}: a list in a record may not hold a {type(item).__name__}")
