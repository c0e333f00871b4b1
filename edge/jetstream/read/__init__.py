"""Direct gets: messages read without a consumer."""
