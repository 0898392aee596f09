"""What happens to partitions after they were published: retire, restore, sweep; check; backup."""
