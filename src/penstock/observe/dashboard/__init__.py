"""The live page of running jobs and growing journals: state from steps, a server, its page.

It is read-only: nothing here can change a job.
"""
