"""What can be read of a field whose value does not have its type as a whole."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from headwater.spark.read.value_types import checked_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: From a type to what decodes it out of the bytes of one value, or out of a value.
DecoderOf = Callable[[Any], Callable[[Any], Any]]


class PartialValue:
    """Reads values of one type leniently: what has another type in a struct, an array or a map is
    null alone. `decoder_of` gives the decoders of a format, `raw` is its type of an undecoded
    value, `errors` what they raise. `bad` is called for each part that is left out.
    """

    def __init__(
        self,
        kind: "DataType",
        decoder_of: DecoderOf,
        raw: Any,
        errors: tuple[type[Exception], ...],
        bad: Callable[[], None],
    ) -> None:
        self._errors = errors
        self._bad = bad
        self._fields: dict[str, PartialValue] = {}
        self._each: PartialValue | None = None
        self._many = isinstance(kind, t.ArrayType)
        inner: Any = checked_type(kind) | None

        def of(one: "DataType") -> "PartialValue":
            return PartialValue(one, decoder_of, raw, errors, bad)

        if isinstance(kind, t.StructType):
            self._fields = {field.name: of(field.dataType) for field in kind.fields}
            inner = dict[str, raw] | None
        elif isinstance(kind, t.ArrayType):
            self._each = of(kind.elementType)
            inner = list[raw] | None
        elif isinstance(kind, t.MapType):
            self._each = of(kind.valueType)
            inner = dict[str, raw] | None
        self._decode = decoder_of(inner)

    def read(self, value: Any) -> Any:
        """What can be read of it, None for nothing."""
        try:
            found = self._decode(value)
        except self._errors:
            self._bad()
            return None
        if found is None:
            return None
        if self._each is None:
            if not self._fields:
                return found
            known = {name: one for name, one in found.items() if name in self._fields}
            return {name: self._fields[name].read(one) for name, one in known.items()}
        read = self._each.read
        if self._many:
            return [read(one) for one in found]
        return {name: read(one) for name, one in found.items()}
