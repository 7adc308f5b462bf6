"""Services: the operations that every client-facing protocol uses.

We call a client-facing protocol a *door*: Kafka today, others (gRPC, HTTP) later. A door decodes a request, passes it
through the gate (`gate`), calls a service, and encodes the result. Services use the project's own types and raise
`ApiError`; they know no wire format.
"""
