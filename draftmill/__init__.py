"""What a drafter is: formats, proofs, conversion, measurement, stores. Imports neither Prefect nor Docker."""

__version__ = "0.1.0"
