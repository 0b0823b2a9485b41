"""One file per command; `cli` loads only the one that is called."""
