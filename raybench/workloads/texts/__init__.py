"""Texts, labels and tokens: found, checked, tokenised."""
