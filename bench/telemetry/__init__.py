"""What it costs to watch a cluster, and how fast the message browser answers: `python -m bench telemetry`."""
