"""Behaviours of the Spark data source, in one shared local session."""
