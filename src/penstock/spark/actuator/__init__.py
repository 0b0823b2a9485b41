"""How the fleet of a running job is changed, and which executors leave."""
