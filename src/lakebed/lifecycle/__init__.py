"""Operations on published partitions: retire, restore, sweep; check; backup."""
