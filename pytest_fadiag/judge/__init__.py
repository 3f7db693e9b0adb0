"""The science of the audit, free of pytest: measure with torch once, then judge plain numbers."""
