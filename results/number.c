// SPDX-License-Identifier: GPL-3.0-or-later
/** The C library's conversions, called under the "C" locale whatever the program's is. */
#include "results/number.h"

#include "harness/core/err.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        nh_no_memory(); /* "C" is built in */
}

static locale_t locale_c(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale;
}

size_t nh_number_real(char text[NH_NUMBER_SIZE], double x)
{
    if (isnan(x))
        return (size_t)snprintf(text, NH_NUMBER_SIZE, "nan");
    locale_t before = uselocale(locale_c());
    /* every decimal of 15 digits survives a double, subnormals apart; 17 always bring the same double back */
    int digits = fabs(x) < DBL_MIN ? 1 : 15, length;
    do
        length = snprintf(text, NH_NUMBER_SIZE, "%.*g", digits, x);
    while (digits++ < 17 && strtod(text, NULL) != x);
    uselocale(before);
    return (size_t)length;
}

size_t nh_number_int(char text[NH_NUMBER_SIZE], int64_t i)
{
    return (size_t)snprintf(text, NH_NUMBER_SIZE, "%" PRId64, i);
}

size_t nh_number_count(char text[NH_NUMBER_SIZE], uint64_t i)
{
    return (size_t)snprintf(text, NH_NUMBER_SIZE, "%" PRIu64, i);
}

bool nh_number_read(double *out, const char *text)
{
    char *end;
    const char *digits = text + strspn(text, " \t\r\n\v\f");
    digits += *digits == '+' || *digits == '-';
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return false;
    errno = 0;
    double x = strtod_l(text, &end, locale_c());
    if (end == text || (errno == ERANGE && isinf(x)))
        return false;
    end += strspn(end, " \t\r\n");
    *out = x;
    return *end == '\0';
}
