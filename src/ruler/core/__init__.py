"""What every room may use: values that travel, errors, argument checks, exact row arithmetic."""
