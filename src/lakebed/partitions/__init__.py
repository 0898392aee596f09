"""What every stage shares: leases, writing files, publishing them, taking snapshots of them."""
