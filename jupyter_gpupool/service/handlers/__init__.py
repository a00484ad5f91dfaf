"""What each address does: one function each, from a `Call` to a reply."""
