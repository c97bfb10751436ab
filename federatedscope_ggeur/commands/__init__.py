"""Commands that take more than a few lines; `cli` says what they are called."""
