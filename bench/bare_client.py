"""The floor of a command: the standard library's HTTP client asks the same, and writes each piece of text as it comes.

    python bench/bare_client.py HOST:PORT PATH BODY

It checks nothing, reports nothing and cannot be stopped gently: what it takes is what Python takes.
"""

import json
import sys
from http.client import HTTPConnection


def main() -> None:
    """Ask, and write the text of each event."""
    host, path, body = sys.argv[1:]
    connection = HTTPConnection(host, timeout=30)
    connection.request("POST", path, body, {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = connection.getresponse()
    while line := answer.readline():
        if line.startswith(b"data: "):
            sys.stdout.write(json.loads(line[6:])["response"] or "")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
