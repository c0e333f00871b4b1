"""What members say, remember and are configured to. It decides nothing; the rules are above."""
