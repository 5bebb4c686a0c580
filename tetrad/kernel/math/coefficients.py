"""Kernel language, math, coefficients: the numbers behind `kernel.math`.

Every polynomial lists its coefficients from the constant term up. All are minimax fits of the
relative error (Remez exchange in 45-digit arithmetic, or a linear program; f32 coefficients are
rounded one by one and the rest fitted again). Each entry states its interval and its error.
`FloatFormat` holds what the algorithms need to know about a float type.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, f32, f64, i32, i64
from tetrad.core.record import record

Coefficients = tuple[float, ...]


@record
class FloatFormat:
    """A float type: its layout, and the constants and polynomials at its precision."""

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
    # constants in two parts, the second is the rounding error of the first
    ln2: tuple[float, float]
    log10_2: tuple[float, float]
    half_pi: tuple[float, float, float]
    near_angle: float  # up to here n * pi/2 in three parts is exact enough
    large: float  # x*x + 1 is x*x, and x*x does not overflow
    sin: Coefficients  # (sin(x)/x - 1) / x**2 in x**2, |x| <= 1.006 * pi/4
    cos: Coefficients  # (cos(x) - 1) / x**2 in x**2
    asin: Coefficients  # (asin(x)/x - 1) / x**2 in x**2 on [0, 1/2]
    atan: Coefficients  # (atan(x)/x - 1) / x**2 in x**2 on [0, 1], for f64 on [0, tan(pi/8)]
    erf: Coefficients  # erf(x)/x - 1 in x**2 on [0, 0.65]
    erfc: Coefficients  # (1 + 2x) * e**(x**2) * erfc(x) in (x - erfc_centre) / (x + erfc_centre)
    erfc_centre: float
    erfc_end: float  # beyond it erfc is 0

    @property
    def shifter(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, which is then in the low bits of the
        significand."""
        return 1.5 * 2.0**self.mantissa

    @property
    def min_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def sign_bit(self) -> int:
        return -(1 << (self.dtype.bits - 1))


F32 = FloatFormat(
    dtype=f32,
    bits=i32,
    mantissa=23,
    bias=127,
    tiny=2.0**-25,
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 129.0),
    expm1_range=(-18.0, 89.5),
    # e**x on [-0.3476, 0.3476], 2**-28.2
    exp=(1.0, 1.0, 0.49999994, 0.16666521, 0.0416683, 0.008368719, 0.0013818102),
    # 2**x on [-1, 1], 2**-26.2
    exp2=(
        1.0,
        0.69314724,
        0.24022669,
        0.05550366,
        0.009616844,
        0.0013341721,
        0.00015645291,
        1.4916841e-05,
    ),
    # (e**x - 1 - x) / x**2 on [-0.3476, 0.3476]; expm1 then has 2**-31.0
    expm1=(0.5, 0.16666666, 0.041666493, 0.008333543, 0.0013932385, 0.00019764419),
    ln2=(0.6931472, -1.9046542e-09),
    log10_2=(0.30103, -1.4320989e-08),
    half_pi=(1.5707964, -4.371139e-08, -1.7151245e-15),
    near_angle=105615.0,
    large=2.0**30,
    sin=(-0.16666654, 0.008332106, -0.00019507883),  # sine has 2**-27.8
    cos=(-0.5, 0.041666646, -0.0013887304, 2.4431196e-05),  # cosine has 2**-32.8
    asin=(0.16666752, 0.074953094, 0.04546915, 0.02418478, 0.0421583),  # asin has 2**-27.6
    # atan has 2**-28.5
    atan=(
        -0.333333,
        0.19998522,
        -0.14263882,
        0.109499566,
        -0.08396062,
        0.057817534,
        -0.031025643,
        0.010826421,
        -0.0017725107,
    ),
    erf=(0.12837915, -0.37612417, 0.11279466, -0.02657316, 0.004403754),  # erf has 2**-25.7
    # on [0, 10.1], 2**-26.3
    erfc=(
        1.2769784,
        -0.092763856,
        -0.16603085,
        0.16405264,
        -0.054208875,
        -0.008043232,
        0.008649038,
        0.0012742953,
        -0.0012643297,
        -0.00036863718,
        2.7863356e-05,
    ),
    erfc_centre=2.0,
    erfc_end=10.1,
)

F64 = FloatFormat(
    dtype=f64,
    bits=i64,
    mantissa=52,
    bias=1023,
    tiny=2.0**-54,
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1025.0),
    expm1_range=(-38.0, 710.6),
    # e**x on [-0.3476, 0.3476], 2**-55.7
    exp=(
        1.0, 1.0, 0.5000000000000001, 0.16666666666666669, 0.041666666666623144,
        0.008333333333329987,
        0.0013888888917703744, 0.00019841269863430454, 2.4801520536715245e-05, 2.75572678761326e-06,
        2.7620448551415145e-07, 2.5100662420696905e-08,
    ),
    # 2**x on [-1, 1], 2**-53.8
    exp2=(
        1.0, 0.6931471805599453, 0.24022650695910022, 0.055504108664823214, 0.009618129107638368,
        0.0013333558146291417, 0.0001540353038678433, 1.5252733851485699e-05,
        1.3215488801425004e-06,
        1.0178078303981726e-07, 7.054603060102317e-09, 4.4460996585873644e-10,
        2.5910352540447217e-11,
        1.3578884100915965e-12,
    ),
    # (e**x - 1 - x) / x**2 on [-0.3476, 0.3476]; expm1 then has 2**-59.3
    expm1=(
        0.5, 0.16666666666666677, 0.041666666666666574, 0.008333333333321908, 0.0013888888888943835,
        0.00019841269885678884, 2.4801587196601515e-05, 2.7557244463999504e-06,
        2.7557387679318484e-07,
        2.510900372224961e-08, 2.087896676051715e-09,
    ),
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    log10_2=(0.3010299956639812, -2.8037281277851704e-18),
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    near_angle=1e9,
    large=2.0**60,
    # sine has 2**-56.4
    sin=(
        -0.1666666666666663, 0.008333333333322108, -0.00019841269829580459, 2.7557313618108023e-06,
        -2.5050747230579278e-08, 1.5896198252678287e-10,
    ),
    # cosine has 2**-59.6
    cos=(
        -0.5, 0.041666666666666595, -0.001388888888887304, 2.4801587288841397e-05,
        -2.755731417623869e-07,
        2.087570041585682e-09, -1.135851393866547e-11,
    ),
    # asin has 2**-59.2
    asin=(
        0.1666666666666676, 0.07499999999970798, 0.04464285717461354, 0.03038194270771809,
        0.02237221498913103,
        0.01735161199259191, 0.013980820744663162, 0.011398910952040887, 0.010780258584236731,
        0.0037063903213092994,
        0.021707485836082206, -0.020999110886971324, 0.03262865085005338,
    ),
    # atan has 2**-57.5
    atan=(
        -0.333333333333332, 0.19999999999953247, -0.14285714280166542, 0.1111111078215408,
        -0.09090897725223747,
        0.07692059716899018, -0.06663099197304359, 0.05847859223054955, -0.05039190185079778,
        0.03806213342343084,
        -0.0179050320415742,
    ),
    # erf has 2**-55.2
    erf=(
        0.12837916709551256, -0.37612638903183543, 0.112837916709387, -0.026866170640178495,
        0.0052239775494506,
        -0.0008548320312156383, 0.00012054971177471717, -1.4913529920894391e-05,
        1.6214934372808148e-06,
        -1.3525923883109335e-07,
    ),
    # on [0.65, 27.3], 2**-54.4
    erfc=(
        1.2530080582697296, -0.13562110612458123, -0.04756229435345126, 0.12964515870276813,
        -0.11927366341526943,
        0.06830802734365543, -0.023770514919738833, 0.0025293918226981507, 0.0018886903733205556,
        -0.0007798323496111589, -0.0001051598920050082, 0.00012509991121252903,
        4.9497577390407945e-06,
        -2.0103137458794083e-05, -7.314336691980791e-07, 3.479936567862167e-06,
        3.5365702466369066e-07,
        -6.301089438891946e-07, -1.315383266434907e-07, 1.1496941603151202e-07,
        2.7578493312143872e-08,
        -1.7954450787555737e-08,
    ),
    erfc_centre=3.0,
    erfc_end=27.3,
)  # fmt: skip

LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)  # f64, in two parts
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)

# f32 logarithms of 1 + x on [-1/3, 1/3]:
LOG1P_32 = (  # (log(1 + x) - x) / x**2; log then has 2**-27.7
    -0.5, 0.33333215, -0.24999806, 0.20010427, -0.16680193, 0.14005737, -0.12187538, 0.13984565,
    -0.12879752,
)  # fmt: skip
LOG2_32 = (  # log2(1 + x) / x - 1, 2**-27.0
    0.44269505, -0.7213475, 0.48089418, -0.36067322, 0.28880116, -0.24055955, 0.20039259,
    -0.17687492, 0.2095558,
    -0.18174721,
)  # fmt: skip
LOG10_32 = (  # log10(1 + x) / x - 1/2, 2**-27.3
    -0.065705515, -0.21714725, 0.14476374, -0.1085725, 0.0869298, -0.07244627, 0.060445495,
    -0.052887745, 0.06251806,
    -0.056084607,
)  # fmt: skip
# log((1 + s) / (1 - s)) / s - 2 = s**2 * polynomial(s**2), |s| <= 1/5; the logarithm then has
# 2**-61.3
LOG_64 = (
    0.666666666666666, 0.40000000000055935, 0.2857142855600795, 0.22222224276135474,
    0.1818166709164461,
    0.15391072347215934, 0.13174262937991923, 0.13838561037763422,
)  # fmt: skip

ERF_FAR_32 = (  # log2(erfc(x)) on [0.65, 3.93]; erf then has 2**-27.9
    2.93545e-05, -1.628276, -0.9167599, -0.15228884, 0.033273548, -0.00471228, 0.00031742896,
)  # fmt: skip
# 2**x on [-1/2, 1/2], 2**-28.3
EXP2_FRACTION_32 = (1.0, 0.6931472, 0.24022648, 0.0555036, 0.009618506, 0.0013390806, 0.00015326469)
TWO_OVER_PI = 0.6366197723675814
# The bits of 2/pi after the point, 32 a word, behind one word of zeros: enough for the largest f64.
TWO_OVER_PI_WORDS = (
    0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
    0xDEBBC561,
    0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
    0xE99C7026,
    0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F, 0xEF2F118B,
    0x5A0A6D1F,
    0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA,
    0x6BFB5FB1,
    0x1F8D5D08, 0x56033046, 0xFC7B6BAB,
)  # fmt: skip
TAN_PI_8 = 0.41421356237309503

# f64, inside the f32 power: log2(1 + x) = s * polynomial(s**2), s = x / (2 + x), |s| <= 1/5,
# 2**-35.5
POW_LOG2 = (
    2.8853900818356695,
    0.9617966220572952,
    0.5770923044553119,
    0.41120797657533376,
    0.34837174160650153,
)
POW_EXP2 = (  # 2**x on [-1/2, 1/2], 2**-28.9
    1.0, 0.6931472028533785, 0.24022647913746512, 0.055503324711440725, 0.009618437342466627,
    0.0013398874748334242,
    0.00015353366613421349,
)  # fmt: skip

# The f64 power needs its logarithm to 2**-64: log2(1 + x) = s * (1 + z/3 + z**2 * polynomial(z)) *
# 2/ln2, z = s*s, s = x / (2 + x), |s| <= 1/5; 2**-67.9 from the polynomial.
POW_64 = (
    0.19999999999999862, 0.14285714285788592, 0.11111111095636853, 0.09090910761811553,
    0.07692203384490709,
    0.06670570624771557, 0.05796201838767318, 0.06285586963584361,
)  # fmt: skip
THIRD = (1 / 3, 1.850371707708594e-17)
TWO_OVER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)

# gelu in f32: the tail of the normal distribution is e**(-a*a/2) * t * polynomial(t) with t = 1 /
# (a + centre), to 1.5e-8 up to the end, beyond which it is 0
GELU_END_32, GELU_CENTRE_32 = 14.6, 3.75
GELU_32 = (
    0.3990012027546677, 1.491002234449284, 5.395299197244782, 12.76597554925792,
    94.40409507138956, -278.15893353759395, 2102.83357854499, -5415.787673738813,
    4439.541239467694,
)  # fmt: skip
