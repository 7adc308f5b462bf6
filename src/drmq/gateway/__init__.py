"""HTTP, WebSocket and the dashboard, in a process beside the node.

The gateway is a client: it speaks the Kafka wire to the nodes and knows nothing of their inside. Decoding and filtering
records, JSON and many slow readers would otherwise take time from an event loop that other nodes declare dead after a
second. A node starts a gateway as its child (`drmq.server.gateway_child`); `drmq proxy` runs one without a node.

- `types` are the values of the HTTP API, `endpoint` turns functions over them into routes, `openapi` into a document;
- `admin_pool` runs the blocking administration client on threads;
- `routes` has the endpoints, a module for each part of the API;
- `sampler` reads the counters of the nodes once a second, `live` sends them to web sockets;
- `app` puts everything together, `static` serves the dashboard.

Any gateway answers for the whole cluster.
"""
