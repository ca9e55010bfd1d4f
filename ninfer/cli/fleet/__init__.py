"""Commands of the fleet: machines for rent and of one's own."""
