"""Maintenance: retention, snapshots and expiry, in the background and at low priority."""
