"""`headwater store`: verify, backup, restore, repair and quarantine."""
