"""Topics and their records as JSON lines: `millpond topics`, `millpond produce` and `millpond consume`.

`broker` finds the broker; `coders` turns JSON into bytes and back, `application_coders` by an application's serdes;
`lines` reads the lines of `produce`; `reading` reads a topic, and `decoding` makes lines of its records.
"""
