"""Jobs that go on: each batch of messages as it comes, from where the last run was."""
