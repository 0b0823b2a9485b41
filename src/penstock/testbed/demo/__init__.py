"""A real job under a load that rises and falls: `plan` says what runs, `environment` starts it."""
