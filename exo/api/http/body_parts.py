"""Of how many parts a body may be: reading and checking takes a time for each, in which nobody else is answered."""

from exo.errors import Rejected

_MOST = ((b"{", 100_000, "objects"), (b"[", 200_000, "lists"), (b'":', 500_000, "fields"), (b",", 2_000_000, "values"))
"""What stands for a part, in texts too; how many there may be; what they are called. So many take less than two seconds
if they are objects, and less than one else. Four megabytes of text or code have fewer."""


class BodyParts:
    """Those of one body that have come."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * len(_MOST)

    def add(self, data: bytes) -> None:
        """Some more of the body. Raises Rejected where it is of too many parts."""
        for index, (sign, most, name) in enumerate(_MOST):
            self._counts[index] += data.count(sign)
            if self._counts[index] > most:
                reason = f"the request has more than {most} {name}: send fewer messages, or shorter ones"
                raise Rejected(reason, code="request_too_large")
