"""One application in Java and in Python, which take over from each other."""
