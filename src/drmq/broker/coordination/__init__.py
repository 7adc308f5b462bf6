"""Coordination: replicated state machines on internal topics.

A state machine is pure: it turns a request into records and answers, and changes only by replaying records. This
package gives each one a partition to live on, appends its records, holds its answers until they are committed, and
drops its soft state when leadership moves.
"""
