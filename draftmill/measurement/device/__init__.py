"""The devices that are measured on: profiles, one holder at a time, readiness, memory."""
