"""confluent-kafka's administration classes, for a strict type checker.

The package has types, but does not mark these names as exported, and leaves some of their methods untyped.
"""

from typing import Any

from confluent_kafka import admin as _admin

_names: Any = _admin

AlterConfigOpType = _names.AlterConfigOpType
ConfigEntry = _names.ConfigEntry
ConfigResource = _names.ConfigResource
ConfigSource = _names.ConfigSource
NewPartitions = _names.NewPartitions
OffsetSpec = _names.OffsetSpec
ResourceType = _names.ResourceType
