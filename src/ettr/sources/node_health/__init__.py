"""What nodes say of themselves: kernel logs and health-check tools."""
