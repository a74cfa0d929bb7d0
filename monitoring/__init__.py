"""Dashboards for Grafana and rules for Prometheus, as code. `python -m monitoring` writes them into the chart."""
