# SPDX-License-Identifier: GPL-3.0-or-later
# Reading and writing CSV (RFC 4180), for the other .awk files; `awk -f csv.awk -f OTHER.awk`.

function fail(sentence) {
    print "plot: " visible(sentence) >"/dev/stderr"
    failed = 1
    exit 1
}

# Reads the next record of a file into field[1..nf]; 0 at the end. csv_plain is its text where nothing in it is quoted.
function csv_read(file,    text, more, i, c, quoted, value) {
    if ((getline text <file) <= 0)
        return 0
    csv_line[file]++
    if (csv_line[file] == 1)
        sub(/^\357\273\277/, "", text)
    sub(/\r$/, "", text)
    csv_plain = ""
    if (!index(text, "\"")) {
        csv_plain = text
        nf = split(text, field, ",")
        if (text == "")
            field[nf = 1] = ""
        return 1
    }
    nf = 0
    quoted = 0
    value = ""
    for (i = 1; ; i++) {
        if (i > length(text)) {
            if (!quoted)
                break
            if ((getline more <file) <= 0)
                fail(file ":" csv_line[file] ": a quote is never closed")
            csv_line[file]++
            sub(/\r$/, "", more)
            value = value "\n"
            text = more
            i = 0
            continue
        }
        c = substr(text, i, 1)
        if (quoted && c == "\"" && substr(text, i + 1, 1) == "\"") {
            value = value c
            i++
        } else if (c == "\"") {
            quoted = !quoted
        } else if (c == "," && !quoted) {
            field[++nf] = value
            value = ""
        } else {
            value = value c
        }
    }
    field[++nf] = value
    return 1
}

# Reads the header line of a file into column[NAME] = position.
function csv_header(file,    i) {
    if (!csv_read(file) || (nf == 1 && field[1] == ""))
        fail(file ": empty, a CSV file starts with a header line")
    split("", column)
    for (i = 1; i <= nf; i++) {
        if (field[i] in column)
            fail(file ": column " field[i] " stands twice in the header")
        column[field[i]] = i
    }
    columns = nf
}

# Reads the next row. Blank lines are skipped, and so is the header where it stands again because files were put one behind
# the other; another header (most fields are names of columns) is an error, and so is a row that is broken off or too long.
function csv_row(file,    i, names) {
    for (;;) {
        if (!csv_read(file))
            return 0
        if (nf == 1 && field[1] == "" && columns > 1)
            continue
        if (!(field[1] in column))
            break
        names = 0
        for (i = 1; i <= nf; i++)
            names += field[i] in column && column[field[i]] == i
        if (names == columns && nf == columns)
            continue
        names = 0
        for (i = 1; i <= nf; i++)
            names += field[i] in column
        if (2 * names > nf)
            fail(file ":" csv_line[file] ": another header line; give the files one by one")
        break
    }
    if (nf != columns)
        fail(file ":" csv_line[file] ": " nf " fields, but the header has " columns)
    return 1
}

function csv_quote(text) {
    if (text !~ /[",\r\n]/)
        return text
    gsub(/"/, "\"\"", text)
    return "\"" text "\""
}

# Text for people: control characters, bytes that are no UTF-8, and characters that cannot be seen or that turn the direction of
# writing, as \xNN; the rules of results/text.h. awk must see bytes: LC_ALL=C.
function visible(text,    i, c, n, k, out_) {
    if (text !~ /[^ -~]/)
        return text
    if (!("a" in byte_of))
        for (i = 1; i < 256; i++)
            byte_of[sprintf("%c", i)] = i
    for (i = 1; i <= length(text); i += n) {
        n = utf8(text, i)
        if (n)
            out_ = out_ substr(text, i, n)
        else {
            n = 1
            out_ = out_ sprintf("\\x%02x", byte_of[substr(text, i, 1)])
        }
    }
    return out_
}

# Bytes of the character at i that may be shown; 0 where there is none.
function utf8(text, i,    c, n, k, b, code) {
    c = byte_of[substr(text, i, 1)]
    if (c < 128)
        return c >= 32 && c != 127
    n = c < 194 ? 0 : c < 224 ? 2 : c < 240 ? 3 : c < 245 ? 4 : 0
    if (!n)
        return 0
    code = c % 2 ^ (7 - n)
    for (k = 1; k < n; k++) {
        b = i + k <= length(text) ? byte_of[substr(text, i + k, 1)] : 0
        if (b < 128 || b > 191)
            return 0
        code = code * 64 + b - 128
    }
    if (code < (n == 2 ? 160 : n == 3 ? 2048 : 65536) || code > 1114111 || (code >= 55296 && code <= 57343) || code % 65536 >= 65534)
        return 0
    if (code == 173 || code == 1564 || code == 6158 || (code >= 8203 && code <= 8207) || (code >= 8232 && code <= 8238) || \
            (code >= 8288 && code <= 8303) || (code >= 64976 && code <= 65007) || code == 65279 || (code >= 65529 && code <= 65531) || \
            (code >= 917504 && code <= 921599))
        return 0
    return n
}

# "finite", "nan", "inf" or "-inf" for a number; "" where nothing was measured, "text" for all else: the rules of nh_number_read
# (results/number.h). What is too large for a double is text; so is hexadecimal.
function kind(text,    v) {
    if (text ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/) {
        v = text + 0
        return v "" ~ /inf/ ? "text" : "finite"
    }
    if (text == "")
        return ""
    if (text ~ /^[ \t\r\n\v\f]+.|[ \t\r\n]$/) {
        sub(/^[ \t\r\n\v\f]+/, "", text)
        sub(/[ \t\r\n]+$/, "", text)
        return text == "" ? "text" : kind(text)
    }
    text = tolower(text)
    return text ~ /^[-+]?inf(inity)?$/ ? (text ~ /^-/ ? "-inf" : "inf") : text ~ /^[-+]?nan(\([a-z0-9_]*\))?$/ ? "nan" : "text"
}
