"""Planning and running within limits of time and disk. Open `streams` first."""
