"""`headwater fleet`: bundles, flashing, upgrades and rollback of gateways."""
