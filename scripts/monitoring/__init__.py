"""Tables of metrics -> dashboards, rules and the page of metrics in deploy/: `python -m scripts.monitoring`."""
