"""What every process of DRMQ uses to be observed: log lines, request ids, traces and its own use of the machine.

It knows nothing of the rest, and the rest uses it like the standard `logging`. Nothing here costs anything on a path
that is taken for every record:

- `logs`: one line for each event, as text or as JSON, whatever bytes a client has put into a name;
- `request_ids`: the id of the HTTP request that is being carried out, which follows the calls that it causes;
- `tracing`: spans of OpenTelemetry. Its packages are imported only by `tracing.start`; without that, and in a program
  that does not use them, to ask for the current span is a lookup in a dictionary;
- `process_usage`: memory and descriptors of this process;
- `system_errors`: errors of system calls in words, for log lines;
- `sparingly`: values that are dear to find out, for readers who ask often.
"""
