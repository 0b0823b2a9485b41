"""The policy of the Daedalus paper and the regression that only it uses."""
