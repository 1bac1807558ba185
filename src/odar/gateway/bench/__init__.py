"""What the gateway itself costs, measured against an upstream that answers at once."""
