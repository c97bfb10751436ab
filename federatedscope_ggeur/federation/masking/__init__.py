"""Secure sums: clients' statistics are added up under masks that cancel in the sum."""
