"""Messages and stubs of DRMQ's gRPC services, generated from `proto/drmq/v1`.

The modules `topics_pb2`, `log_pb2`, `leases_pb2`, `groups_pb2`, `cluster_pb2` and `records_pb2` have the messages, and
those that end in `_pb2_grpc` the stubs for clients. They are in every package, and not in the repository: setting up a
clone generates them (`make`, or `python hatch_build.py`). The place follows from the name of the protobuf package:
generated code imports its neighbours as `drmq.v1`.
"""
