"""PARD and PARD-2 drafters: how they are recognised, and what is true of an artifact made from one."""
