"""HTML pages that need nothing but themselves: no script, no library, no network."""
