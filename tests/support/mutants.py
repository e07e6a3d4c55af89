"""Damaged copies of a byte string: the same ones in every run."""

import random
from collections.abc import Iterator

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    9,
    13,
    31,
    255,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def mutate(content: bytes, count: int, reach: int, seed: int = 0) -> Iterator[bytes]:
    """`count` mutants; the changes fall into the first `reach` bytes, but cuts anywhere."""
    chance = random.Random(seed)
    for _ in range(count):
        mutant = bytearray(content)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(min(reach, len(mutant)) or 1)
            match chance.randrange(6):
                case 0:
                    mutant[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    width = chance.choice((1, 2, 4, 8))
                    mutant[at : at + width] = (chance.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(width, "little")
                case 2:
                    del mutant[at : at + chance.randrange(1, 9)]
                case 3:
                    mutant[at:at] = chance.randbytes(chance.randrange(1, 9))
                case 4:
                    source = chance.randrange(min(reach, len(mutant)) or 1)
                    mutant[at : at + 8] = mutant[source : source + 8]
                case 5:
                    del mutant[chance.randrange(len(mutant) + 1) :]
        yield bytes(mutant)
