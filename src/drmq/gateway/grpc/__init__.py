"""The gRPC door of the gateway: the services of `proto/drmq/v1`, on the event loop of the gateway.

The problem: a service in any language wants to append, read and take work with code that is generated for it, over one
connection, with flow control. The idea: what calls do is shared with the HTTP door (`gateway.routes` and
`gateway.leasing`), and this package translates. `methods` builds a handler for every method of a service from its
descriptor, so a method of a `.proto` file without a function is found at the start; it also has the limits of all
calls. `status` turns errors into statuses with a hint when to repeat the call. The streams are here alone:
`append_stream`, `fetch_stream` and `lease_stream`, which is one member of a lease group for each stream.

Invariants: what a lease stream holds is given back when the stream ends, however it ends. A client that does not read
is disconnected and never makes memory grow. This package, grpcio and the generated code are imported only when gRPC is
on; without them the gateway serves HTTP and says what is missing.
"""
