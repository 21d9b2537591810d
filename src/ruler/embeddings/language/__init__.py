"""Causal language models: what they say of tokens, what they write, and what attacks bring back."""
