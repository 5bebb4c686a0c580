"""The kernel language, coefficients: the numbers behind `kernel.math`.

Every polynomial lists its coefficients from the constant term up. All are minimax fits of the relative error (Remez
exchange in 45-digit arithmetic, or a linear program; f32 coefficients rounded one by one, the rest fitted again). Each
entry says over which interval and to which error. `Format` holds what the algorithms need to know of a float type.
"""

from __future__ import annotations

from dataclasses import dataclass

from tetrad.core.dtypes import DType, f32, f64, i32, i64

Coefficients = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """A float type as the algorithms see it: its layout, and the constants and polynomials at its precision."""

    dtype: DType
    bits: DType  # the integer type of the same width
    mantissa: int  # stored bits of the significand
    bias: int
    tiny: float  # below it f(x) = x(1 + x/2 ...) is x to half an ulp
    exp_range: tuple[float, float]  # beyond it exp has left the subnormals, or is infinite
    exp2_range: tuple[float, float]
    expm1_range: tuple[float, float]  # expm1 is -1; e**x / 2 is infinite
    exp: Coefficients
    exp2: Coefficients
    expm1: Coefficients
    ln2: tuple[float, float]  # constants in two parts, the second is the rounding error of the first
    log10_2: tuple[float, float]
    large: float  # x*x + 1 is x*x, and x*x does not overflow

    @property
    def shifter(self) -> float:
        """Adding it leaves the nearest integer in the low bits of the significand: 1.5 * 2**mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def min_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def sign_bit(self) -> int:
        return -(1 << (self.dtype.bits - 1))


F32 = Format(
    dtype=f32,
    bits=i32,
    mantissa=23,
    bias=127,
    tiny=2.0**-25,
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 129.0),
    expm1_range=(-18.0, 89.5),
    # e**x on [-0.6945, 0.6945], 2**-26.0
    exp=(1.0, 1.0, 0.50000036, 0.16666616, 0.04166121, 0.008335999, 0.0014105276, 0.00019623576),
    # 2**x on [-1, 1], 2**-26.2
    exp2=(1.0, 0.69314724, 0.24022669, 0.05550366, 0.009616844, 0.0013341721, 0.00015645291, 1.4916841e-05),
    # (e**x - 1 - x) / x**2 on [-0.3476, 0.3476]; expm1 then has 2**-31.0
    expm1=(0.5, 0.16666666, 0.041666493, 0.008333543, 0.0013932385, 0.00019764419),
    ln2=(0.6931472, -1.9046542e-09),
    log10_2=(0.30103, -1.4320989e-08),
    large=2.0**30,
)

F64 = Format(
    dtype=f64,
    bits=i64,
    mantissa=52,
    bias=1023,
    tiny=2.0**-54,
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1025.0),
    expm1_range=(-38.0, 710.6),
    # e**x on [-0.6945, 0.6945], 2**-55.7
    exp=(
        1.0, 1.0, 0.4999999999999993, 0.16666666666666943, 0.041666666666702684, 0.008333333333268815,
        0.001388888888350424, 0.00019841269893494017, 2.4801590866544645e-05, 2.7557300457453146e-06,
        2.7556149966660593e-07, 2.5055053775020316e-08, 2.106297961902484e-09, 1.5935149169440043e-10,
    ),
    # 2**x on [-1, 1], 2**-53.8
    exp2=(
        1.0, 0.6931471805599453, 0.24022650695910022, 0.055504108664823214, 0.009618129107638368,
        0.0013333558146291417, 0.0001540353038678433, 1.5252733851485699e-05, 1.3215488801425004e-06,
        1.0178078303981726e-07, 7.054603060102317e-09, 4.4460996585873644e-10, 2.5910352540447217e-11,
        1.3578884100915965e-12,
    ),
    # (e**x - 1 - x) / x**2 on [-0.3476, 0.3476]; expm1 then has 2**-59.3
    expm1=(
        0.5, 0.16666666666666677, 0.041666666666666574, 0.008333333333321908, 0.0013888888888943835,
        0.00019841269885678884, 2.4801587196601515e-05, 2.7557244463999504e-06, 2.7557387679318484e-07,
        2.510900372224961e-08, 2.087896676051715e-09,
    ),
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    log10_2=(0.3010299956639812, -2.8037281277851704e-18),
    large=2.0**60,
)  # fmt: skip

LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)  # f64, in two parts
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)

# f32 logarithms of 1 + x on [-1/3, 1/3]:
LOG1P_32 = (  # (log(1 + x) - x) / x**2; log then has 2**-27.7
    -0.5, 0.33333215, -0.24999806, 0.20010427, -0.16680193, 0.14005737, -0.12187538, 0.13984565, -0.12879752,
)  # fmt: skip
LOG2_32 = (  # log2(1 + x) / x - 1, 2**-27.0
    0.44269505, -0.7213475, 0.48089418, -0.36067322, 0.28880116, -0.24055955, 0.20039259, -0.17687492, 0.2095558,
    -0.18174721,
)  # fmt: skip
LOG10_32 = (  # log10(1 + x) / x - 1/2, 2**-27.3
    -0.065705515, -0.21714725, 0.14476374, -0.1085725, 0.0869298, -0.07244627, 0.060445495, -0.052887745, 0.06251806,
    -0.056084607,
)  # fmt: skip
# log((1 + s) / (1 - s)) / s - 2 = s**2 * polynomial(s**2), |s| <= 1/5; the logarithm then has 2**-61.3
LOG_64 = (
    0.666666666666666, 0.40000000000055935, 0.2857142855600795, 0.22222224276135474, 0.1818166709164461,
    0.15391072347215934, 0.13174262937991923, 0.13838561037763422,
)  # fmt: skip

ERF_NEAR_32 = (0.12837915, -0.37612417, 0.11279466, -0.02657316, 0.004403754)  # erf(x) / x - 1 in x**2, 2**-25.7
ERF_FAR_32 = (  # log2(erfc(x)) on [0.65, 3.93]; erf then has 2**-27.9
    2.93545e-05, -1.628276, -0.9167599, -0.15228884, 0.033273548, -0.00471228, 0.00031742896,
)  # fmt: skip
# 2**x on [-1/2, 1/2], 2**-28.3
EXP2_FRACTION_32 = (1.0, 0.6931472, 0.24022648, 0.0555036, 0.009618506, 0.0013390806, 0.00015326469)
# (1 + 2x) * exp(x**2) * erfc(x) as a polynomial in (x - 2) / (x + 2), x in [0, 10.1], 2**-26.3
ERFC_32 = (
    1.2769784, -0.092763856, -0.16603085, 0.16405264, -0.054208875, -0.008043232, 0.008649038, 0.0012742953,
    -0.0012643297, -0.00036863718, 2.7863356e-05,
)  # fmt: skip

# f32, in x**2, |x| <= 1.006 * pi/4:
SIN_32 = (-0.16666654, 0.008332106, -0.00019507883)  # (sin(x) / x - 1) / x**2; sine has 2**-27.8
COS_32 = (-0.5, 0.041666646, -0.0013887304, 2.4431196e-05)  # (cos(x) - 1) / x**2; cosine has 2**-32.8
TAN_32 = (  # (tan(x) / x - 1) / x**2; tangent has 2**-29.3
    0.33333352, 0.13332576, 0.054070182, 0.02122771, 0.010980495, -9.7932694e-05, 0.0044706054,
)  # fmt: skip
ATAN_32 = (  # (atan(x) / x - 1) / x**2 in x**2 on [0, 1]; atan has 2**-28.5
    -0.333333, 0.19998522, -0.14263882, 0.109499566, -0.08396062, 0.057817534, -0.031025643, 0.010826421, -0.0017725107,
)  # fmt: skip
ASIN_32 = (  # (asin(x) / x - 1) / x**2 in x**2 on [0, 0.5]; asin has 2**-27.6
    0.16666752, 0.074953094, 0.04546915, 0.02418478, 0.0421583,
)  # fmt: skip
PI_32 = (3.1415927, -8.742278e-08)
HALF_PI_32 = (1.5707964, -4.371139e-08, -1.7151245e-15)  # pi/2 in three f32 parts
TWO_OVER_PI = 0.6366197723675814
# The bits of 2/pi after the point, 32 a word, behind one word of zeros.
TWO_OVER_PI_WORDS = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
)  # fmt: skip

# f64, inside the f32 power: log2(1 + x) = s * polynomial(s**2), s = x / (2 + x), |s| <= 1/5, 2**-35.5
POW_LOG2 = (2.8853900818356695, 0.9617966220572952, 0.5770923044553119, 0.41120797657533376, 0.34837174160650153)
POW_EXP2 = (  # 2**x on [-1/2, 1/2], 2**-28.9
    1.0, 0.6931472028533785, 0.24022647913746512, 0.055503324711440725, 0.009618437342466627, 0.0013398874748334242,
    0.00015353366613421349,
)  # fmt: skip
