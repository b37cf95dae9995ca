"""What runs a program: the protocol and its implementations."""
