// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t nh_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return s[0] >= ' ' && s[0] != 0x7f;
    const size_t length = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Written longer than needed, UTF-16 surrogates, beyond U+10FFFF, C1 controls. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ||
        (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    return length;
}

/* The code point of a character of that length. */
static uint32_t code_point(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t c = length == 1 ? s[0] : s[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (s[i] & 0x3fu);
    return c;
}

/* Not to be seen, or acting on what is beside it: Unicode's format characters, separators and non-characters. */
static bool unseen(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        {0xad, 0xad},       /* soft hyphen */
        {0x61c, 0x61c},     /* Arabic letter mark */
        {0x180e, 0x180e},   /* Mongolian vowel separator */
        {0x200b, 0x200f},   /* zero width; marks of direction */
        {0x2028, 0x202e},   /* line and paragraph separators; embeddings and overrides of direction */
        {0x2060, 0x206f},   /* word joiner, invisible operators, isolates */
        {0xfdd0, 0xfdef},   /* non-characters */
        {0xfeff, 0xfeff},   /* byte order mark */
        {0xfff9, 0xfffb},   /* interlinear annotation */
        {0xe0000, 0xe0fff}, /* tags */
    };
    if ((c & 0xfffe) == 0xfffe)
        return true;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].from && c <= ranges[i].to)
            return true;
    return false;
}

size_t nh_text_next(const char **text, char shown[NH_TEXT_STEP])
{
    const char *s = *text;
    size_t length = nh_utf8(s);
    if (length > 0 && !unseen(code_point(s, length))) {
        memcpy(shown, s, length);
        shown[length] = '\0';
        *text += length;
        return length;
    }
    shown[0] = '\0';
    if (*s == '\0')
        return 0;
    (*text)++; /* the bytes that follow are no character by themselves */
    return (size_t)snprintf(shown, NH_TEXT_STEP, "\\x%02x", (unsigned char)*s);
}

int nh_text_put(FILE *file, const char *text)
{
    char shown[NH_TEXT_STEP];
    int characters = 0;
    for (size_t length; (length = nh_text_next(&text, shown)) > 0;) {
        characters += shown[0] == '\\' ? (int)length : 1;
        if (file)
            fwrite(shown, length, 1, file);
    }
    return characters;
}

void nh_text_line(FILE *file, const char *format, ...)
{
    char room[4096], shown[4 * sizeof room], *grown = NULL;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    if (vsnprintf(room, sizeof room, format, args) >= (int)sizeof room && vasprintf(&grown, format, again) < 0)
        grown = NULL;
    va_end(again);
    va_end(args);
    size_t n = 0;
    const char *rest = grown ? grown : room;
    for (size_t length; (length = nh_text_next(&rest, shown + n)) > 0;) {
        n += length;
        if (n + 2 * NH_TEXT_STEP > sizeof shown) {
            fwrite(shown, n, 1, file);
            n = 0;
        }
    }
    shown[n++] = '\n';
    fwrite(shown, n, 1, file);
    free(grown);
}
