"""The directory of a node's store: identity, lock, streams' metas, keys, quarantine, budget."""
