"""XXH3-64 with seed 0 (the checksum of kvroof traces) in numpy; follows doc/xxhash_spec.md of the xxHash project."""

import numpy as np

MASK = (1 << 64) - 1
PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MIX1, MIX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
BLOCK = 1024  # sixteen stripes of 64 bytes, each with the secret eight bytes further on


def _u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def _u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def _fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def _avalanche(h):
    h ^= h >> 37
    h = h * MIX1 & MASK
    return h ^ h >> 32


def _avalanche64(h):
    h ^= h >> 33
    h = h * PRIME64[1] & MASK
    h ^= h >> 29
    h = h * PRIME64[2] & MASK
    return h ^ h >> 32


def _up_to_16(data):
    n = len(data)
    if n > 8:
        low = _u64(data, 0) ^ _u64(SECRET, 24) ^ _u64(SECRET, 32)
        high = _u64(data, n - 8) ^ _u64(SECRET, 40) ^ _u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(n + swapped + high + _fold(low, high) & MASK)
    if n >= 4:
        h = (_u32(data, n - 4) + (_u32(data, 0) << 32)) ^ _u64(SECRET, 8) ^ _u64(SECRET, 16)
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & MASK
        h = h * MIX2 & MASK
        h = (h ^ (h >> 35) + n) * MIX2 & MASK
        return h ^ h >> 28
    if n > 0:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche64(combined ^ _u32(SECRET, 0) ^ _u32(SECRET, 4))
    return _avalanche64(_u64(SECRET, 56) ^ _u64(SECRET, 64))


def _mix(data, at, secret):
    return _fold(_u64(data, at) ^ _u64(SECRET, secret), _u64(data, at + 8) ^ _u64(SECRET, secret + 8))


def _up_to_240(data):
    n = len(data)
    h = n * PRIME64[0]
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += _mix(data, 16 * i, 32 * i) + _mix(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(h & MASK)
    for i in range(8):
        h += _mix(data, 16 * i, 16 * i)
    h = _avalanche(h & MASK)
    for i in range(8, n // 16):
        h += _mix(data, 16 * i, 16 * (i - 8) + 3)
    return _avalanche(h + _mix(data, n - 16, 136 - 17) & MASK)


def _stripe_sums(stripes, keys):
    """What stripes [..., s, 8] add to the eight accumulators under keys [s, 8]; the order of additions does not matter."""
    keyed = stripes ^ keys
    products = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
    swapped = stripes.reshape(*stripes.shape[:-1], 4, 2)[..., ::-1].reshape(stripes.shape)
    return (products + swapped).sum(axis=-2, dtype=np.uint64)


def _long(data):
    n = len(data)
    secret_at = np.frombuffer(b"".join(SECRET[8 * s:8 * s + 64] for s in range(16)), "<u8").reshape(16, 8)
    acc = np.array([PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]],
                   np.uint64)
    blocks = (n - 1) // BLOCK
    scramble = np.frombuffer(SECRET, "<u8", 8, 128)
    for first in range(0, blocks, 1024):  # a megabyte at a time
        count = min(1024, blocks - first)
        part = np.frombuffer(data, "<u8", count * 128, first * BLOCK).reshape(count, 16, 8)
        for sums in _stripe_sums(part, secret_at):
            acc += sums
            acc = (acc ^ (acc >> np.uint64(47)) ^ scramble) * np.uint64(PRIME32[0])
    rest = (n - 1 - blocks * BLOCK) // 64
    tail = np.frombuffer(data, "<u8", rest * 8, blocks * BLOCK).reshape(rest, 8)
    acc += _stripe_sums(tail, secret_at[:rest])
    acc += _stripe_sums(np.frombuffer(data[n - 64:], "<u8").reshape(1, 8), np.frombuffer(SECRET[121:185], "<u8"))
    h = n * PRIME64[0]
    for i in range(4):
        h += _fold(int(acc[2 * i]) ^ _u64(SECRET, 11 + 16 * i), int(acc[2 * i + 1]) ^ _u64(SECRET, 19 + 16 * i))
    return _avalanche(h & MASK)


def xxh3(data):
    """XXH3-64 of bytes, as an integer."""
    if len(data) <= 16:
        return _up_to_16(data)
    return _up_to_240(data) if len(data) <= 240 else _long(data)
