# SPDX-License-Identifier: GPL-3.0-or-later
# concat.awk FILE...: CSV files as one, matched by column name; a column that a file does not have is empty there.

BEGIN {
    for (f = 1; f < ARGC; f++) {
        csv_header(ARGV[f])
        for (i = 1; i <= nf; i++)
            if (!(field[i] in known)) {
                known[field[i]] = 1
                name[++names] = field[i]
            }
        close(ARGV[f])
        csv_line[ARGV[f]] = 0
    }
    for (i = 1; i <= names; i++)
        printf "%s%s", csv_quote(name[i]), (i < names ? "," : "\n")
    for (f = 1; f < ARGC; f++) {
        csv_header(ARGV[f])
        same = columns == names
        for (i = 1; i <= names && same; i++)
            same = field[i] == name[i]
        while (csv_row(ARGV[f]))
            if (same && csv_plain)
                print csv_plain
            else
                for (i = 1; i <= names; i++)
                    printf "%s%s", name[i] in column ? csv_quote(field[column[name[i]]]) : "", (i < names ? "," : "\n")
        close(ARGV[f])
        csv_line[ARGV[f]] = 0
    }
}
