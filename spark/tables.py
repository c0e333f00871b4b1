"""Tables of SQL: `CREATE TABLE t USING headwater OPTIONS (…)`.

Spark hands a table's options over when the table is made, and never again. What it keeps is the
schema. So the options are kept in the metadata of a column, which a SELECT, an INSERT and a
streaming query get with the schema. Spark leaves that metadata out of an INSERT whose columns have
the table's names and types already. Hence that column is a VARCHAR, which no column of a query is.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.spark.errors import OptionError
from headwater.spark.options import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Key of a column's metadata.
_KEY = "headwater"
#: What Spark puts before the name of an option, beside the option itself.
_PREFIX = "option."
_NAMES = {name.lower() for name in OPTIONS}
#: Options that say what is read or written: where one is given, no table's options count.
_DATA = {"servers", "stream", "streams", "kv"}
#: Shown to all who may look at a table.
_SECRETS = ("password", "token")
#: Longer than a subject or a key can be, in characters.
_LONGEST = 1 << 20


def new_table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being made, from what Spark gives then; else None.

    OPTIONS come with a prefix as well, TBLPROPERTIES among what else Spark says of a table. Raises
    OptionError for a secret, which the catalog would show.
    """
    lower = {name.lower(): value for name, value in given.items()}
    if "provider" not in lower:
        return None
    found = {name: value for name, value in lower.items() if name in _NAMES}
    for name, value in lower.items():
        if name.startswith(_PREFIX):
            found[name.removeprefix(_PREFIX)] = value
    for name in _SECRETS:
        if name in found:
            raise OptionError(
                f"option '{name}' would be shown with the table: use {name}File or {name}Env"
            )
    return found


def needs_table(given: Mapping[str, str]) -> bool:
    """Whether options say nothing of what is read or written, so that a table must."""
    return not _DATA & {name.lower() for name in given}


def with_options(schema: "StructType", options: Mapping[str, str]) -> "StructType":
    """The schema of a table that keeps these options."""
    from pyspark.sql.types import StringType, StructField, StructType, VarcharType

    names = [field.name for field in schema.fields if field.dataType == StringType()]
    chosen = names[0] if names else schema.fields[0].name
    fields = []
    for field in schema.fields:
        here = field.name == chosen
        kind = VarcharType(_LONGEST) if here and names else field.dataType
        # A null is refused with our words, when it is written.
        fields.append(StructField(field.name, kind, True, {_KEY: dict(options)} if here else None))
    return StructType(fields)


def kept_options(schema: "StructType") -> dict[str, str]:
    """The options that a table's schema keeps; empty for a schema of another kind."""
    for field in schema.fields:
        found = field.metadata.get(_KEY)
        if isinstance(found, dict):
            return {str(name): str(value) for name, value in found.items()}
    return {}


def without_options(schema: "StructType") -> "StructType":
    """A table's schema as that of any read."""
    from pyspark.sql.types import StringType, StructField, StructType, VarcharType

    return StructType(
        [
            StructField(
                field.name,
                StringType() if isinstance(field.dataType, VarcharType) else field.dataType,
                field.nullable,
            )
            for field in schema.fields
        ]
    )
