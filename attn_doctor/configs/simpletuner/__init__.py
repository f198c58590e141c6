"""SimpleTuner's configurations: which attention runs in training and validation."""
