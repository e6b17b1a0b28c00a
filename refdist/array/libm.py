"""Logarithm, sine and cosine of float32 with the bits of the C library.

TensorFlow makes normal numbers with `logf` and `sincosf` of the C library, which do not round correctly: of a hundred
results one is not the nearest float32, and NumPy's functions have other bits again.  So these are the library's own
algorithms, step by step, in NumPy's float64.  On some processors the library fuses multiplications and additions, whose
results in float64 then differ, and hardly ever those in float32.

Source: logf and sincosf of ARM's optimized routines, which are those of glibc from 2.28 on, and of musl.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# For each sixteenth of [0.7, 1.4): the inverse of a number near its middle, and the logarithm of that number.
_INVERSES, _LOGARITHMS = np.array([[*map(float.fromhex, line.split())] for line in """
    0x1.661ec79f8f3bep+0  -0x1.57bf7808caadep-2
    0x1.571ed4aaf883dp+0  -0x1.2bef0a7c06ddbp-2
    0x1.49539f0f010bp+0   -0x1.01eae7f513a67p-2
    0x1.3c995b0b80385p+0  -0x1.b31d8a68224e9p-3
    0x1.30d190c8864a5p+0  -0x1.6574f0ac07758p-3
    0x1.25e227b0b8eap+0   -0x1.1aa2bc79c81p-3
    0x1.1bb4a4a1a343fp+0  -0x1.a4e76ce8c0e5ep-4
    0x1.12358f08ae5bap+0  -0x1.1973c5a611cccp-4
    0x1.0953f419900a7p+0  -0x1.252f438e10c1ep-5
    0x1p+0                 0x0p+0
    0x1.e608cfd9a47acp-1   0x1.aa5aa5df25984p-5
    0x1.ca4b31f026aap-1    0x1.c5e53aa362eb4p-4
    0x1.b2036576afce6p-1   0x1.526e57720db08p-3
    0x1.9c2d163a1aa2dp-1   0x1.bc2860d22477p-3
    0x1.886e6037841edp-1   0x1.1058bc8a07ee1p-2
    0x1.767dcf5534862p-1   0x1.4043057b6ee09p-2
    """.strip().split("\n")]).T.copy()
_LN_2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG_4, _LOG_3, _LOG_2 = map(float.fromhex, ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2"))
_LOWEST = np.uint32(0x3f330000)  # the bits of 0.7

_HALF_PI = float.fromhex("0x1.921fb54442d18p0")
_QUADRANTS = float.fromhex("0x1.45f306dc9c883p+23")  # 2**24 quadrants of a circle
_SIN_3, _SIN_5, _SIN_7 = map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))
_COS_2, _COS_4, _COS_6, _COS_8 = map(float.fromhex, (
    "-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16"))
_SIGNS = np.array([1, 1, -1, -1], np.float32)


def log(x: Floats) -> Floats:
    """The natural logarithm of positive numbers that are neither subnormal nor infinite."""
    bits = x.view(np.uint32) - _LOWEST
    part, exponent = bits >> np.uint32(19) & np.uint32(15), bits.view(np.int32) >> 23
    mantissa = (x.view(np.uint32) - (bits & np.uint32(0xff800000))).view(np.float32)
    rest = mantissa * _INVERSES[part] - 1
    square = rest * rest
    high = _LOGARITHMS[part] + exponent * _LN_2 + rest
    result: Floats = ((_LOG_4 * square + (_LOG_3 * rest + _LOG_2)) * square + high).astype(np.float32)
    return result


def sincos(angle: Floats) -> tuple[Floats, Floats]:
    """Sine and cosine of numbers from 0 to 120."""
    x = angle.astype(np.float64)
    quadrant = (x * _QUADRANTS).astype(np.int32) + 0x800000 >> 24
    x -= quadrant * _HALF_PI
    x2 = x * x
    x4 = x2 * x2
    x3 = x2 * x
    sine = (x + x3 * _SIN_3 + x3 * x2 * (_SIN_5 + x2 * _SIN_7)).astype(np.float32)
    cosine = (1 + x2 * _COS_2 + x4 * _COS_4 + x4 * x2 * (_COS_6 + x2 * _COS_8)).astype(np.float32)
    odd = quadrant & 1 == 1
    return (np.where(odd, cosine, sine) * _SIGNS[quadrant & 3],
            np.where(odd, sine, cosine) * _SIGNS[quadrant + 1 & 3])
