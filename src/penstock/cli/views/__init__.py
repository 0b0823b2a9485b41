"""Tables, charts and pages that commands show."""
