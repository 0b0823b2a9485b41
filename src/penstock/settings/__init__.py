"""What users write, read and checked: policy texts, `penstock.toml`, goals, live settings.

Texts become typed values here only, and `policy_spec.wire` makes a controller of them. Nothing here
runs a job.
"""
