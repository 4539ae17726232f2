# SPDX-License-Identifier: GPL-3.0-or-later
# Reading and writing CSV (RFC 4180), for the other .awk files; `awk -f csv.awk -f OTHER.awk`.

function fail(sentence) {
    print "plot: " sentence >"/dev/stderr"
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

# "finite", "nan", "inf" or "-inf" for a number; "" where nothing was measured, "text" for all else.
function kind(text) {
    if (text ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/)
        return "finite"
    text = tolower(text)
    return text == "" || text ~ /^-?inf$/ ? text : text ~ /^-?nan$/ ? "nan" : "text"
}
