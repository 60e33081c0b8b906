"""Wires that more than one room speaks: providers' bytes <-> our records, without any provider's SDK."""
