"""Subjects: validation, wildcard match and the interest trie."""
