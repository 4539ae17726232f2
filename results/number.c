// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/number.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <threads.h>

__extension__ typedef unsigned __int128 u128;

/* Powers of ten to 128 bits: g(k) = floor(10^k / 2^r) + (inexact), r such that the top bit is set. */
enum { K_MIN = -292, K_MAX = 324, K_EXACT = 55, LIMBS = 36 };

static u128 powers[K_MAX - K_MIN + 1];
static locale_t c_locale;
static once_flag once = ONCE_FLAG_INIT;

/* The 128 bits from the highest set bit of a little-endian number down. */
static u128 top_bits(const uint32_t limb[LIMBS])
{
    int top = LIMBS - 1;
    while (limb[top] == 0)
        top--;
    const int lead = __builtin_clz(limb[top]);
    u128 bits = 0;
    for (int i = top; i > top - 4; i--)
        bits = bits << 32 | (i >= 0 ? limb[i] : 0);
    const uint64_t next = top >= 4 ? limb[top - 4] : 0;
    return bits << lead | next >> (32 - lead);
}

static void prepare(void)
{
    uint32_t up[LIMBS] = {1};                        /* 10^k */
    uint32_t down[LIMBS] = {[LIMBS - 1] = 1U << 31}; /* floor(2^1151 / 10^-k); floors of floors stay exact */
    for (int k = 0; k <= K_MAX; k++) {
        powers[k - K_MIN] = top_bits(up) + (k > K_EXACT);
        uint64_t carry = 0;
        for (int i = 0; i < LIMBS; i++) {
            carry += (uint64_t)up[i] * 10;
            up[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    for (int k = -1; k >= K_MIN; k--) {
        uint64_t rest = 0;
        for (int i = LIMBS - 1; i >= 0; i--) {
            rest = rest << 32 | down[i];
            down[i] = (uint32_t)(rest / 10);
            rest %= 10;
        }
        powers[k - K_MIN] = top_bits(down) + 1;
    }
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* floor(log2(10^k)), |k| <= 1233 */
static ptrdiff_t log2_pow10(ptrdiff_t k)
{
    return (k * 1741647) >> 19;
}

/* floor(g * c / 2^128), the lowest bit set where something was cut off. */
static uint64_t round_to_odd(u128 g, uint64_t c)
{
    const u128 low = (u128)(uint64_t)g * c;
    const u128 sum = (u128)(uint64_t)(g >> 64) * c + (uint64_t)(low >> 64);
    return (uint64_t)(sum >> 64) | ((uint64_t)sum > 1);
}

/* Schubfach: digits * 10^*exponent, the shortest decimal inside the rounding interval of a finite x > 0.
 * Source: R. Giulietti, "The Schubfach way to render doubles", 2020, figures 4 and 6. */
static uint64_t shortest(double x, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int biased = (int)(bits >> 52);
    const uint64_t c = biased ? fraction | UINT64_C(1) << 52 : fraction; /* x = c 2^q */
    const int q = (biased ? biased : 1) - 1075;

    const bool closer_below = fraction == 0 && biased > 1;
    const bool odd = c & 1; /* the ends of the interval round to even, that is to x where c is even */
    const int k = (q * 1262611 - (closer_below ? 524031 : 0)) >> 22; /* floor(log10 of the interval's width) */
    const ptrdiff_t h = q + log2_pow10(-k) + 1;
    const u128 g = powers[-k - K_MIN];
    const uint64_t lower = round_to_odd(g, (4 * c - 2 + closer_below) << h) + odd; /* 4 x 10^-k and its neighbours */
    const uint64_t v = round_to_odd(g, (4 * c) << h);
    const uint64_t upper = round_to_odd(g, (4 * c + 2) << h) - odd;

    const uint64_t s = v / 4;
    if (s >= 10) { /* one digit less */
        const uint64_t tens = s / 10;
        const bool below = lower <= 40 * tens, above = 40 * tens + 40 <= upper;
        if (below != above) {
            *exponent = k + 1;
            return tens + above;
        }
    }
    *exponent = k;
    const bool below = lower <= 4 * s, above = 4 * s + 4 <= upper;
    if (below != above)
        return s + above;
    return s + (v > 4 * s + 2 || (v == 4 * s + 2 && (s & 1)));
}

static size_t put_digits(char *text, uint64_t n)
{
    char reversed[20];
    size_t length = 0;
    do {
        reversed[length++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    for (size_t i = 0; i < length; i++)
        text[i] = reversed[length - 1 - i];
    return length;
}

/* 0.00ddd, ddd000 or dd.d for digits d.dd * 10^exponent. */
static size_t put_fixed(char *text, const char *digits, int count, int exponent)
{
    char *p = text;
    if (exponent < 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = -1; i > exponent; i--)
            *p++ = '0';
    }
    for (int i = 0; i < count || i <= exponent; i++) {
        if (i == exponent + 1 && i > 0)
            *p++ = '.';
        *p++ = i < count ? digits[i] : '0';
    }
    return (size_t)(p - text);
}

/* d.dde-05 for the same. */
static size_t put_scientific(char *text, const char *digits, int count, int exponent)
{
    char *p = text;
    *p++ = digits[0];
    if (count > 1) {
        *p++ = '.';
        memcpy(p, digits + 1, (size_t)count - 1);
        p += count - 1;
    }
    *p++ = 'e';
    *p++ = exponent < 0 ? '-' : '+';
    if (abs(exponent) < 10)
        *p++ = '0';
    return (size_t)(p - text) + put_digits(p, (uint64_t)abs(exponent));
}

size_t nh_number_real(char text[NH_NUMBER_SIZE], double x)
{
    call_once(&once, prepare);
    char *p = text;
    if (isnan(x)) {
        memcpy(text, "nan", 4);
        return 3;
    }
    if (signbit(x))
        *p++ = '-';
    x = fabs(x);
    if (isinf(x)) {
        memcpy(p, "inf", 3);
        p += 3;
    } else if (x < 0x1p53 && x == (double)(uint64_t)x) {
        p += put_digits(p, (uint64_t)x);
    } else {
        int exponent;
        uint64_t n = shortest(x, &exponent);
        for (; n % 10 == 0; n /= 10)
            exponent++;
        char digits[20];
        const int count = (int)put_digits(digits, n);
        exponent += count - 1;
        const bool fixed = exponent >= -4 && exponent < 16;
        p += (fixed ? put_fixed : put_scientific)(p, digits, count, exponent);
    }
    *p = '\0';
    return (size_t)(p - text);
}

size_t nh_number_count(char text[NH_NUMBER_SIZE], uint64_t i)
{
    const size_t length = put_digits(text, i);
    text[length] = '\0';
    return length;
}

size_t nh_number_int(char text[NH_NUMBER_SIZE], int64_t i)
{
    const size_t sign = i < 0;
    if (sign)
        text[0] = '-';
    const size_t length = sign + put_digits(text + sign, sign ? 0 - (uint64_t)i : (uint64_t)i);
    text[length] = '\0';
    return length;
}

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* nan, inf, infinity at *p, moved past it. */
static bool read_name(double *out, const char **p)
{
    static const struct {
        const char *name;
        double value;
    } names[] = {{"nan", (double)NAN}, {"infinity", (double)INFINITY}, {"inf", (double)INFINITY}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncasecmp(*p, names[i].name, strlen(names[i].name)) == 0) {
            *p += strlen(names[i].name);
            *out = names[i].value;
            return true;
        }
    }
    return false;
}

/* The double nearest to m * 10^e, m > 0; false where the table's precision does not settle the rounding (in practice:
 * where it is a tie) or the range of normal doubles is near its ends. */
static bool scale(double *out, uint64_t m, ptrdiff_t e)
{
    if (e < -285 || e > 285)
        return false;
    const int lead = __builtin_clzll(m);
    m <<= lead;
    const u128 g = powers[e - K_MIN];
    const bool rounded_up = e < 0 || e > K_EXACT; /* then the true product is less than m below the one of g */
    const u128 low = (u128)(uint64_t)g * m;
    const u128 most = (u128)(uint64_t)(g >> 64) * m + (uint64_t)(low >> 64);
    const u128 least = most - (rounded_up && (uint64_t)low < m);
    /* The upper half holds 62 bits or more; its lowest bit can stand for all below it. */
    const bool rest = rounded_up || (uint64_t)low != 0;
    const double x = (double)((uint64_t)(most >> 64) | (rest || (uint64_t)most != 0));
    if (x != (double)((uint64_t)(least >> 64) | (rest || (uint64_t)least != 0)))
        return false;
    const uint64_t bits = (uint64_t)(1023 + log2_pow10(e) + 1 - lead) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    *out = x * power;
    return true;
}

/* Appends the digits at p to *m, as long as 19 fit, and returns where they end. */
static const char *read_digits(const char *p, uint64_t *m, bool *cut)
{
    for (; is_digit(*p); p++) {
        if (*m >= UINT64_C(1000000000000000000))
            *cut = true;
        else
            *m = *m * 10 + (uint64_t)(*p - '0');
    }
    return p;
}

/* Unsigned decimal at *text, moved past it; false, and not moved, where there is none. Up to 19 digits are gathered in
 * m; what cannot be settled with them the C library does. */
static bool read_decimal(double *out, const char **text)
{
    uint64_t m = 0;
    bool cut = false;
    const char *p = read_digits(*text, &m, &cut);
    ptrdiff_t digits = p - *text, e = 0;
    if (*p == '.') {
        const char *decimals = p + 1;
        p = read_digits(decimals, &m, &cut);
        digits += p - decimals;
        e = decimals - p;
    }
    if (digits == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        const bool minus = *p == '-';
        if (*p == '-' || *p == '+')
            p++;
        if (!is_digit(*p))
            return false;
        ptrdiff_t power = 0;
        for (; is_digit(*p); p++)
            power = power < 100000 ? power * 10 + (*p - '0') : power;
        e += minus ? -power : power;
    }
    if (m == 0)
        *out = 0;
    else if (cut || !scale(out, m, e))
        *out = strtod_l(*text, NULL, c_locale);
    if (isinf(*out))
        return false;
    *text = p;
    return true;
}

bool nh_number_read(double *out, const char *text)
{
    call_once(&once, prepare);
    const char *p = skip_blanks(text);
    const bool minus = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    double value;
    if (!read_decimal(&value, &p) && !read_name(&value, &p))
        return false;
    if (*skip_blanks(p) != '\0')
        return false;
    *out = minus ? -value : value;
    return true;
}
