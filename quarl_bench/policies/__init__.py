"""The one portable form of a policy: raw observation -> transform -> net -> head -> action."""
