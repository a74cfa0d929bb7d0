"""A year of flights out of New York: `app.py` is the application, `demo.py` plays the year through it."""
