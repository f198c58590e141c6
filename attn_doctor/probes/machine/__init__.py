"""What the machine itself is: system, folders, mounts, loader, PCI bus, caches."""
