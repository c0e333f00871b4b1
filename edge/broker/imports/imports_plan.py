"""What accounts share, as checked plain data: from the configuration, or from account tokens."""

import functools

import msgspec

from headwater.edge.broker.imports.export_index import ExportIndex
from headwater.edge.conf.options import (
    ExportOptions,
    ImportOptions,
    MappingOptions,
    Options,
)
from headwater.security.auth_options import GLOBAL_ACCOUNT


class AccountShares(msgspec.Struct, kw_only=True, dict=True):
    """Mappings, exports and imports of one account."""

    exports: list[ExportOptions] = []
    imports: list[ImportOptions] = []
    mappings: list[MappingOptions] = []

    def export_for(self, entry: ImportOptions) -> ExportOptions | None:
        """The export that an import of this account uses: the same subject, or one that covers."""
        return self._index.find(entry.kind, entry.subject)

    def any(self) -> bool:
        """Whether the account shares anything, or maps subjects."""
        return bool(self.exports or self.imports or self.mappings)

    @functools.cached_property
    def _index(self) -> ExportIndex:
        return ExportIndex(self.exports)


Plan = dict[str, AccountShares]


def plan_of_options(options: Options) -> Plan:
    """Shares of all accounts of a configuration, which has been checked."""
    plan = {
        name: AccountShares(
            exports=account.exports, imports=account.imports, mappings=account.mappings
        )
        for name, account in options.accounts.items()
    }
    if options.mappings:
        plan.setdefault(GLOBAL_ACCOUNT, AccountShares()).mappings = options.mappings
    return plan
