"""Services: what every client-facing protocol calls.

A door (Kafka today; others later) decodes a request, calls a service, and encodes the result. Services speak in the
project's own types and raise `ApiError`; they know no wire format.
"""
