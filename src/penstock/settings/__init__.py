"""What users write, read and checked: policy texts, `penstock.toml`, goals, live settings.

Texts become typed values here and nowhere else. Nothing here runs a job.
"""
