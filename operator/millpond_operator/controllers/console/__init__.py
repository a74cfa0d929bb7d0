"""The console of the leading operator: what it knows of StreamApps, as documents for people."""
