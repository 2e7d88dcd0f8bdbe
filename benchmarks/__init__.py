"""Speed, memory and tightness, measured; never imported by the tests."""
